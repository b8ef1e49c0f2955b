"""Batch prefetch: while one small product of many is computed, the next one's factors are fetched.

    ProductPlan --prefetched_factors--> which factors, how many lines of each
    BatchPrefetch: where a tile begins to ask for lines, one at every step of its depth

Tiles walk over rows of a matrix side by side, and a processor's own prefetcher ends at a page: each
matrix of a few KB that comes from memory would begin with waits. Measured on Zen 4, one thread, a
thousand products of f32[64,64]: 0.8 of the time without; those of [48,48] take the same. Matrices
that do not lie in the first-level cache gained nothing, where they are read as they lie ([100,100]:
1.1 times as long). Where columns are packed for each product, the next one's wait in the second
cache: [100,100] 0.87, columns along depth [64,64] 0.68 to 0.81, [80,80] 0.84, [128,128] 0.88;
[32,32], a page, 1.08.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.axes import extent
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.loops.nest_schedule import is_streamed


class FactorPrefetch(Struct, frozen=True):
    """One factor: bytes from a batch's matrix to the next one's, and the lines that one has."""

    side: str
    step_bytes: int
    lines: int


def prefetched_factors(plan: ProductPlan) -> tuple[FactorPrefetch, ...]:
    """The factors that come from memory a batch at a time, where each batch is a unit."""
    if plan.units != plan.contraction.batches or plan.depth_blocks > 1:
        return ()
    if 0 < plan.group < plan.rows.count:  # A panel is met again by the next group.
        return ()
    found = [factor for side in ("lhs", "rhs") if (factor := _ahead(plan, side)) is not None]
    machine, sizes = plan.ring.target.machine, [factor.step_bytes for factor in found]
    least, most = 0, machine.first_cache.bytes
    if plan.group:
        least, most = machine.cycles.page_bytes + 1, machine.second_cache.bytes // 4
    return tuple(found) if max(sizes, default=0) >= least and sum(sizes) <= most else ()


def _ahead(plan: ProductPlan, side: str) -> FactorPrefetch | None:
    c, machine = plan.contraction, plan.ring.target.machine
    batch = tuple(a for a in c.batch if getattr(a, side))
    if not batch or c.is_diagonal:
        return None
    item_bytes = getattr(c, side).dtype.item_bytes
    axes = (*(c.rows if side == "lhs" else c.columns), *c.depth)
    size_bytes = (1 + sum((a.size - 1) * abs(getattr(a, side)) for a in axes)) * item_bytes
    step_bytes = getattr(batch[-1], side) * item_bytes
    if size_bytes > step_bytes or getattr(plan, side) is Reading.PACKED:
        return None
    if not is_streamed(machine, extent(batch) * step_bytes):
        return None
    return FactorPrefetch(side, step_bytes, -(-size_bytes // machine.line_bytes))


class BatchPrefetch:
    """Where tiles ask for lines: a batch's tiles share them, in the order of the factors. panel: of
    columns, whose tiles are written.
    """

    panel: Value

    def __init__(self, w: Writer, plan: ProductPlan, factors: tuple[FactorPrefetch, ...]) -> None:
        self.w = w
        self.factors = factors
        self.tiles = plan.rows.count
        lines = sum(factor.lines for factor in self.factors)
        self.share = -(-lines // (plan.rows.count * plan.columns.count))
        self.line_bytes = plan.ring.target.machine.line_bytes
        self.next: dict[str, Value] = {}

    def place(self, side: str, base: Value) -> None:
        """A factor of the batch that is computed begins here."""
        for factor in self.factors:
            if factor.side == side:
                self.next[side] = self._moved(base, self.w.int(factor.step_bytes))

    def start(self, tile: Value) -> Value | None:
        """The first line that a tile asks for; a hint may lie behind an array."""
        if not self.factors:
            return None
        w, first = self.w, self.factors[0]
        at = times(w, add(w, times(w, self.panel, self.tiles), tile), self.share)
        start = self._moved(self.next[first.side], times(w, at, self.line_bytes))
        for factor in self.factors[1:]:
            own = w.binary("sub", at, w.int(first.lines))
            moved = self._moved(self.next[factor.side], times(w, own, self.line_bytes))
            is_first = w.compare("icmp ult", at, w.int(first.lines))
            start = w.select(is_first, start, moved)
        return start

    def _moved(self, address: Value, offset: Value) -> Value:
        return self.w.offset("getelementptr", address, offset, "i8")
