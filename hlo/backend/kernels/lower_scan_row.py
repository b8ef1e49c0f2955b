"""Lower a scan along rows of memory: vectors of neighbours, scanned inside the register.

    s = f(s moved by 1, s), by 2, by 4, ..: lane i holds f(x_0 .. x_i);  out = f(base, f(before, s))

The vectors of a block do not wait for each other: `before` is what precedes a vector in its
block, and `base`, what precedes the block, is all that is carried from one to the next. A sum's
base is carried in twice the digits along long rows (carried_sums.py), so its error grows with the
logarithm of a vector's elements and with the vectors of a block, not with the row. What is long,
and how many vectors a block has, the schedule says (loops/choose_scan.py).
From the end (reverse) the same is mirrored: a vector lies as in memory, shuffles and order turn
round.
"""

from __future__ import annotations

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters import reducers
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.carried_sums import Carried, carried_of
from hlo.backend.kernels.stored import store
from hlo.backend.lanes import access, types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.backend.lanes.vector_loops import fixed
from hlo.backend.loops.choose_scan import ScanSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import Direction
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index


class RowScan:
    """Writes the scan of one row, the schedule's lanes being along it."""

    def __init__(self, elemental: Elemental, schedule: ScanSchedule, output: Output) -> None:
        self.elemental = elemental
        self.schedule = schedule
        self.output = output
        self.instruction = schedule.instruction
        self.reducer = reducer_of(schedule.instruction)
        self.lanes = schedule.along.lanes
        self.is_reverse = schedule.along.direction is Direction.REVERSE
        w, dtype = elemental.nest.w, schedule.instruction.shape.dtype
        identity = reducers.identities(w, self.reducer, [dtype])[0]
        self.identity = elemental.splat(identity, self.lanes)

    def emit(self, row: Expr) -> None:
        """Whole blocks in a loop, then the rest, masked."""
        elemental, nest = self.elemental, self.elemental.nest
        lanes, length, step = self.lanes, self.schedule.along.extent, self.schedule.along.step
        (init,) = elemental.lanes_at(self.instruction.operands[1], [()])
        first = elemental.splat(init, lanes)
        carried = carried_of(nest.w, first, self.schedule.carried)
        whole = length // step * step

        def place(along: Expr) -> Index:
            return self.schedule.index(row, along, affine.ZERO)

        def block(counter: Value, values: list[Value]) -> list[Value]:
            start = counter
            if self.is_reverse:
                start = nest.w.binary("sub", nest.w.int(length - step), counter)
            first = nest.variable(start, 0, length - 1, lanes)
            indices = [place(first + k) for k in range(0, step, lanes)]
            return self._block(self._ordered(indices), carried.of(values)).values

        values = nest.loop(0, whole, step, carried.values, block)
        if whole < length:
            self._block([place(e) for e in self._rest(whole, length)], carried.of(values))

    def _ordered(self, indices: list[Index]) -> list[Index]:
        return indices[::-1] if self.is_reverse else indices

    def _rest(self, whole: int, length: int) -> list[Expr]:
        """The vectors after `whole` elements, in the scan's order; the last one may be cut."""
        nest, lanes = self.elemental.nest, self.lanes
        if not self.is_reverse:
            return [fixed(nest, n, lanes, length) for n in range(whole, length, lanes)]
        left = length - whole
        found = [fixed(nest, n - lanes, lanes, n) for n in range(left, lanes - 1, -lanes)]
        return found + ([fixed(nest, 0, lanes, left % lanes)] if left % lanes else [])

    def _block(self, indices: list[Index], carried: Carried) -> Carried:
        """The results of a block's vectors are stored; returns the base of the next block."""
        elemental, nest = self.elemental, self.elemental.nest
        base = carried.total(nest.w)
        found = elemental.lanes_at(self.instruction.operands[0], indices)
        before: Lanes | None = None
        for index, x in zip(indices, found, strict=True):
            s = self._within(self._masked(x, index))
            total = self._whole(s)
            local = s if before is None else self._apply(before, s)
            before = total if before is None else self._apply(before, total)
            result = self._apply(base, local)
            if not self.reducer.selects:
                result = types.rounded(nest.w, nest.target, result, self.instruction.shape.dtype)
            store(elemental, self.output, index, result)
        assert before is not None, "a block has a vector"
        return carried.followed(nest.w, before, self._apply)

    def _masked(self, x: Lanes, index: Index) -> Lanes:
        """Lanes past the row's end take no part."""
        w = self.elemental.nest.w
        x = self.elemental.splat(x, self.lanes)
        mask = next((m for m in map(access.mask_of, index) if m is not None), None)
        if mask is None:
            return x
        pairs = zip(parts(x), parts(self.identity), strict=True)
        return joined([w.select(mask, a, b) for a, b in pairs])

    def _within(self, x: Lanes) -> Lanes:
        """Lane i reduced with all lanes that come before it."""
        step = 1
        while step < self.lanes:
            pairs = zip(parts(x), parts(self.identity), strict=True)
            moved = joined([self._moved(a, b, step) for a, b in pairs])
            x = self._apply(moved, x)
            step *= 2
        return x

    def _moved(self, x: Value, fill: Value, step: int) -> Value:
        """Each lane from the one `step` before it; the first ones from `fill`."""
        lanes = x.lanes
        way = step if self.is_reverse else -step
        order = [n + way if 0 <= n + way < lanes else lanes + n for n in range(lanes)]
        return self._shuffled(x, fill, order)

    def _whole(self, s: Lanes) -> Lanes:
        """The reduction of a whole vector in every lane."""
        lanes = self.lanes
        last = 0 if self.is_reverse else lanes - 1
        return joined([self._shuffled(v, v, [last] * lanes) for v in parts(s)])

    def _shuffled(self, a: Value, b: Value, order: list[int]) -> Value:
        return self.elemental.nest.w.shuffle(a, b, order)

    def _apply(self, a: Lanes, x: Lanes) -> Lanes:
        return reducers.apply(self.elemental.nest, self.reducer, [a], [x], rounds=False)[0]
