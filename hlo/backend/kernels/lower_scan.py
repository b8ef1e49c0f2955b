"""Lower a scan: one walk of its schedule that writes its code and decides nothing.

    ScanSchedule --lower_scan--> a loop over units, in it one along the dimension (two for blocks)

    acc = f(acc, x_i);  out_i = acc, in blocks f(base, acc), base being what precedes the block

Here every lane has a scan of its own; scans along lanes are lower_scan_row.py's.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters import reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.carried_sums import carried_of
from hlo.backend.kernels.lower_scan_row import RowScan
from hlo.backend.kernels.stored import store
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.loops.choose_scan import ScanSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import Axis, Direction, Tail
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index

LineIndex = tuple[Expr, Expr]  # A scan's positions before and after the dimension.


def lower_scan(elemental: Elemental, schedule: ScanSchedule, output: Output) -> None:
    """The code for units [%begin, %end)."""
    nest = elemental.nest

    def unit(counter: Value, _: list[Value]) -> list[Value]:
        position = nest.variable(counter, 0, schedule.units - 1)
        if schedule.along.lanes > 1:
            RowScan(elemental, schedule, output).emit(position)
        else:
            _Lowering(elemental, schedule, output).emit(position)
        return []

    nest.loop(BEGIN, END, 1, [], unit)


class _Lowering:
    """One unit being written: lines side by side, each in lanes of its own."""

    def __init__(self, elemental: Elemental, schedule: ScanSchedule, output: Output) -> None:
        self.elemental = elemental
        self.schedule = schedule
        self.output = output
        self.reducer = reducer_of(schedule.instruction)

    def emit(self, unit: Expr) -> None:
        """A unit's scans, side by side."""
        elemental, nest, along = self.elemental, self.elemental.nest, self.schedule.along
        lines = self._lines(unit)
        lanes, count = self.schedule.parallel[-1].lanes, len(lines)
        (init,) = elemental.lanes_at(self.schedule.instruction.operands[1], [()])
        start = elemental.splat(init, lanes)
        if along.blocks:
            self._in_blocks(lines, start, lanes)
            return
        nest.loop(
            0, along.extent, 1, list(parts(start)) * count,
            lambda i, acc: self._steps(lines, i, _apart(acc, count), [None] * count),
        )  # fmt: skip

    # -- where the scans are ---------------------------------------------------------------------

    def _lines(self, unit: Expr) -> list[LineIndex]:
        """Those of a unit's scans; past the end the last one is made again."""
        nest, lines = self.elemental.nest, self.schedule.lines
        if lines.step == 1:
            return [self._line(unit)]
        found, last = [], lines.extent - 1
        for n in range(lines.step):
            number = nest.scalar(unit * lines.step + n)
            if lines.tail is Tail.OVERLAPPING:
                number = nest.w.intrinsic("llvm.smin", "i64", number, nest.w.int(last))
            found.append(self._line(nest.variable(number, 0, last)))
        return found

    def _line(self, line: Expr) -> LineIndex:
        around, across = self.schedule.parallel
        other, block = affine.delinearized(line, (around.rounds, across.rounds))
        at = {around.loop: other, across.loop: self._lane(across, block)}
        return at[0], at[2]

    def _lane(self, across: Axis, block: Expr) -> Expr:
        """The positions of a block's lanes, where they pass the end masked or the last ones."""
        nest, w, lanes = self.elemental.nest, self.elemental.nest.w, across.lanes
        if across.extent == 1:
            return affine.ZERO
        start = nest.scalar(block * lanes)
        mask = None
        if across.tail is Tail.OVERLAPPING:
            start = w.intrinsic("llvm.smin", "i64", start, w.int(across.extent - lanes))
        if across.tail is Tail.PREDICATED:
            left = w.splat(w.binary("sub", w.int(across.extent), start), lanes)
            mask = w.compare("icmp slt", counted("i64", lanes), left)
        return nest.variable(start, 0, across.extent - 1, lanes, mask)

    # -- along the dimension ---------------------------------------------------------------------

    def _in_blocks(self, lines: list[LineIndex], start: Lanes, lanes: int) -> None:
        """Each block from the identity, and what precedes it carried from one to the next."""
        elemental, nest, count = self.elemental, self.elemental.nest, len(lines)
        length, (size,) = self.schedule.along.extent, self.schedule.along.blocks
        kinds = [self.schedule.instruction.shape.dtype]
        zero = elemental.splat(reducers.identities(nest.w, self.reducer, kinds)[0], lanes)

        begin = carried_of(nest.w, start, self.schedule.carried)

        def block(first: Value, values: list[Value]) -> list[Value]:
            end = nest.w.binary("add", first, nest.w.int(size))
            end = nest.w.intrinsic("llvm.smin", "i64", end, nest.w.int(length))
            own = len(values) // count
            before = [begin.of(values[n : n + own]) for n in range(0, len(values), own)]
            totals = [carried.total(nest.w) for carried in before]
            partial = nest.loop(
                first, end, 1, list(parts(zero)) * count,
                lambda i, acc: self._steps(lines, i, _apart(acc, count), totals),
            )  # fmt: skip
            both = zip(before, _apart(partial, count), strict=True)
            after = [carried.followed(nest.w, x, self._apply) for carried, x in both]
            return [value for carried in after for value in carried.values]

        nest.loop(0, -(-length // size) * size, size, begin.values * count, block)

    def _steps(
        self,
        lines: list[LineIndex],
        counter: Value,
        accs: list[Lanes],
        bases: Sequence[Lanes | None],
    ) -> list[Value]:
        """One step of each scan."""
        axis = self.schedule.along
        along = self.elemental.nest.variable(counter, 0, axis.extent - 1)
        if axis.direction is Direction.REVERSE:
            along = along * -1 + (axis.extent - 1)
        found: list[Value] = []
        for (before, after), acc, base in zip(lines, accs, bases, strict=True):
            found += parts(self._step(self.schedule.index(before, along, after), acc, base))
        return found

    def _step(self, index: Index, acc: Lanes, base: Lanes | None) -> Lanes:
        elemental = self.elemental
        (x,) = elemental.lanes_at(self.schedule.instruction.operands[0], [index])
        new = self._apply(acc, elemental.splat(x, types.width(acc)))
        result = new if base is None else self._apply(base, new)
        if not self.reducer.selects:
            w, dtype = elemental.nest.w, self.schedule.instruction.shape.dtype
            result = types.rounded(w, elemental.nest.target, result, dtype)
        store(elemental, self.output, index, result)
        return new

    def _apply(self, a: Lanes, x: Lanes) -> Lanes:
        """Sums of narrow floats stay wide: results alone are rounded, once each."""
        return reducers.apply(self.elemental.nest, self.reducer, [a], [x], rounds=False)[0]


def _apart(values: list[Value], count: int) -> list[Lanes]:
    """The values of `count` scans side by side, each one's own."""
    each = len(values) // count
    return [joined(values[n : n + each]) for n in range(0, len(values), each)]
