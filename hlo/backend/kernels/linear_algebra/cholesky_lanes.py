"""Cholesky factors of many small matrices, a matrix a lane: a = L L^T, or U^T U with U = L^T.

    for k:  L[k, k] = root(a[k, k]);  L[i, k] = a[i, k] / L[k, k];  a[i, j] -= L[i, k] L[j, k]

Every step is the same in all lanes; what a lane makes of a pivot that is not positive stays its
own. Source: right-looking Cholesky (Golub, Van Loan 4.2).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.cholesky_form import Factor
from hlo.backend.kernels.linear_algebra.matrix_lanes import LanesInScratch, MatrixLanes
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops.schedule import Plan

Body = Callable[[Value, list[Value]], list[Value]]


def cholesky_lanes_kernel(factor: Factor, form: MatrixLanes, target: Target) -> Kernel:
    """buffers: a, the factor, the failures if it reports, scratch."""
    build = _Build(Nest(Writer(), target), factor, form)
    build.write()
    w, n = build.w, factor.size
    w.ret()
    made = Kernel(
        w.function(has_entry=True),
        form.units,
        *w.beside,
        scratch_bytes=form.bytes + form.vector_bytes,
        in_place=frozenset({(0, 0)}),
        bytes_moved=2 * form.batch * form.size * factor.dtype.item_bytes,
        flops=factor.batch * n * n * n // 3,
    )
    text = f"Cholesky: {n} x {n}, batch of {factor.batch}, {form.lanes} at once"
    return target.shown(made, lambda: Plan((text,)))


class _Build:
    """The kernel's text."""

    def __init__(self, nest: Nest, factor: Factor, form: MatrixLanes) -> None:
        self.nest, self.w = nest, nest.w
        self.factor, self.form = factor, form

    def write(self) -> None:
        w, form, reports = self.w, self.form, self.factor.reports
        a, result = w.buffer_address(0), w.buffer_address(1)
        scratch = w.buffer_address(3 if reports else 2)

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = times(w, n, form.lanes)
            matrices = LanesInScratch(self.nest, form, first, scratch)
            matrices.load(a)
            none = w.zero(vector_of("i32", form.lanes))
            (failed,) = self._each(
                w.int(0), [none], lambda k, carried: [self._step(matrices, k, carried[0])]
            )
            if reports:
                self._report(matrices, failed, w.buffer_address(2))
            else:
                self._finish(matrices, failed)
            matrices.store(result)
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _each(self, low: Value, carried: list[Value], body: Body) -> list[Value]:
        """Rows or columns from one on."""
        return self.nest.loop(low, self.w.int(self.factor.size), 1, carried, body)

    def _get(self, a: LanesInScratch, i: Value, j: Value) -> Value:
        """Element (i, j) of L, i >= j."""
        return a.get(i, j) if self.factor.lower else a.get(j, i)

    def _set(self, a: LanesInScratch, i: Value, j: Value, element: Value) -> None:
        if self.factor.lower:
            a.set(i, j, element)
        else:
            a.set(j, i, element)

    def _step(self, a: LanesInScratch, k: Value, failed: Value) -> Value:
        """Column k; failed: each lane's first pivot that is not positive, from 1, or 0."""
        w, form = self.w, self.form
        pivot = self._get(a, k, k)
        root = w.intrinsic("llvm.sqrt", form.vector, pivot)
        self._set(a, k, k, root)
        inverse = w.binary("fdiv", w.splat(w.float(1.0, form.scalar), form.lanes), root)
        following = add(w, k, w.int(1))

        def scaled(i: Value, _: list[Value]) -> list[Value]:
            self._set(a, i, k, w.binary("fmul", self._get(a, i, k), inverse))
            return []

        def column(j: Value, _: list[Value]) -> list[Value]:
            negative = w.unary("fneg", self._get(a, j, k))

            def lessened(i: Value, _: list[Value]) -> list[Value]:
                factors = self._get(a, i, k), negative
                x = w.intrinsic("llvm.fma", form.vector, *factors, self._get(a, i, j))
                self._set(a, i, j, x)
                return []

            self._each(j, [], lessened)
            return []

        self._each(following, [], scaled)
        self._each(following, [], column)
        is_bad = w.compare("fcmp ule", pivot, w.zero(form.vector))
        is_first = w.compare("icmp eq", failed, w.zero(failed.type))
        number = w.splat(w.cast("trunc", following, "i32"), form.lanes)
        return w.select(w.binary("and", is_bad, is_first), number, failed)

    def _finish(self, a: LanesInScratch, failed: Value) -> None:
        """Zeros in the other triangle, NaN in all of a matrix that has no factor."""
        w, form = self.w, self.form
        has_none = w.compare("icmp ne", failed, w.zero(failed.type))
        nan = w.splat(w.float(float("nan"), form.scalar), form.lanes)
        nothing = w.select(has_none, nan, w.zero(form.vector))

        def column(j: Value, _: list[Value]) -> list[Value]:
            def own(i: Value, _: list[Value]) -> list[Value]:
                self._set(a, i, j, w.select(has_none, nan, self._get(a, i, j)))
                return []

            def other(i: Value, _: list[Value]) -> list[Value]:
                self._set(a, j, i, nothing)
                return []

            self._each(j, [], own)
            self._each(add(w, j, w.int(1)), [], other)
            return []

        self._each(w.int(0), [], column)

    def _report(self, a: LanesInScratch, failed: Value, failures: Value) -> None:
        w = self.w
        spill = w.address(w.buffer_address(3), w.int(self.form.bytes), "i8")
        w.store(failed, spill)

        def matrix(lane: Value, _: list[Value]) -> list[Value]:
            number = w.load(w.address(spill, lane, "i32"), "i32")
            w.store(number, w.address(failures, add(w, a.first, lane), "i32"))
            return []

        self.nest.loop(w.int(0), a.count(), 1, [], matrix)
