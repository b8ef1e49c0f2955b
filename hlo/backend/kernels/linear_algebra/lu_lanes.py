"""LU factors of many small matrices, a matrix a lane: P a = L U, as LAPACK's getrf gives them.

    for k:  p = the first row from k on with the largest |a[p, k]|;  rows k and p change places
            L[i, k] = a[i, k] / a[k, k];  a[i, j] -= L[i, k] a[k, j]  for i, j > k

p differs from lane to lane: row p is gathered, and what was row k is chosen where a lane's p is. A
column without a pivot is left as it is, and its number (from 1) reported.
Source: right-looking Gaussian elimination with partial pivoting (Golub, Van Loan 3.4).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.matrix_lanes import (
    LanesInScratch,
    MatrixLanes,
    matrix_lanes,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.loops.schedule import Plan
from hlo.ir.shape import Shape

AT_ONCE = 4  # Elements of a row in a round of a loop, whose counting is as long as one of them.


def lu_lanes_kernel(a: Shape, target: Target) -> Kernel | None:
    """The kernel of getrf on an array of small matrices: buffers a, factors, pivots, failures,
    scratch. None where they are few or large."""
    *batch, rows, columns = a.dims
    form = matrix_lanes(a.dtype, (prod(batch), rows, columns), target.machine)
    if form is None:
        return None
    build = _Build(Nest(Writer(), target), form)
    build.write()
    w, least = build.w, min(form.rows, form.columns)
    w.ret()
    made = Kernel(
        w.function(has_entry=True),
        form.units,
        *w.beside,
        scratch_bytes=form.bytes + (least + 1 + form.columns) * form.vector_bytes,
        in_place=frozenset({(0, 0)}),
        bytes_moved=2 * a.size_bytes,
        flops=form.batch * form.size * least,
    )
    text = f"LU: {form.rows} x {form.columns}, batch of {form.batch}, {form.lanes} at once"
    return target.shown(made, lambda: Plan((text,)))


class _Build:
    """The kernel's text."""

    def __init__(self, nest: Nest, form: MatrixLanes) -> None:
        self.nest, self.w, self.form = nest, nest.w, form
        self.item_bytes = form.dtype.item_bytes
        self.integer = f"i{8 * self.item_bytes}"  # as wide as the elements, so that masks agree
        self.integers = vector_of(self.integer, form.lanes)

    def write(self) -> None:
        w, form = self.w, self.form
        a, factors, pivots, failures, scratch = (w.buffer_address(k) for k in range(5))
        least = min(form.rows, form.columns)
        places = w.address(scratch, w.int(form.bytes), "i8")
        behind = w.int(form.bytes + (least + 1) * form.vector_bytes)
        self.aside = w.address(scratch, behind, "i8")

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = times(w, n, form.lanes)
            matrices = LanesInScratch(self.nest, form, first, scratch)
            matrices.load(a)

            def step(k: Value, carried: list[Value]) -> list[Value]:
                return [self._step(matrices, k, places, carried[0])]

            (failed,) = self.nest.loop(0, least, 1, [w.zero(self.integers)], step)
            matrices.store(factors)
            self._report(matrices, places, failed, (pivots, failures))
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _step(self, a: LanesInScratch, k: Value, places: Value, failed: Value) -> Value:
        """Column k; failed: each lane's first column without a pivot, from 1, or 0."""
        w, form = self.w, self.form
        p = self._pivot_rows(a, k)
        w.store(p, w.address(places, times(w, k, form.lanes), self.integer))
        self._bring_up(a, k, p)
        pivot = a.get(k, k)
        is_zero = w.compare("fcmp oeq", pivot, w.zero(form.vector))
        one = w.splat(w.float(1.0, form.scalar), form.lanes)
        divisor = w.select(is_zero, one, pivot)
        following = add(w, k, w.int(1))

        def row(i: Value, _: list[Value]) -> list[Value]:
            self._take_down(a, p, i)
            scaled = w.binary("fdiv", a.get(i, k), divisor)
            a.set(i, k, scaled)
            negative = w.unary("fneg", scaled)

            def reduced(j: Value) -> None:
                x = w.intrinsic("llvm.fma", form.vector, negative, a.get(k, j), a.get(i, j))
                a.set(i, j, x)

            self._along(following, w.int(form.columns), reduced)
            return []

        self.nest.loop(following, w.int(form.rows), 1, [], row)
        number = w.splat(self._narrow(following), form.lanes)
        is_first = w.compare("icmp eq", failed, w.zero(self.integers))
        return w.select(w.binary("and", is_zero, is_first), number, failed)

    def _pivot_rows(self, a: LanesInScratch, k: Value) -> Value:
        """Each lane's row from k on with the largest element of column k, the first of equal
        ones; k where that is a NaN."""
        w, form = self.w, self.form

        def larger(i: Value, carried: list[Value]) -> list[Value]:
            best, p = carried
            x = w.intrinsic("llvm.fabs", form.vector, a.get(i, k))
            is_larger = w.compare("fcmp ogt", x, best)
            row = w.splat(self._narrow(i), form.lanes)
            return [w.select(is_larger, x, best), w.select(is_larger, row, p)]

        first = w.intrinsic("llvm.fabs", form.vector, a.get(k, k))
        start = [first, w.splat(self._narrow(k), form.lanes)]
        return self.nest.loop(add(w, k, w.int(1)), w.int(form.rows), 1, start, larger)[1]

    def _bring_up(self, a: LanesInScratch, k: Value, p: Value) -> None:
        """Each lane's row p becomes row k, whose numbers are kept aside."""
        w, form = self.w, self.form
        rows = []
        for lane in range(form.lanes):
            row = w.extract(p, lane)
            wide = row if self.integer == "i64" else w.cast("zext", row, "i64")
            rows.append(w.address(a.at(wide, w.int(0)), w.int(lane), form.scalar))

        def column(j: Value) -> None:
            w.store(a.get(k, j), self._aside(j), self.item_bytes)
            step, gathered = times(w, j, form.lanes), w.zero(form.vector)
            for lane, start in enumerate(rows):
                number = w.load(w.address(start, step, form.scalar), form.scalar)
                gathered = w.insert(gathered, number, lane)
            a.set(k, j, gathered)

        self._along(w.int(0), w.int(form.columns), column)

    def _take_down(self, a: LanesInScratch, p: Value, i: Value) -> None:
        """Row i is what was row k, in lanes whose row p it is. By bits: LLVM would store a choice
        between a number and what lies there under a mask, which takes AMD's processors 20 cycles.
        Where rows are no more than lanes, most are some lane's: to ask would not be foreseen.
        """
        w, form = self.w, self.form
        chosen = w.compare("icmp eq", p, w.splat(self._narrow(i), form.lanes))
        mask = w.cast("sext", chosen, self.integers)

        def column(j: Value) -> None:
            place = a.at(i, j)
            old, kept = (
                w.load(at, self.integers, self.item_bytes) for at in (place, self._aside(j))
            )
            changed = w.binary("and", w.binary("xor", old, kept), mask)
            w.store(w.binary("xor", old, changed), place, self.item_bytes)

        def all_columns() -> None:
            self._along(w.int(0), w.int(form.columns), column)

        if form.rows <= form.lanes:
            all_columns()
            return
        when(self.nest, w.any_lane(chosen), all_columns)

    def _aside(self, j: Value) -> Value:
        """Where a number of the row that changes places is kept."""
        w, form = self.w, self.form
        return w.address(self.aside, times(w, j, form.lanes), form.scalar)

    def _along(self, low: Value, high: Value, body: Callable[[Value], None]) -> None:
        """body at every place from low to high, AT_ONCE in a round."""
        w = self.w
        whole = w.binary("and", w.binary("sub", high, low), w.int(-AT_ONCE))
        middle = add(w, low, whole)

        def several(j: Value, _: list[Value]) -> list[Value]:
            for n in range(AT_ONCE):
                body(add(w, j, w.int(n)))
            return []

        def one(j: Value, _: list[Value]) -> list[Value]:
            body(j)
            return []

        self.nest.loop(low, middle, AT_ONCE, [], several)
        self.nest.loop(middle, high, 1, [], one)

    def _narrow(self, i: Value) -> Value:
        return i if self.integer == "i64" else self.w.cast("trunc", i, self.integer)

    def _report(
        self, a: LanesInScratch, places: Value, failed: Value, arrays: tuple[Value, Value]
    ) -> None:
        """Pivots count from 1."""
        w, form = self.w, self.form
        pivots, failures = arrays
        least = min(form.rows, form.columns)
        spill = w.address(places, w.int(least * form.lanes), self.integer)
        w.store(failed, spill)

        def narrow(base: Value, index: Value) -> Value:
            wide = w.load(w.address(base, index, self.integer), self.integer)
            return w.cast("trunc", wide, "i32")

        def matrix(lane: Value, _: list[Value]) -> list[Value]:
            number = add(w, a.first, lane)
            w.store(narrow(spill, lane), w.address(failures, number, "i32"))

            def one(k: Value, _: list[Value]) -> list[Value]:
                row = narrow(places, add(w, times(w, k, form.lanes), lane))
                at = w.address(pivots, add(w, times(w, number, least), k), "i32")
                w.store(w.binary("add", row, w.int(1, "i32")), at)
                return []

            self.nest.loop(0, least, 1, [], one)
            return []

        self.nest.loop(w.int(0), a.count(), 1, [], matrix)
