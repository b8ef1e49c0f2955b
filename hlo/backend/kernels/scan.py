"""Cumulative reduce-windows: a running fold along one dimension, linear in its length.

out[.., i, ..] = f(.. f(f(z, x_0), x_1) .., x_i): a window as long as the dimension, padded before
(or after it: the fold runs from the end, for reducers whose order is free). Along rows of memory
lanes are neighbours (window_row.py); else they run over the dimensions after the folded one, or
before it where those are few, and sums run in blocks, for accuracy (carried_sums.py). A step waits
for the last one and goes to another row of memory, so a unit takes several folds side by side.
Other windows are left to the staged kernels (None).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.reducers import Reducer, reducer_of
from hlo.attributes.window import Window
from hlo.backend.emitters import reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.carried_sums import carried_of
from hlo.backend.kernels.fused_loops import enter_operands, function_of, lanes_of
from hlo.backend.kernels.scan_row import RowFold, suits
from hlo.backend.kernels.stored import enter_outputs, store
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.outputs import Output, outputs_of
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

_BLOCK = 64  # elements that one partial sum takes before it is added to the total
_SIDE_BY_SIDE = 4  # folds of a unit: 1.2 to 3 times as fast as one by one; 8 slow narrow arrays
_MANY = 32  # folds from which they are: fewer are better split over threads one by one


class Running(Struct, frozen=True):
    """The dimension that is folded along, and from which end."""

    dimension: int
    is_reverse: bool


def scan_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a cumulative reduce-window of one array, None for all other windows."""
    running = _running(instruction)
    if running is None:
        return None
    w = Writer()
    elemental = Elemental(Nest(w, target), lanes_of(instruction, target))
    count = enter_operands(elemental.expression, instruction)
    (output,) = outputs_of(elemental.expression, instruction, count)
    elemental.enter_leaves()
    enter_outputs(elemental, [output])
    scan = _Scan(elemental, instruction, output, running)
    record = elemental.nest.begin_record() if target.schedules is not None else None
    scan.emit()
    function = function_of(w)
    if target.schedules is not None:
        target.schedules.enter(function.text, scan.schedule(), record)
    size_bytes = 2 * instruction.shape.size_bytes
    return Kernel(
        function,
        scan.units,
        tuple(w.declarations.values()),
        tuple(w.globals.values()),
        bytes_moved=size_bytes,
        flops=4 * instruction.shape.size,
    )


def _running(instruction: Instruction) -> Running | None:
    window = instruction.get("window")
    x = instruction.operands[0].shape
    if instruction.opcode != "reduce-window" or not isinstance(window, Window):
        return None
    if not instruction.shape.is_array or instruction.shape.dims != x.dims or 0 in x.dims:
        return None
    if any(d.stride != 1 or d.base_dilation != 1 or d.window_dilation != 1 for d in window.dims):
        return None
    long = [k for k, d in enumerate(window.dims) if d.size > 1]
    if len(long) != 1 or window.dims[long[0]].size < x.dims[long[0]]:
        return None
    k = long[0]
    d = window.dims[k]
    known = reducer_of(instruction)
    if (d.pad_low, d.pad_high) == (d.size - 1, 0):
        return Running(k, is_reverse=False)
    if (d.pad_low, d.pad_high) == (0, d.size - 1) and known.reassociates:
        return Running(k, is_reverse=True)
    return None


class _Scan:
    """The loops: units of lanes, blocks along the dimension, steps."""

    def __init__(
        self, elemental: Elemental, instruction: Instruction, output: Output, running: Running
    ) -> None:
        self.elemental = elemental
        self.instruction = instruction
        self.output = output
        self.running = running
        self.reducer: Reducer = reducer_of(instruction)
        dims = instruction.shape.dims
        k = running.dimension
        self.extents = (prod(dims[:k]), dims[k], prod(dims[k + 1 :]))
        before, length, after = self.extents
        self.in_rows = after == 1 and suits(elemental, instruction, self.reducer, length)
        self.lanes_after = self.in_rows or after >= elemental.lanes or after >= before
        self.lane_extent = after if self.lanes_after else before
        self.blocks = -(-self.lane_extent // elemental.lanes)
        self.folds = (before if self.lanes_after else after) * self.blocks
        is_apart = self.in_rows or not self.reducer.is_cheap or self.folds < _MANY
        self.together = 1 if is_apart else _SIDE_BY_SIDE
        self.units = -(-self.folds // self.together)

    def emit(self) -> None:
        nest = self.elemental.nest
        begin, end = Value("%begin", "i64"), Value("%end", "i64")

        def unit(counter: Value, _: list[Value]) -> list[Value]:
            position = nest.variable(counter, 0, self.units - 1)
            if self.in_rows:
                self._folded_row(position)
            else:
                self._rows([self._place(position, n) for n in range(self.together)])
            return []

        nest.loop(begin, end, 1, [], unit)

    def _place(self, unit: Expr, n: int) -> tuple[Expr, Expr]:
        """A unit's n-th fold: its positions before and after the dimension."""
        position = unit
        if self.together > 1:  # past the end: the last fold again, the same bits
            nest, last = self.elemental.nest, self.folds - 1
            number = nest.scalar(unit * self.together + n)
            if self.folds % self.together:
                number = nest.w.intrinsic("llvm.smin", "i64", number, nest.w.int(last))
            position = nest.variable(number, 0, last)
        other, lane = position // self.blocks, self._lane(position % self.blocks)
        return (other, lane) if self.lanes_after else (lane, other)

    def _folded_row(self, row: Expr) -> None:
        """One fold along a row that is contiguous in memory."""
        dims = self.instruction.shape.dims
        self._row_fold.emit(
            self.extents[1],
            lambda along: affine.reshaped((row, along, affine.ZERO), self.extents, dims),
        )

    @property
    def _row_fold(self) -> RowFold:
        return RowFold(
            self.elemental,
            self.instruction,
            self.output,
            self.reducer,
            is_reverse=self.running.is_reverse,
        )

    def schedule(self) -> LoopSchedule:
        """Its loops."""
        before, length, after = self.extents
        reverse = self.running.is_reverse
        if self.in_rows:
            along = self._row_fold.axis(length)
        else:
            sums = self.reducer.sums and length > _BLOCK
            way = Direction.REVERSE if reverse else Direction.FORWARD
            along = Axis(axis_name(1), length, Role.SCANNED, direction=way, blocks=(_BLOCK,) * sums)
        fold = f"{self.reducer.name} of the one before and p0"
        many = f", {self.together} side by side" if self.together > 1 else ""
        value = self.instruction.name
        at = tuple(axis_name(k) for k, n in enumerate(self.extents) if n > 1)
        body: tuple[Node, ...] = (
            Fill(value, fold + many),
            Store("result", self.output.array.number, at, value),
        )
        body = (Loop(along, body),)
        tail = Tail.OVERLAPPING if self.folds % self.together else Tail.NONE
        axes = [Axis("folds", self.folds, Role.PARALLEL, self.together, tail=tail)]
        if self.together == 1:
            lanes = self.elemental.lanes if self.lane_extent > 1 else 1
            masked = Tail.MASKED if self.lane_extent % lanes else Tail.NONE
            place = 2 if self.lanes_after else 0
            across = Axis(axis_name(place), self.lane_extent, Role.PARALLEL, lanes, lanes, masked)
            other = before if self.lanes_after else after
            axes = [Axis(axis_name(2 - place), other, Role.PARALLEL), across]
        for axis in reversed([a for a in axes if a.extent > 1]):
            body = (Loop(axis, body),)
        dims = self.instruction.shape.dims
        nest = LoopNest((0,) * len(dims), dims, self.units, 0, self.units, body)
        return LoopSchedule(self.units, 0, (nest,))

    def _lane(self, block: Expr) -> Expr:
        """The positions of a block's lanes, masked where they pass the end."""
        nest, w, lanes = self.elemental.nest, self.elemental.nest.w, self.elemental.lanes
        if self.lane_extent == 1:
            return affine.ZERO
        start = nest.scalar(block * lanes)
        mask = None
        if self.lane_extent % lanes:
            left = w.binary("sub", w.int(self.lane_extent), start)
            type = vector_of("i64", lanes)
            counting = ", ".join(f"i64 {lane}" for lane in range(lanes))
            wide = w.splat(left, lanes)
            mask = w.compare("icmp slt", Value(f"<{counting}>", type), wide)
        return nest.variable(start, 0, self.lane_extent - 1, lanes, mask)

    def _rows(self, places: list[tuple[Expr, Expr]]) -> None:
        """Folds along the dimension, side by side."""
        elemental, nest = self.elemental, self.elemental.nest
        lanes = max(expr.lanes for expr in places[0])
        (init,) = elemental.lanes_at(self.instruction.operands[1], [()])
        start = elemental.splat(init, lanes)
        length, count = self.extents[1], len(places)
        if not self.reducer.sums or length <= _BLOCK:
            nest.loop(
                0, length, 1, list(parts(start)) * count,
                lambda i, acc: self._steps(places, i, _apart(acc, count), [None] * count),
            )  # fmt: skip
            return
        kinds = [self.instruction.shape.dtype]
        zero = elemental.splat(reducers.identities(nest.w, self.reducer, kinds)[0], lanes)

        begin = carried_of(nest.w, self.reducer, start)

        def block(first: Value, values: list[Value]) -> list[Value]:
            end = nest.w.binary("add", first, nest.w.int(_BLOCK))
            end = nest.w.intrinsic("llvm.smin", "i64", end, nest.w.int(length))
            size = len(values) // count
            before = [begin.of(values[n : n + size]) for n in range(0, len(values), size)]
            totals = [carried.total(nest.w) for carried in before]
            partial = nest.loop(
                first, end, 1, list(parts(zero)) * count,
                lambda i, acc: self._steps(places, i, _apart(acc, count), totals),
            )  # fmt: skip
            both = zip(before, _apart(partial, count), strict=True)
            after = [carried.followed(nest.w, own, self._apply) for carried, own in both]
            return [value for carried in after for value in carried.values]

        nest.loop(0, -(-length // _BLOCK) * _BLOCK, _BLOCK, begin.values * count, block)

    def _steps(
        self,
        places: list[tuple[Expr, Expr]],
        counter: Value,
        accs: list[Lanes],
        bases: Sequence[Lanes | None],
    ) -> list[Value]:
        """acc = f(acc, x_i); out_i = acc (after f(base, acc) where sums run in blocks)."""
        length = self.extents[1]
        i = self.elemental.nest.variable(counter, 0, length - 1)
        along = i * -1 + (length - 1) if self.running.is_reverse else i
        dims = self.instruction.shape.dims
        found: list[Value] = []
        for (before, after), acc, base in zip(places, accs, bases, strict=True):
            index = affine.reshaped((before, along, after), self.extents, dims)
            found += parts(self._step(index, acc, base))
        return found

    def _step(self, index: Index, acc: Lanes, base: Lanes | None) -> Lanes:
        elemental = self.elemental
        (x,) = elemental.lanes_at(self.instruction.operands[0], [index])
        new = self._apply(acc, elemental.splat(x, types.width(acc)))
        result = new if base is None else self._apply(base, new)
        store(elemental, self.output, index, result)
        return new

    def _apply(self, a: Lanes, x: Lanes) -> Lanes:
        return reducers.apply(self.elemental.nest, self.reducer, [a], [x])[0]


def _apart(values: list[Value], count: int) -> list[Lanes]:
    """The values of `count` folds side by side, each fold's own."""
    each = len(values) // count
    return [joined(values[n : n + each]) for n in range(0, len(values), each)]
