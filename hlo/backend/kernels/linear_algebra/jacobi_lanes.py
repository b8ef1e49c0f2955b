"""Eigenvalues and singular values of many small matrices, a matrix a lane: Jacobi's rotations.

    symmetric   for p < q: the rotation that makes a[p, q] zero, of rows and columns p and q
    singular    for p < q: the rotation that makes columns p and q orthogonal; s_j = |a[., j]|

    z = (y - x) / 2g;  t = sign(z) / (|z| + sqrt(1 + z^2));  c = 1 / sqrt(1 + t^2);  s = c t
    of x, y on the diagonal (squares of the columns) and g beside it (their product)

Sweeps over all pairs go on until no lane has a pair that is worth a rotation: what is left beside
the diagonal is less than a rounding of the largest element, of columns than a rounding of their
sizes. Numbers are moved near one by powers of two, lane by lane: no square overflows. A NaN or an
infinity spoils its own lane alone, which holds what the reference says of a NaN then (gesdd itself
does not end where it meets an infinity). Vectors have signs that only LAPACK's course decides, so
that those who read them call it.
Source: cyclic and one-sided Jacobi methods (Golub, Van Loan 8.5, 8.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import prod

import numpy as np

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.matrix_lanes import (
    LanesInScratch,
    MatrixLanes,
    matrix_lanes,
    towards_one,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while
from hlo.backend.loops.schedule import Plan
from hlo.ir.shape import Shape

_MOST_SWEEPS = 30  # Matrices of a few rows take six to ten.
_SWEEPS = 8  # The same for the cost model.
# For more values than so many times the lanes LAPACK's fewer operations outweigh these: eigenvalues
# of 192 matrices took 0.05 (4x4 f32) to 0.37 (20x20 f64, 8 lanes) of its time, singular values
# 0.06 to 0.72 (15x15 f64).
_MOST_EIGENVALUES, _MOST_SINGULAR = 4, 2
_NAN_CODE = -4  # What gesdd reports of a matrix that holds a NaN.


def eigenvalues_kernel(a: Shape, *, lower: bool, target: Target) -> Kernel | None:
    """The kernel of syevd where nobody reads vectors: buffers a, vectors, values, failures,
    scratch. None where matrices are few or large."""
    form = _form(a, target, _MOST_EIGENVALUES)
    if form is None or form.rows != form.columns:
        return None
    build = _Symmetric(target, form, lower=lower)
    build.write((0, 2, 3, 4))
    return build.made("eigenvalues", a)


def singular_values_kernel(a: Shape, target: Target) -> Kernel | None:
    """The kernel of gesdd where nobody reads vectors: buffers a, a again, values, U, V, failures,
    scratch. None where matrices are few or large."""
    form = _form(a, target, _MOST_SINGULAR)
    if form is None:
        return None
    build = _Singular(target, form)
    build.write((0, 2, 5, 6))
    return build.made("singular values", a)


def _form(a: Shape, target: Target, most: int) -> MatrixLanes | None:
    """Matrices in lanes, of at most so many times as many values as lanes."""
    *batch, rows, columns = a.dims
    form = matrix_lanes(a.dtype, (prod(batch), rows, columns), target.machine)
    return form if form is not None and min(rows, columns) <= most * form.lanes else None


class _Build(ABC):
    """A kernel under construction."""

    descends, failure, spoiled = False, 0, float("nan")

    def __init__(self, target: Target, form: MatrixLanes) -> None:
        self.nest = Nest(Writer(), target)
        self.w, self.form, self.count = self.nest.w, form, min(form.rows, form.columns)
        self.values = MatrixLanes(form.dtype, form.batch, 1, self.count, form.lanes)
        self.eps = float(np.finfo(form.dtype.numpy).eps)
        self.mask = vector_of("i1", form.lanes)

    def write(self, buffers: tuple[int, int, int, int]) -> None:
        """Units: a vector of matrices each. buffers: matrices, values, failures, scratch."""
        w, form = self.w, self.form
        memory, result, failures, scratch = (w.buffer_address(k) for k in buffers)
        beside = w.address(scratch, w.int(form.bytes), "i8")
        codes = w.address(beside, w.int(self.values.bytes), "i8")

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = times(w, n, form.lanes)
            a = LanesInScratch(self.nest, form, first, scratch)
            values = LanesInScratch(self.nest, self.values, first, beside)
            a.load(memory)
            is_bad, back = self._prepared(a)
            repeat_while(
                self.nest,
                [w.int(0), w.int(1, "i1")],
                lambda state: w.binary(
                    "and", state[1], w.compare("icmp slt", state[0], w.int(_MOST_SWEEPS))
                ),
                lambda state: [add(w, state[0], w.int(1)), w.any_lane(self._sweep(a))],
            )
            self._over(0, self.count, lambda j: values.set(w.int(0), j, self.value(a, j)))
            self._sort(values)
            spoiled = w.splat(w.float(self.spoiled, form.scalar), form.lanes)

            def finish(j: Value) -> None:
                x = w.binary("fmul", values.get(w.int(0), j), back)
                values.set(w.int(0), j, w.select(is_bad, spoiled, x))

            self._over(0, self.count, finish)
            values.store(result)
            code = w.splat(w.int(self.failure, "i32"), form.lanes)
            w.store(w.select(is_bad, code, w.zero(code.type)), codes)
            self._report(a, codes, failures)
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)
        w.ret()

    def made(self, name: str, a: Shape) -> Kernel:
        """The kernel."""
        w, form = self.w, self.form
        kernel = Kernel(
            w.function(has_entry=True),
            form.units,
            *w.beside,
            scratch_bytes=form.bytes + self.values.bytes + 4 * form.lanes,
            bytes_moved=a.size_bytes,
            flops=_SWEEPS * 4 * form.batch * form.size * self.count,
        )
        text = f"{name}: {form.rows} x {form.columns}, batch of {form.batch}, {form.lanes} at once"
        return self.nest.target.shown(kernel, lambda: Plan((text,)))

    # -- what the two differ in --------------------------------------------------------------

    @abstractmethod
    def mirrored(self, a: LanesInScratch) -> None:
        """What of the matrix is not read takes the values of what is."""

    @abstractmethod
    def pair(self, a: LanesInScratch, p: Value, q: Value) -> Value:
        """Rotate a pair; the lanes in which it was worth it."""

    @abstractmethod
    def value(self, a: LanesInScratch, j: Value) -> Value:
        """A value at the end."""

    # -- parts -------------------------------------------------------------------------------

    def _over(self, low: Value | int, high: Value | int, body: Callable[[Value], None]) -> None:
        def run(k: Value, _: list[Value]) -> list[Value]:
            body(k)
            return []

        self.nest.loop(low, high, 1, [], run)

    def _elements(
        self, start: list[Value], body: Callable[[Value, Value, list[Value]], list[Value]]
    ) -> list[Value]:
        """All elements, one after the other."""

        def row(i: Value, carried: list[Value]) -> list[Value]:
            return self.nest.loop(
                0, self.form.columns, 1, carried, lambda j, inner: body(i, j, inner)
            )

        return self.nest.loop(0, self.form.rows, 1, start, row)

    def _prepared(self, a: LanesInScratch) -> tuple[Value, Value]:
        """The matrices moved near one: which are not finite, and what moves values back."""
        w, form = self.w, self.form
        none = w.zero(self.mask)

        def nans(i: Value, j: Value, carried: list[Value]) -> list[Value]:
            x = a.get(i, j)
            return [w.binary("or", carried[0], w.compare("fcmp uno", x, x))]

        (is_nan,) = self._elements([none], nans)
        self.mirrored(a)

        def height(i: Value, j: Value, carried: list[Value]) -> list[Value]:
            x = w.intrinsic("llvm.fabs", form.vector, a.get(i, j))
            return [w.select(w.compare("fcmp ogt", x, carried[0]), x, carried[0])]

        (largest,) = self._elements([w.zero(form.vector)], height)
        infinity = w.splat(w.float(float("inf"), form.scalar), form.lanes)
        is_bad = w.binary("or", is_nan, w.compare("fcmp oeq", largest, infinity))
        near, back = towards_one(w, form.dtype, largest)
        self.largest = w.binary("fmul", largest, near)

        def move(i: Value, j: Value, _: list[Value]) -> list[Value]:
            x = w.binary("fmul", a.get(i, j), near)
            a.set(i, j, w.select(is_bad, w.zero(form.vector), x))
            return []

        self._elements([], move)
        return is_bad, back

    def _sweep(self, a: LanesInScratch) -> Value:
        """All pairs once; the lanes in which one was worth a rotation."""
        w = self.w

        def row(p: Value, carried: list[Value]) -> list[Value]:
            def column(q: Value, inner: list[Value]) -> list[Value]:
                return [w.binary("or", inner[0], self.pair(a, p, q))]

            return self.nest.loop(add(w, p, w.int(1)), w.int(self.count), 1, carried, column)

        return self.nest.loop(0, self.count, 1, [w.zero(self.mask)], row)[0]

    def rotation(self, x: Value, y: Value, g: Value) -> tuple[Value, Value, Value]:
        """t, s and s / (1 + c) of the rotation that makes g zero; zeros where it is."""
        w, form = self.w, self.form
        one = w.splat(w.float(1.0, form.scalar), form.lanes)
        z = w.binary("fdiv", w.binary("fsub", y, x), w.binary("fadd", g, g))
        root = self._root(w.intrinsic("llvm.fma", form.vector, z, z, one))
        wide = w.binary("fadd", w.intrinsic("llvm.fabs", form.vector, z), root)
        t = w.intrinsic("llvm.copysign", form.vector, w.binary("fdiv", one, wide), z)
        t = w.select(w.compare("fcmp oeq", g, w.zero(g.type)), w.zero(g.type), t)
        c = w.binary("fdiv", one, self._root(w.intrinsic("llvm.fma", form.vector, t, t, one)))
        s = w.binary("fmul", c, t)
        return t, s, w.binary("fdiv", s, w.binary("fadd", one, c))

    def _root(self, x: Value) -> Value:
        return self.w.intrinsic("llvm.sqrt", self.form.vector, x)

    def turn(
        self, a: LanesInScratch, places: tuple[tuple[Value, Value], ...], s: Value, share: Value
    ) -> None:
        """g, h at two places become g - s (h + share g) and h + s (g - share h)."""
        w, form = self.w, self.form
        g, h = (a.get(*place) for place in places)
        less = w.intrinsic("llvm.fma", form.vector, share, g, h)
        more = w.intrinsic("llvm.fma", form.vector, w.unary("fneg", share), h, g)
        a.set(*places[0], w.intrinsic("llvm.fma", form.vector, w.unary("fneg", s), less, g))
        a.set(*places[1], w.intrinsic("llvm.fma", form.vector, s, more, h))

    def _sort(self, values: LanesInScratch) -> None:
        """Each lane's values in order: pairs of neighbours, as often as there are values."""
        w, zero = self.w, self.w.int(0)

        def neighbours(j: Value) -> None:
            x, y = values.get(zero, j), values.get(zero, add(w, j, w.int(1)))
            is_turned = w.compare("fcmp olt" if self.descends else "fcmp ogt", x, y)
            values.set(zero, j, w.select(is_turned, y, x))
            values.set(zero, add(w, j, w.int(1)), w.select(is_turned, x, y))

        self._over(0, self.count, lambda _: self._over(0, self.count - 1, neighbours))

    def _report(self, a: LanesInScratch, codes: Value, failures: Value) -> None:
        w = self.w

        def one(lane: Value) -> None:
            code = w.load(w.address(codes, lane, "i32"), "i32")
            w.store(code, w.address(failures, add(w, a.first, lane), "i32"))

        self._over(w.int(0), a.count(), one)


class _Symmetric(_Build):
    """Of a matrix the triangle above the diagonal is kept."""

    def __init__(self, target: Target, form: MatrixLanes, *, lower: bool) -> None:
        super().__init__(target, form)
        self.lower = lower

    def mirrored(self, a: LanesInScratch) -> None:
        def row(i: Value) -> None:
            def column(j: Value) -> None:
                above, below = (j, i), (i, j)
                read, other = (below, above) if self.lower else (above, below)
                a.set(*other, a.get(*read))

            self._over(self.w.int(0), i, column)

        self._over(0, self.count, row)

    def pair(self, a: LanesInScratch, p: Value, q: Value) -> Value:
        w, form = self.w, self.form
        x, y, g = a.get(p, p), a.get(q, q), a.get(p, q)
        least = w.splat(w.float(self.eps / (2 * self.count), form.scalar), form.lanes)
        height = w.intrinsic("llvm.fabs", form.vector, g)
        is_worth = w.compare("fcmp ogt", height, w.binary("fmul", least, self.largest))
        t, s, share = self.rotation(x, y, g)
        a.set(p, p, w.intrinsic("llvm.fma", form.vector, w.unary("fneg", t), g, x))
        a.set(q, q, w.intrinsic("llvm.fma", form.vector, t, g, y))
        a.set(p, q, w.zero(form.vector))
        self._over(w.int(0), p, lambda i: self.turn(a, ((i, p), (i, q)), s, share))
        after = add(w, p, w.int(1))
        self._over(after, q, lambda i: self.turn(a, ((p, i), (i, q)), s, share))
        behind, end = add(w, q, w.int(1)), w.int(self.count)
        self._over(behind, end, lambda i: self.turn(a, ((p, i), (q, i)), s, share))
        return is_worth

    def value(self, a: LanesInScratch, j: Value) -> Value:
        return a.get(j, j)


class _Singular(_Build):
    """Columns of the higher of a matrix and its transpose."""

    descends, failure, spoiled = True, _NAN_CODE, 0.0

    def mirrored(self, a: LanesInScratch) -> None:
        """All is read."""

    def place(self, i: Value, j: Value) -> tuple[Value, Value]:
        """Row i of column j."""
        return (i, j) if self.form.rows >= self.form.columns else (j, i)

    def pair(self, a: LanesInScratch, p: Value, q: Value) -> Value:
        w, form = self.w, self.form
        zero, length = w.zero(form.vector), max(form.rows, form.columns)

        def products(i: Value, carried: list[Value]) -> list[Value]:
            x, y = a.get(*self.place(i, p)), a.get(*self.place(i, q))
            factors = ((x, x), (y, y), (x, y))
            return [
                w.intrinsic("llvm.fma", form.vector, *pair, total)
                for pair, total in zip(factors, carried, strict=True)
            ]

        x, y, g = self.nest.loop(0, length, 1, [zero] * 3, products)
        sizes = w.binary("fmul", self._root(x), self._root(y))
        least = w.splat(w.float(max(length, 4) * self.eps, form.scalar), form.lanes)
        height = w.intrinsic("llvm.fabs", form.vector, g)
        is_worth = w.compare("fcmp ogt", height, w.binary("fmul", least, sizes))
        _, s, share = self.rotation(x, y, g)
        self._over(
            0, length, lambda i: self.turn(a, (self.place(i, p), self.place(i, q)), s, share)
        )
        return is_worth

    def value(self, a: LanesInScratch, j: Value) -> Value:
        w, form = self.w, self.form

        def square(i: Value, carried: list[Value]) -> list[Value]:
            x = a.get(*self.place(i, j))
            return [w.intrinsic("llvm.fma", form.vector, x, x, carried[0])]

        length = max(form.rows, form.columns)
        return self._root(self.nest.loop(0, length, 1, [w.zero(form.vector)], square)[0])
