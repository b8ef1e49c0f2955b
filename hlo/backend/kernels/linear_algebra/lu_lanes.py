"""LU factors of many small matrices, a matrix a lane: P a = L U, as LAPACK's getrf gives them.

    for k:  p = the first row from k on with the largest |a[p, k]|;  rows k and p change places
            L[i, k] = a[i, k] / a[k, k];  a[i, j] -= L[i, k] a[k, j]  for i, j > k

Rows change places in the same go in which they are reduced, lane by lane with another p. A column
without a pivot is left as it is, and its number (from 1) reported.
Source: right-looking Gaussian elimination with partial pivoting (Golub, Van Loan 3.4).
"""

from __future__ import annotations

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
from hlo.backend.loops.schedule import Plan
from hlo.ir.shape import Shape


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
        scratch_bytes=form.bytes + (least + 1) * form.vector_bytes,
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
        places = w.address(scratch, w.int(form.bytes), "i8")

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = times(w, n, form.lanes)
            matrices = LanesInScratch(self.nest, form, first, scratch)
            matrices.load(a)
            least = min(form.rows, form.columns)

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
        pivot = self._pivot_row_at(a, k, p, k)
        old = a.get(k, k)
        a.set(k, k, pivot)
        is_zero = w.compare("fcmp oeq", pivot, w.zero(form.vector))

        def scaled(i: Value, _: list[Value]) -> list[Value]:
            x = w.select(self._is(p, i), old, a.get(i, k))
            a.set(i, k, w.select(is_zero, x, w.binary("fdiv", x, pivot)))
            return []

        following = add(w, k, w.int(1))
        rows = w.int(form.rows)
        self.nest.loop(following, rows, 1, [], scaled)

        def moved(j: Value, _: list[Value]) -> list[Value]:
            self._column(a, k, p, j, is_reduced=False)
            return []

        def reduced(j: Value, _: list[Value]) -> list[Value]:
            self._column(a, k, p, j, is_reduced=True)
            return []

        self.nest.loop(w.int(0), k, 1, [], moved)
        self.nest.loop(following, w.int(form.columns), 1, [], reduced)
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

    def _pivot_row_at(self, a: LanesInScratch, k: Value, p: Value, j: Value) -> Value:
        """Column j of each lane's pivot row."""
        w = self.w

        def chosen(i: Value, carried: list[Value]) -> list[Value]:
            return [w.select(self._is(p, i), a.get(i, j), carried[0])]

        rows = w.int(self.form.rows)
        return self.nest.loop(add(w, k, w.int(1)), rows, 1, [a.get(k, j)], chosen)[0]

    def _column(self, a: LanesInScratch, k: Value, p: Value, j: Value, *, is_reduced: bool) -> None:
        """Rows k and p of column j change places; below row k, L[:, k] times it is taken away."""
        w, form = self.w, self.form
        old, pivot = a.get(k, j), self._pivot_row_at(a, k, p, j)
        a.set(k, j, pivot)
        negative = w.unary("fneg", pivot)

        def row(i: Value, _: list[Value]) -> list[Value]:
            x = w.select(self._is(p, i), old, a.get(i, j))
            if is_reduced:
                x = w.intrinsic("llvm.fma", form.vector, a.get(i, k), negative, x)
            a.set(i, j, x)
            return []

        self.nest.loop(add(w, k, w.int(1)), w.int(form.rows), 1, [], row)

    def _is(self, p: Value, i: Value) -> Value:
        """The lanes whose pivot row is i."""
        w = self.w
        return w.compare("icmp eq", p, w.splat(self._narrow(i), self.form.lanes))

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
