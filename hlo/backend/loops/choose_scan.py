"""Scans: how a reduce-window that is as long as its dimension is computed.

    reduce-window, lanes --choose_scan--> ScanSchedule      out_i = f(.. f(f(z, x_0), x_1) .., x_i)

An array's elements have three extents: before the dimension that is scanned, along it, after it.
A scan along rows of memory takes vectors of a row; else lanes run over the elements after the
dimension, or before it where those are few, each with a scan of its own. Such a step waits for the
last one and goes to another row of memory, so a unit takes several scans side by side. Does not
know: instructions, how code is written.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.reducers import Reducer, reducer_of, scanned_dimension
from hlo.backend.loops.schedule import (
    Axis,
    Direction,
    Fill,
    Loop,
    LoopNest,
    LoopSchedule,
    Node,
    Role,
    Store,
    Tail,
    axis_name,
)
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction

_BEFORE, _ALONG, _AFTER = range(3)  # the loops of the axes

_SUM_BLOCK = 64  # Elements that one partial sum takes before it is added to the total.
# Scans of a unit, side by side: 1.2 to 3 times as fast as one by one. Eight of narrow arrays are
# slower.
_SIDE_BY_SIDE = 4
# From so many scans on they are side by side; fewer are better split over threads one by one.
_MANY = 32

_VECTORS = 4  # Vectors of a row that make one block.
# The same of a sum along rows of more than _LONG elements, which would else be carried too often.
_LONG_VECTORS = 8
_LONG = 4096
_SHORT = 1024  # Rows up to this length have so few blocks that one number will do as their base.
# Moving bytes within a vector takes four instructions, and LLVM hundreds of steps to find them: so
# many vectors make a block where vectors have more lanes than this.
_BYTES_VECTORS, _MOST_LANES = 2, 32


class ScanSchedule(Struct, frozen=True):
    """The axes of a scan: the parallel ones, the outermost first, then the one that is scanned.

    Their loops are 0, 1, 2 for the elements before, along and after the dimension. Lanes along the
    last axis are neighbours that one scan takes together; the only parallel axis then counts scans.
    Else there are two parallel axes, and lanes run over the inner one.
    side_by_side: scans of a unit, over both parallel axes as one. carried: numbers in which the
    value at a block's end is handed to the next block: 1, or 2 for a float sum and its excess
    (kernels/carried_sums.py).
    """

    instruction: Instruction
    axes: tuple[Axis, ...]
    side_by_side: int = 1
    carried: int = 1

    @property
    def parallel(self) -> tuple[Axis, ...]:
        return self.axes[:-1]

    @property
    def along(self) -> Axis:
        """The axis that is scanned."""
        return self.axes[-1]

    @property
    def extents(self) -> tuple[int, int, int]:
        """Elements before the dimension, along it and after it."""
        found = {axis.loop: axis.extent for axis in self.axes}
        return found.get(_BEFORE, 1), found[_ALONG], found.get(_AFTER, 1)

    @property
    def lines(self) -> Axis:
        """The parallel axes as one: a line is a scan. Past the end the last one is made again,
        which stores the same bits.
        """
        count = prod(axis.rounds for axis in self.parallel)
        tail = Tail.OVERLAPPING if count % self.side_by_side else Tail.NONE
        return Axis("scans", count, Role.PARALLEL, self.side_by_side, tail=tail)

    @property
    def units(self) -> int:
        return self.lines.rounds

    def index(self, before: Expr, along: Expr, after: Expr) -> Index:
        """The array's index of an element."""
        return affine.reshaped((before, along, after), self.extents, self.instruction.shape.dims)

    def loops(self, leaf: int) -> LoopSchedule:
        """Its loops, as they are shown. leaf: the result's entry in the kernel's table."""
        value, dims = self.instruction.name, self.instruction.shape.dims
        line = f"{reducer_of(self.instruction).name} of the one before and p0"
        many, lanes = self.side_by_side, self.parallel[-1].lanes
        if many > 1:  # The axis that has their lanes is not shown.
            line += f", in each of {lanes} lanes" * (lanes > 1) + f", {many} side by side"
        at = tuple(axis_name(k) for k, n in enumerate(self.extents) if n > 1)
        body: tuple[Node, ...] = (Fill(value, line), Store("result", leaf, at, value))
        body = (Loop(self.along, body),)
        shown = self.parallel if many == 1 else (self.lines,)
        for axis in reversed([a for a in shown if a.extent > 1]):
            body = (Loop(axis, body),)
        nest = LoopNest((0,) * len(dims), dims, self.units, 0, self.units, body)
        return LoopSchedule(self.units, 0, (nest,))


def choose_scan(instruction: Instruction, lanes: int) -> ScanSchedule | None:
    """How a cumulative reduce-window of one array runs; None for all else. lanes: of a full vector
    of the kernel.
    """
    scanned = scanned_dimension(instruction)
    if scanned is None:
        return None
    dimension, is_reverse = scanned
    direction = Direction.REVERSE if is_reverse else Direction.FORWARD
    dims = instruction.shape.dims
    extents = (prod(dims[:dimension]), dims[dimension], prod(dims[dimension + 1 :]))
    along = Axis(axis_name(_ALONG), extents[_ALONG], Role.SCANNED, direction=direction, loop=_ALONG)
    if _fills_lanes(instruction, extents, lanes):
        return _in_lanes(instruction, extents, along, lanes)
    return _over_lanes(instruction, extents, along, lanes)


def _carried(instruction: Instruction, reducer: Reducer) -> int:
    """How many numbers hold the base to which many blocks are added: additions of floats round."""
    return 2 if reducer.opcodes == ("add",) and instruction.shape.dtype.component.is_float else 1


# -- along rows of memory --------------------------------------------------------------------


def _fills_lanes(instruction: Instruction, extents: tuple[int, int, int], lanes: int) -> bool:
    """Whether the scan runs along rows that fill half a vector, and elements may be grouped."""
    _, length, after = extents
    component = instruction.shape.dtype.component
    # Lanes of i1 and i4 do not shuffle well.
    has_lanes = component.bits >= 8 and not component.is_pred
    is_free = reducer_of(instruction).is_cheap
    return after == 1 and is_free and has_lanes and 2 * length >= lanes > 1


def _in_lanes(
    instruction: Instruction, extents: tuple[int, int, int], along: Axis, lanes: int
) -> ScanSchedule:
    """A unit is a row, of which a block of vectors is scanned at a time."""
    before, length, _ = extents
    reducer = reducer_of(instruction)
    wanted = _LONG_VECTORS if reducer.sums and length > _LONG else _VECTORS
    if lanes > _MOST_LANES:
        wanted = _BYTES_VECTORS
    step = min(wanted, -(-length // lanes)) * lanes
    tail = Tail.MASKED if length % lanes else Tail.SHORT if length % step else Tail.NONE
    rows = Axis(axis_name(_BEFORE), before, Role.PARALLEL, loop=_BEFORE)
    carried = _carried(instruction, reducer) if length > _SHORT else 1
    along = replace(along, step=step, lanes=lanes, tail=tail)
    return ScanSchedule(instruction, (rows, along), carried=carried)


# -- a scan in each lane ---------------------------------------------------------------------


def _over_lanes(
    instruction: Instruction, extents: tuple[int, int, int], along: Axis, lanes: int
) -> ScanSchedule:
    """Lanes over the elements after the dimension, or before it where those are few. Long sums of
    floats are made in blocks, for accuracy.
    """
    before, length, after = extents
    reducer = reducer_of(instruction)
    inner = _AFTER if after >= lanes or after >= before else _BEFORE
    outer = _AFTER + _BEFORE - inner
    around = Axis(axis_name(outer), extents[outer], Role.PARALLEL, loop=outer)
    across = _lanes_over(inner, extents[inner], lanes)
    is_float = instruction.shape.dtype.component.is_float
    is_long = reducer.sums and is_float and length > _SUM_BLOCK
    along = replace(along, blocks=(_SUM_BLOCK,) if is_long else ())
    lines = around.rounds * across.rounds
    return ScanSchedule(
        instruction,
        (around, across, along),
        side_by_side=_SIDE_BY_SIDE if reducer.is_cheap and lines >= _MANY else 1,
        carried=_carried(instruction, reducer) if is_long else 1,
    )


def _lanes_over(loop: int, extent: int, lanes: int) -> Axis:
    """The axis that has a scan in each lane. The last ones are made again where that fills their
    vector; lanes past the end of less than a vector are masked.
    """
    lanes = lanes if extent > 1 else 1
    more = Tail.OVERLAPPING if extent > lanes else Tail.PREDICATED
    tail = more if extent % lanes else Tail.NONE
    return Axis(axis_name(loop), extent, Role.PARALLEL, lanes, lanes, tail, loop=loop)
