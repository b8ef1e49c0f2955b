"""Packing form: how one factor of a contraction lies in memory, and how in panels.

    number (p, k, part, lane) at ((p * depth + k) * parts + part) * width + lane

A panel holds `width` consecutive indices of the free set (some more than a row tile needs, so that
each k is whole vectors); what lies beyond the last index is never used.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.arithmetic import times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.addressing import Place
from hlo.backend.kernels.contraction.problem.axes import Joined
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring
from hlo.ir.dtype import DType

Strides = tuple[tuple[int, int], ...]  # (size, stride in elements), outermost first
Fetch = Callable[[Value], Parts]  # A vector of the free set, of the address of a depth's index 0.
MOST_AT_ONCE = 16  # Depths that are written out one after the other.


class Source(Struct, frozen=True):
    """A factor in memory, seen from one batch. is_computed: it is computed as it is read; joined:
    its numbers are words, made of elements as they are read.
    """

    dtype: DType
    free: Strides
    depth: Strides
    is_computed: bool = False
    joined: Joined | None = None

    @property
    def is_made(self) -> bool:
        """Whether its numbers stand nowhere as they are."""
        return self.is_computed or self.joined is not None

    @property
    def number_bytes(self) -> int:
        """What is read for a number."""
        return self.dtype.item_bytes * (self.joined.group if self.joined else 1)

    @property
    def free_size(self) -> int:
        return _product(self.free)

    @property
    def depth_size(self) -> int:
        return _product(self.depth)

    @property
    def size(self) -> int:
        """Numbers of all panels."""
        return self.free_size * self.depth_size

    @property
    def memory_bytes(self) -> int:
        """From the first element to the last: windows that overlap share memory."""
        steps = sum((size - 1) * abs(stride) for size, stride in (*self.free, *self.depth))
        return (1 + steps) * self.dtype.item_bytes

    @property
    def is_free_contiguous(self) -> bool:
        return not self.free or (len(self.free) == 1 and self.free[0][1] == 1)

    @property
    def is_depth_contiguous(self) -> bool:
        return bool(self.depth) and self.depth[-1][1] == 1


class Panels(Struct, frozen=True):
    """count panels of `width` lanes; panel p begins at index start(p) of the free set.

    Each has `step` indices; the last one moves back to end with the set, at `end`, so that all are
    alike (what lies in two panels is computed twice, to the same bits).
    """

    count: int
    width: int
    step: int
    end: int

    def start(self, w: Writer, panel: Value) -> Value:
        if self.count == 1:
            return w.int(0)
        at = times(w, panel, self.step)
        if self.count * self.step <= self.end:
            return at
        return w.intrinsic("llvm.umin", "i64", at, w.int(self.end - self.step))

    @property
    def overlaps(self) -> bool:
        """Whether the last panel begins before the one before it ends."""
        return self.count > 1 and self.count * self.step > self.end

    def again(self, w: Writer, panel: Value, start: Value) -> Value:
        """How many of a panel's first indices lie in the one before it too."""
        if not self.overlaps:
            return w.int(0)
        return w.binary("sub", times(w, panel, self.step), start)

    def exceeds(self, total: int) -> bool:
        """Whether some panel has lanes beyond the set."""
        last = min((self.count - 1) * self.step, max(self.end - self.step, 0))
        return last + self.width > total


class Packing(Struct, frozen=True):
    """How one factor is packed; panel_depth: depths that a panel holds, 0 for all.

    by_rows: a panel is its rows, one after the other along depth, and not depth after depth.
    """

    ring: Ring
    source: Source
    panels: Panels
    panel_depth: int = 0
    by_rows: bool = False

    @property
    def panel_size(self) -> int:
        """Ring scalars of one panel."""
        if self.by_rows:
            return self.panels.step * self.row_step
        return (self.panel_depth or self.source.depth_size) * self.k_step

    @property
    def k_step(self) -> int:
        """Ring scalars to the next depth."""
        return 1 if self.by_rows else self.ring.parts * self.panels.width

    @property
    def row_step(self) -> int:
        """Ring scalars to the next row: an odd number of cache lines, so that rows lie in
        different sets of the cache.
        """
        if not self.by_rows:
            return 1
        per_line = self.ring.target.machine.line_bytes // self.ring.scalar_bytes
        lines = -(-self.ring.parts * self.part_step // per_line)
        return (lines | 1) * per_line

    @property
    def part_step(self) -> int:
        """Ring scalars to the next part of a number."""
        if not self.by_rows:
            return self.panels.width
        depth = self.panel_depth or self.source.depth_size
        return (depth // self.ring.lanes + 2) * self.ring.lanes  # runs end past it

    @property
    def is_in_runs(self) -> bool:
        """Whether the depths of a panel are whole runs of the innermost axis, or a part of one."""
        depth, size = self.source.depth, self.panel_depth
        return len(depth) <= 1 or size % depth[-1][0] == 0 or self.is_in_one_run

    @property
    def is_in_one_run(self) -> bool:
        """Whether the depths of a panel are a part of one run."""
        return bool(self.panel_depth) and self.source.depth[-1][0] % self.panel_depth == 0

    @property
    def is_part_of_run(self) -> bool:
        """The same, where a run may be all of depth and its last part short."""
        return self.is_in_one_run or (len(self.source.depth) == 1 and bool(self.panel_depth))

    @property
    def is_turned(self) -> bool:
        """Whether squares along depth go through registers, where the free set has no runs."""
        source = self.source
        return source.is_depth_contiguous and source.depth[-1][0] >= 4 and self.is_in_runs

    @property
    def is_in_vectors(self) -> bool:
        """Whether the free set is runs of which each vector of a panel is a part."""
        free, lanes, panels = self.source.free, self.ring.lanes, self.panels
        if not free or free[-1][1] != 1 or panels.overlaps or panels.exceeds(self.source.free_size):
            return False
        return free[-1][0] % lanes == 0 and panels.step % lanes == 0

    @property
    def depth_rounds(self) -> tuple[Strides, Strides]:
        """Depth as rounds of neighbours whose distances are known: the innermost axes, as a
        window's are, of which a part of depth is whole rounds; and the axes that are left.
        """
        depth, inner = self.source.depth, len(self.source.depth)
        count = 1
        while inner and (count := count * depth[inner - 1][0]) <= MOST_AT_ONCE:
            if self.panel_depth % count:
                break
            inner -= 1
        return depth[:inner], depth[inner:]

    @property
    def is_far(self) -> bool:
        """Whether most of the factor comes from beyond the second-level cache."""
        source = self.source
        size = source.size * source.number_bytes
        return size >= self.ring.target.machine.second_cache.bytes

    @property
    def square(self) -> int:
        """Depths that are transposed at once: 128 bits of ring scalars."""
        return 16 // self.ring.scalar_bytes

    @property
    def panel_bytes(self) -> int:
        return self.panel_size * self.ring.scalar_bytes

    @property
    def size_bytes(self) -> int:
        return self.panels.count * self.panel_bytes


class PanelRange(Struct, frozen=True):
    """What to pack: panels [first, first + count) to `target`, depth [begin, begin + size).

    A part of the depth is a panel's (panel_depth, the last one less); target is depth 0's place.
    flag: a byte that becomes 1 where words have subnormal numbers of bf16.
    """

    source: Place
    target: Value
    first: Value
    count: Value
    depth_begin: Value
    depth_size: Value
    flag: Value | None = None


def _product(axes: Strides) -> int:
    result = 1
    for size, _ in axes:
        result *= size
    return result
