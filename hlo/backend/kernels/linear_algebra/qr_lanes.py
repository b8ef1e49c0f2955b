"""QR factors of many small matrices, a matrix a lane, as LAPACK's geqrf and orgqr give them.

    geqrf   for k:  x = a[k.., k];  b = -sign(x_0) |x|;  t = (b - x_0) / b;  v = x / (x_0 - b)
                    a[k.., j] -= t v (v^T a[k.., j])  for j > k, v_0 = 1;  a[k.., k] = b, v_1..
    orgqr   Q = H_0 .. H_{count-1} of the first columns of 1, from the last reflector to the first

A column that is zero below its diagonal is left as it is, with t = 0, whatever its sign; so are the
others, infinities among them, by its reflector. Squares are those of numbers that a power of two
moves away from the ends of the range, lane by lane; the reflector is computed of these, and b moves
back: nothing overflows or vanishes on the way. A NaN, or an infinity, spoils its own lane alone.
Source: Householder QR (Golub, Van Loan 5.2; LAPACK's larfg, org2r).
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
    towards_one,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.loops.schedule import Plan
from hlo.ir.shape import Shape


def qr_lanes_kernel(a: Shape, target: Target) -> Kernel | None:
    """The kernel of geqrf on an array of small matrices: buffers a, factors, t, scratch. None
    where they are few or large."""
    *batch, rows, columns = a.dims
    form = matrix_lanes(a.dtype, (prod(batch), rows, columns), target.machine)
    least = min(rows, columns)
    if form is None:
        return None
    build = _Build(target, form, least)
    build.write((0, 1, 2, 3), build.factored, makes_factors=True)
    return build.made("QR", a, frozenset({(0, 0)}))


def q_lanes_kernel(a: Shape, count: int, target: Target) -> Kernel | None:
    """The kernel of orgqr, for `count` reflectors: buffers a, t, Q, scratch. None where matrices
    are few or large, or wider than high."""
    *batch, rows, columns = a.dims
    form = matrix_lanes(a.dtype, (prod(batch), rows, columns), target.machine)
    if form is None or not 0 < count <= columns <= rows:
        return None
    build = _Build(target, form, count)
    build.write((0, 2, 1, 3), build.expanded, makes_factors=False)
    return build.made("Q", a, frozenset({(0, 0)}))


class _Build:
    """A kernel under construction. count: of the reflectors."""

    def __init__(self, target: Target, form: MatrixLanes, count: int) -> None:
        self.nest = Nest(Writer(), target)
        self.w, self.form, self.count = self.nest.w, form, count
        self.factors = MatrixLanes(form.dtype, form.batch, 1, count, form.lanes)

    def write(
        self,
        buffers: tuple[int, int, int, int],
        work: Callable[[LanesInScratch, LanesInScratch], None],
        *,
        makes_factors: bool,
    ) -> None:
        """Units: a vector of matrices each, with their reflectors' t, which the work makes or
        reads. buffers: the matrices before and after, t, scratch."""
        w, form = self.w, self.form
        a, result, t, scratch = (w.buffer_address(k) for k in buffers)
        beside = w.address(scratch, w.int(form.bytes), "i8")

        def unit(n: Value, _: list[Value]) -> list[Value]:
            first = times(w, n, form.lanes)
            matrices = LanesInScratch(self.nest, form, first, scratch)
            factors = LanesInScratch(self.nest, self.factors, first, beside)
            matrices.load(a)
            if not makes_factors:
                factors.load(t)
            work(matrices, factors)
            matrices.store(result)
            if makes_factors:
                factors.store(t)
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)
        w.ret()

    def made(self, name: str, a: Shape, in_place: frozenset[tuple[int, int]]) -> Kernel:
        """The kernel."""
        w, form = self.w, self.form
        kernel = Kernel(
            w.function(has_entry=True),
            form.units,
            *w.beside,
            scratch_bytes=form.bytes + self.factors.bytes,
            in_place=in_place,
            bytes_moved=2 * a.size_bytes,
            flops=4 * form.batch * form.size * self.count,
        )
        text = f"{name}: {form.rows} x {form.columns}, batch of {form.batch}, {form.lanes} at once"
        return self.nest.target.shown(kernel, lambda: Plan((text,)))

    # -- factors -----------------------------------------------------------------------------

    def factored(self, a: LanesInScratch, t: LanesInScratch) -> None:
        """Columns become reflectors, one after the other."""

        def step(k: Value, _: list[Value]) -> list[Value]:
            factor = self._reflector(a, k)
            t.set(self.w.int(0), k, factor)
            following = add(self.w, k, self.w.int(1))
            self._reflected(a, k, factor, following)
            return []

        self.nest.loop(0, self.count, 1, [], step)

    def _reflector(self, a: LanesInScratch, k: Value) -> Value:
        """t of column k, whose elements below the diagonal become v's, the diagonal b."""
        w, form = self.w, self.form
        head, below = a.get(k, k), add(w, k, w.int(1))
        zero = w.zero(form.vector)
        start = [w.intrinsic("llvm.fabs", form.vector, head), w.zero(vector_of("i1", form.lanes))]

        def size(i: Value, carried: list[Value]) -> list[Value]:
            largest, some = carried
            x = a.get(i, k)
            height = w.intrinsic("llvm.fabs", form.vector, x)
            is_larger = w.compare("fcmp ogt", height, largest)
            some = w.binary("or", some, w.compare("fcmp une", x, zero))
            return [w.select(is_larger, height, largest), some]

        rows = w.int(form.rows)
        largest, some = self.nest.loop(below, rows, 1, start, size)
        nearer, back = towards_one(w, form.dtype, largest)
        near = w.binary("fmul", head, nearer)

        def square(i: Value, carried: list[Value]) -> list[Value]:
            x = w.binary("fmul", a.get(i, k), nearer)
            return [w.intrinsic("llvm.fma", form.vector, x, x, carried[0])]

        (sum_,) = self.nest.loop(below, rows, 1, [w.binary("fmul", near, near)], square)
        norm = w.intrinsic("llvm.sqrt", form.vector, sum_)
        b = w.unary("fneg", w.intrinsic("llvm.copysign", form.vector, norm, near))
        apart = w.binary("fsub", near, b)
        factor = w.binary("fdiv", w.unary("fneg", apart), b)

        def divided(i: Value, _: list[Value]) -> list[Value]:
            x = a.get(i, k)
            v = w.binary("fdiv", w.binary("fmul", x, nearer), apart)
            a.set(i, k, w.select(some, v, x))
            return []

        self.nest.loop(below, rows, 1, [], divided)
        a.set(k, k, w.select(some, w.binary("fmul", b, back), head))
        return w.select(some, factor, zero)

    def _reflected(self, a: LanesInScratch, k: Value, factor: Value, first: Value) -> None:
        """Columns from `first` on less t v (v^T column), v below the diagonal of column k."""
        w, form = self.w, self.form
        below, rows = add(w, k, w.int(1)), w.int(form.rows)
        is_left = w.compare("fcmp oeq", factor, w.zero(form.vector))
        nothing = w.splat(w.float(-0.0, form.scalar), form.lanes)

        def column(j: Value, _: list[Value]) -> list[Value]:
            head = a.get(k, j)

            def along(i: Value, carried: list[Value]) -> list[Value]:
                return [w.intrinsic("llvm.fma", form.vector, a.get(i, k), a.get(i, j), carried[0])]

            (total,) = self.nest.loop(below, rows, 1, [head], along)
            share = w.unary("fneg", w.binary("fmul", factor, total))
            share = w.select(is_left, nothing, share)
            a.set(k, j, w.binary("fadd", head, share))

            def less(i: Value, _: list[Value]) -> list[Value]:
                x = w.intrinsic("llvm.fma", form.vector, a.get(i, k), share, a.get(i, j))
                a.set(i, j, x)
                return []

            self.nest.loop(below, rows, 1, [], less)
            return []

        self.nest.loop(first, w.int(form.columns), 1, [], column)

    # -- Q -----------------------------------------------------------------------------------

    def expanded(self, a: LanesInScratch, t: LanesInScratch) -> None:
        """Columns of 1 under all reflectors; a column that held a reflector becomes its own last,
        when those behind it have been through it."""
        w, form = self.w, self.form
        one, zero = w.splat(w.float(1.0, form.scalar), form.lanes), w.zero(form.vector)
        rows = w.int(form.rows)

        def unit_column(j: Value, _: list[Value]) -> list[Value]:
            self._filled(a, j, (w.int(0), rows), zero)
            a.set(j, j, one)
            return []

        self.nest.loop(self.count, form.columns, 1, [], unit_column)

        def step(n: Value, _: list[Value]) -> list[Value]:
            k = w.binary("sub", w.int(self.count - 1), n)
            factor, below = t.get(w.int(0), k), add(w, k, w.int(1))
            self._reflected(a, k, factor, below)
            negative = w.unary("fneg", factor)

            def scaled(i: Value, _: list[Value]) -> list[Value]:
                a.set(i, k, w.binary("fmul", a.get(i, k), negative))
                return []

            self.nest.loop(below, rows, 1, [], scaled)
            a.set(k, k, w.binary("fsub", one, factor))
            self._filled(a, k, (w.int(0), k), zero)
            return []

        self.nest.loop(0, self.count, 1, [], step)

    def _filled(
        self, a: LanesInScratch, column: Value, rows: tuple[Value, Value], number: Value
    ) -> None:
        def set_(i: Value, _: list[Value]) -> list[Value]:
            a.set(i, column, number)
            return []

        self.nest.loop(*rows, 1, [], set_)
