"""Kept: an element that the first stage that needs it computes and leaves in memory for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes import access
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.nest_schedule import Keep, NestSchedule
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir.instruction import Instruction


class Kept(ABC):
    """The memory of one element, and whether a stage has left its lanes there."""

    def __init__(self, row: Memory) -> None:
        self.row = row
        self.begin()

    def begin(self) -> None:
        """Nothing is left yet."""
        self.is_touched = False
        self.is_filled = False
        self.is_partial = False  # asked for under conditions before it was filled

    @abstractmethod
    def place(self, index: Index) -> Expr:
        """Where in the memory the lanes at an index lie."""

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]:
        """The lanes: read where a stage has left them, else computed and left there."""
        nest = elemental.nest
        positions = [self.place(index) for index in indices]
        if self.is_filled:
            return [access.load(nest, self.row, place, None) for place in positions]
        results = elemental.computed(instruction, indices, ())
        if elemental.guards:
            # Where these do not hold it may be anything.
            self.is_partial, self.is_touched = True, False
            return results
        # Not before: what it needs may be stages that end meanwhile.
        self.is_touched = not self.is_partial
        for place, lanes in zip(positions, results, strict=True):
            access.store(nest, self.row, place, elemental.splat(lanes, place.lanes))
        return results


class KeptRow(Kept):
    """What several stages of a row read: `inner` dimensions, and after it those of the rows side by
    side."""

    def __init__(self, row: Memory, keep: Keep) -> None:
        super().__init__(row)
        self.keep = keep
        self.rows: dict[Index, int] = {}  # the other dimensions' indices: which row it is

    def place(self, index: Index) -> Expr:
        inner, sizes = self.keep.inner, self.keep.sizes
        outer = tuple(e for d, e in enumerate(index) if d not in inner)
        row = self.rows.setdefault(outer, len(self.rows))
        return affine.linear([index[d] for d in inner], sizes) + row * prod(sizes)


class KeptBlock(Kept):
    """What one loop over a block leaves for the next; start: the block's first position."""

    def __init__(self, row: Memory, keep: Keep) -> None:
        super().__init__(row)
        self.dims = keep.value.shape.dims
        self.start: Expr | None = None

    def place(self, index: Index) -> Expr:
        assert self.start is not None, "the block is known"
        return affine.linear(index, self.dims) - self.start


class KeptStrip(Kept):
    """An element kept for a batch of columns: [reduced dimensions][width]."""

    def __init__(self, row: Memory, keep: Keep) -> None:
        super().__init__(row)
        self.keep = keep

    def place(self, index: Index) -> Expr:
        """Vectors of a batch differ by constants: these, and the lane, are the place in a row."""
        keep = self.keep
        (across,) = [e for e in index if e.lanes > 1]
        lane = Variable("0", 0, across.lanes - 1, 0, across.lanes, Value("0", "i64"))
        place = affine.linear([index[d] for d in keep.inner], keep.sizes)
        column = (across.constant - keep.shift) % keep.width
        return place * keep.width + Expr({lane: 1}, column)


def kept_of(elemental: Elemental, schedule: NestSchedule) -> dict[Instruction, Kept]:
    """Memory for all that a schedule keeps."""
    if schedule.inner:
        return _strips(elemental, schedule)
    kind = KeptBlock if schedule.stages else KeptRow
    found: dict[Instruction, Kept] = {}
    for keep in schedule.keeps:
        size_bytes = keep.size_bytes + keep.over * keep.dtype.item_bytes
        memory = Memory(thread_memory(elemental, size_bytes), keep.dtype, keep.size)
        found[keep.value] = kind(memory, keep)
    return found


def _strips(elemental: Elemental, schedule: NestSchedule) -> dict[Instruction, Kept]:
    """All in one piece of memory, where two may share a place."""
    if not schedule.keeps:
        return {}
    found: dict[Instruction, Kept] = {}
    base = thread_memory(elemental, schedule.kept_bytes)
    for keep in schedule.keeps:
        with elemental.nest.at(0):
            start = elemental.nest.w.address(base, elemental.nest.w.int(keep.offset), "i8")
        found[keep.value] = KeptStrip(Memory(start, keep.dtype, keep.size), keep)
    return found
