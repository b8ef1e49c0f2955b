"""Where Cholesky factors lie while they are made: U in scratch memory, a triangle's way in and out.

    memory  --load-->  U[i, j..]  --store-->  the factor, and the other triangle

A lower factor is the conjugate transpose of U: it is turned in squares of registers on the way in
and out. Which scalar of scratch memory an element is says the form (cholesky_form.py).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    element_address,
    loaded,
    narrowed,
    written,
)
from hlo.backend.kernels.linear_algebra.cholesky_form import FactorForm, GroupsForm
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.nest import Nest

Body = Callable[[Value, list[Value]], list[Value]]
# The parameters of a part of the work: scratch, the matrix, its result.
UPPER, SOURCE, TARGET = (Value(f"%{name}", "ptr") for name in ("upper", "source", "target"))
FAILED = Value("%failed", "i32")  # the number of the first pivot that failed, from 1, or 0


class FactorMemory:
    """A function on UPPER, SOURCE and TARGET."""

    def __init__(self, nest: Nest, form: FactorForm | GroupsForm) -> None:
        self.nest, self.w = nest, nest.w
        self.form, self.factor = form, form.factor
        self.numbers = Numbers(nest, form.factor.dtype)
        self.square = form.square

    def over(
        self, low: Value | int, high: Value | int, step: int, body: Callable[[Value], object]
    ) -> None:
        """body at low, low + step, ... below high."""

        def run(k: Value, _: list[Value]) -> list[Value]:
            body(k)
            return []

        w = self.w
        reach = high + step - 1 if isinstance(high, int) else add(w, high, w.int(step - 1))
        self.nest.loop(low, reach, step, [], run)

    def one(self, row: Value, column: Value) -> Parts:
        """A number of U."""
        return self.numbers.planes(UPPER, self.form.at(self.w, row, column), self.form.plane, 1)

    def get(self, row: Value, j: Value, v: int, lanes: int = 0) -> Parts:
        """The v-th vector of U's columns from j on."""
        n = self.numbers
        index = add(self.w, self.form.at(self.w, row, j), self.w.int(v * n.lanes))
        return n.planes(UPPER, index, self.form.plane, lanes or n.lanes)

    def set(self, row: Value, j: Value, v: int, number: Parts) -> None:
        """Store such a vector."""
        n = self.numbers
        index = add(self.w, self.form.at(self.w, row, j), self.w.int(v * n.lanes))
        n.set_planes(UPPER, index, self.form.plane, number)

    # -- in --------------------------------------------------------------------------------------

    def load(self, first: Value | int, last: Value | int, reach: int = 0) -> None:
        """Columns of U, of a lower factor, or rows; what lies below the diagonal does not matter.
        reach: so many rows of U from a multiple of it on are loaded together, and rows end with
        zeros at one; 0: as a square needs them."""
        if not self.factor.lower:

            def row(i: Value) -> None:
                self._load_row(i)
                if reach:
                    self._end_row(i, -(-self.factor.size // reach) * reach)

            self.over(first, last, 1, row)
            return
        step = reach or self.square

        def columns(i: Value) -> None:
            w = self.w
            end = add(w, w.binary("and", i, w.int(-step)), w.int(step))
            end = w.intrinsic("llvm.smin", "i64", end, w.int(self.factor.size))
            self.over(0, end, self.square, lambda j: self._load_square(i, j))

        self.over(first, last, self.square, columns)

    def _load_row(self, i: Value) -> None:
        """A row from the diagonal on; those that fill the last block repeat the last one."""
        w, lanes = self.w, self.numbers.lanes
        row, first = self._inside(i), w.binary("and", i, w.int(-lanes))
        size = self.factor.size
        self.over(first, size, lanes, lambda j: self.set(i, j, 0, self._read(row, j, lanes)))

    def _end_row(self, i: Value, end: int) -> None:
        """Zeros behind the last vector of a row: left-over subnormals would be slow."""
        n = self.numbers
        first = -(-self.factor.size // n.lanes) * n.lanes
        zero = n.ring.zero(self.w, n.lanes)
        self.over(first, end, n.lanes, lambda j: self.set(i, j, 0, zero))

    def _load_square(self, i: Value, j: Value) -> None:
        """U[j.., i..] = conj(a[i.., j..]) turned."""
        w, n = self.w, self.numbers
        rows = [self._read(self._inside(add(w, i, w.int(r))), j, self.square)
                for r in range(self.square)]  # fmt: skip
        for e, column in enumerate(n.turned(rows)):
            index = self.form.at(w, add(w, j, w.int(e)), i)
            n.set_planes(UPPER, index, self.form.plane, n.conjugate(column))

    def _inside(self, row: Value) -> Value:
        """A row of the matrix: the last one for those beyond."""
        return self.w.intrinsic("llvm.smin", "i64", row, self.w.int(self.factor.size - 1))

    # -- out -------------------------------------------------------------------------------------

    def store(self, first: Value | int, last: Value | int, failed: Value) -> None:
        """Rows of the factor, and of the other triangle. failed: not 0 where a pivot was no
        positive number."""
        w, n = self.w, self.numbers
        bad = w.compare("icmp ne", failed, w.int(0, "i32"))
        if not self.factor.lower:
            size = self.factor.size
            self.over(
                first, last, 1, lambda i: self.over(0, size, n.lanes, self._row_store(i, bad))
            )
            return

        def squares(i: Value) -> None:
            end = add(w, i, w.int(self.square))
            self.over(0, end, self.square, lambda j: self._store_square(i, j, bad))
            self._fill(i, end, bad)

        self.over(first, last, self.square, squares)

    def _row_store(self, i: Value, bad: Value) -> Callable[[Value], None]:
        def chunk(j: Value) -> None:
            lanes = self.numbers.lanes
            self._write(i, j, self.get(i, j, 0), (bad, self._side(i, j, lanes, "sge")))

        return chunk

    def _store_square(self, i: Value, j: Value, bad: Value) -> None:
        """L[i.., j..] = conj(U[j.., i..]) turned."""
        w, n, size = self.w, self.numbers, self.square
        rows = [self.get(add(w, j, w.int(e)), i, 0, size) for e in range(size)]
        for r, column in enumerate(n.turned(rows)):
            row = add(w, i, w.int(r))
            side = self._side(row, j, size, "sle")
            self._write(row, j, n.conjugate(column), (bad, side))

    def _fill(self, i: Value, beyond: Value, bad: Value) -> None:
        """What lies right of the diagonal square in its rows."""
        w, n = self.w, self.numbers
        nowhere = w.zero(f"<{self.square} x i1>")

        def row(r: Value, _: list[Value]) -> list[Value]:
            zero = n.ring.zero(w, self.square)
            state = bad, nowhere
            size = self.factor.size
            self.over(beyond, size, self.square, lambda j: self._write(r, j, zero, state))
            return []

        reach = w.intrinsic("llvm.smin", "i64", beyond, w.int(self.factor.size))
        self.nest.loop(i, reach, 1, [], row)

    def _side(self, row: Value, j: Value, lanes: int, order: str) -> Value:
        """Lanes of columns j.. that belong to the factor's triangle."""
        w = self.w
        return w.compare(f"icmp {order}", w.counting(j, lanes), w.splat(row, lanes))

    def _read(self, row: Value, j: Value, lanes: int) -> Parts:
        w, f, n = self.w, self.factor, self.numbers
        at = element_address(w, SOURCE, add(w, times(w, row, f.size), j), f.dtype)
        return loaded(w, n.ring, f.dtype, at, lanes, self._columns(j, lanes))

    def _columns(self, j: Value, lanes: int) -> Value | None:
        """Lanes of columns j.. that the matrix has; None: all, always."""
        size = self.factor.size
        return below(self.w, j, size, lanes) if size % lanes else None

    def _write(self, row: Value, j: Value, number: Parts, state: tuple[Value, Value]) -> None:
        """Columns j.. of a row of the result; state: failed, lanes that are the factor's."""
        w, f, n = self.w, self.factor, self.numbers
        bad, side = state
        lanes = side.lanes
        mask = self._columns(j, lanes)
        if f.size % self.square:
            inside = w.splat(w.compare("icmp slt", row, w.int(f.size)), lanes)
            mask = inside if mask is None else w.binary("and", mask, inside)
        zero = n.ring.zero(w, lanes)
        other = self._read(self._inside(row), j, lanes) if f.reports else zero
        number = tuple(w.select(side, x, o) for x, o in zip(number, other, strict=True))
        if not f.reports:
            nan = (w.float(float("nan"), number[0].type), w.zero(number[0].type))
            failed = w.splat(bad, lanes)
            number = tuple(w.select(failed, a, b) for a, b in zip(nan, number, strict=False))
        form = narrowed(w, n.ring, f.dtype, number)
        at = element_address(w, TARGET, add(w, times(w, row, f.size), j), f.dtype)
        written(w, f.dtype, form, at, mask)
