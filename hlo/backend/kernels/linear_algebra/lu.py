"""LU factors of matrices, one after the other: P a = L U, as LAPACK's getrf gives them.

    for a panel of columns:
        for k in it:  p = the first row from k on with the largest |a[p, k]|;  rows k, p exchanged
                      L[i, k] = a[i, k] / a[k, k];  a[i, q] -= L[i, k] a[k, q] for q in the panel
        U = L^-1 a in its rows, a less L U in those below

A column without a pivot is left as it is, and its number (from 1) reported. Many small matrices are
factored a matrix a lane (lu_lanes.py).
Source: blocked right-looking elimination with partial pivoting (Golub, Van Loan 3.4.1).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.panels import (
    VECTORS,
    Panels,
    panel_form,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.ir.shape import Shape

# Below the first of these powers of two reciprocals may be infinite; the second one moves numbers.
_TINY = {"float": (-100, 60), "double": (-1000, 500)}


def lu_kernel(a: Shape, target: Target) -> Kernel | None:
    """The kernel of getrf: buffers a, factors, pivots, failures, scratch. None where
    another way is better."""
    form = panel_form(a, "getrf", target)
    if form is None:
        return None
    w = Writer()
    buffers = [w.buffer_address(k) for k in range(5)]
    build = _Lu(Nest(w, target), form, buffers[-1])
    build.write(buffers)
    return build.made(a, form.size * form.least * 2 // 3, "LU")


class _Lu(Panels):
    """The kernel's function, or a part of it."""

    def write(self, buffers: list[Value]) -> None:
        """One unit is one matrix."""
        w, form = self.w, self.form
        a, factors, pivots, failures, _ = buffers

        def matrix(unit: Value, _: list[Value]) -> list[Value]:
            places = w.address(pivots, times(w, unit, form.least), "i32")
            self.part(_Lu.load, a, unit)

            def panel(k: Value, carried: list[Value]) -> list[Value]:
                self.part(_Lu.take, k)
                failed = self.part(_Lu._factored, k, places, *carried, type="i32")
                self.part(_Lu.give, k)
                self.part(_Lu._behind, k)
                return [failed]

            none = [w.int(0, "i32")]
            (failed,) = self.nest.loop(0, form.reach, form.width, none, panel)
            self.part(_Lu.store, factors, unit)
            w.store(failed, w.address(failures, unit, "i32"), 4)
            return []

        self.nest.loop(BEGIN, END, 1, [], matrix)

    def _factored(self, k: Value, pivots: Value, failed: Value) -> Value:
        """The panel from column k on; failed: the number of the first column without a pivot, or
        0."""
        w, form = self.w, self.form
        behind = add(w, k, w.int(form.width))
        end = w.intrinsic("llvm.smin", "i64", behind, w.int(form.least))

        def column(c: Value, carried: list[Value]) -> list[Value]:
            return [self._column(k, c, pivots, carried[0])]

        return self.nest.loop(k, end, 1, [failed], column)[0]

    def _behind(self, k: Value) -> None:
        """What is right of a panel."""
        behind = add(self.w, k, self.w.int(self.form.width))
        self._solved(k, behind)
        self._lessened(k, behind)

    def _column(self, k: Value, c: Value, pivots: Value, failed: Value) -> Value:
        """Column c of the panel from k on."""
        w, form, panel = self.w, self.form, self.panel
        q = w.binary("sub", c, k)
        p = self._pivot_row(q, c)
        following = add(w, c, w.int(1))
        number = w.cast("trunc", add(w, p, w.int(1)), "i32")
        w.store(number, w.address(pivots, c, "i32"), 4)
        when(self.nest, w.compare("icmp ne", p, c), lambda: self._exchanged(c, p))
        pivot = panel.one(q, c)
        is_zero = w.compare("fcmp oeq", pivot, w.zero(form.scalar))
        self._divided(q, following, pivot, is_zero)

        def reduced(o: Value, _: list[Value]) -> list[Value]:
            self._reduced(q, o, c)
            return []

        # Of an odd number of columns the last goes with one behind the panel, which nobody reads.
        self.nest.loop(add(w, q, w.int(1)), w.int(form.width + 1), 2, [], reduced)
        is_first = w.compare("icmp eq", failed, w.int(0, "i32"))
        here = w.cast("trunc", following, "i32")
        return w.select(w.binary("and", is_zero, is_first), here, failed)

    def _pivot_row(self, q: Value, c: Value) -> Value:
        """The row from c on with the largest element of the panel's column q, the first of equal
        ones; c where that is a NaN, and where all others are."""
        w, form = self.w, self.form
        start = [w.splat(w.float(-1.0, form.scalar), form.lanes), self.splat(c)]

        def larger(i: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            best, where = carried
            x = w.intrinsic("llvm.fabs", form.vector, self.panel.get(q, i))
            is_larger = w.compare("fcmp ogt", x, best)
            if mask is not None:
                is_larger = w.binary("and", is_larger, mask)
            return [w.select(is_larger, x, best), w.select(is_larger, self.numbers(i), where)]

        best, where = self.along(c, start, larger)
        most = self.folded(best, self.larger)
        is_most = w.compare("fcmp oeq", best, w.splat(most, form.lanes))
        rows = w.select(is_most, where, w.splat(w.int(-1, form.integer), form.lanes))
        suffix = f"v{form.lanes}{form.integer}"
        row = w.intrinsic("llvm.vector.reduce.umin", form.integer, rows, suffix=suffix)
        wide = row if form.integer == "i64" else w.cast("zext", row, "i64")
        head = self.panel.one(q, c)
        stays = w.binary(
            "or",
            w.compare("fcmp uno", head, head),
            w.compare("icmp uge", wide, w.int(form.rows)),
        )
        return w.select(stays, c, wide)

    def _exchanged(self, c: Value, p: Value) -> None:
        """Rows c and p change places, in the panel too."""
        w, form = self.w, self.form

        def both(o: Value, _: list[Value]) -> list[Value]:
            upper, lower = self.panel.one(o, c), self.panel.one(o, p)
            self.panel.set(o, c, lower)
            self.panel.set(o, p, upper)
            return []

        def whole(j: Value) -> None:
            upper, lower = self.rows.get(c, j), self.rows.get(p, j)
            self.rows.set(c, j, lower)
            self.rows.set(p, j, upper)

        self.nest.loop(0, form.width, 1, [], both)
        self.over((w.int(0), w.int(form.stride)), whole)

    def _divided(self, q: Value, following: Value, pivot: Value, is_zero: Value) -> None:
        """What lies below a pivot, by it: times its reciprocal, both moved where that is beyond
        the range."""
        w, form = self.w, self.form
        one = w.float(1.0, form.scalar)
        least, lift = (w.float(2.0**e, form.scalar) for e in _TINY[form.scalar])
        height = w.intrinsic("llvm.fabs", form.scalar, pivot)
        up = w.select(w.compare("fcmp olt", height, least), lift, one)
        divisor = w.select(is_zero, one, w.binary("fmul", pivot, up))
        inverse = w.splat(w.binary("fdiv", one, divisor), form.lanes)
        up = w.splat(w.select(is_zero, one, up), form.lanes)
        self._below(following, q, lambda i, x: w.binary("fmul", w.binary("fmul", x, up), inverse))

    def _reduced(self, q: Value, o: Value, c: Value) -> None:
        """Columns o and o + 1 of the panel less L[:, q] times what they have in row c."""
        w, form = self.w, self.form
        both = [o, add(w, o, w.int(1))]
        factors = [w.splat(w.unary("fneg", self.panel.one(n, c)), form.lanes) for n in both]

        def part(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            known = self.panel.get(q, i)
            for n, factor in zip(both, factors, strict=True):
                x = self.panel.get(n, i)
                found = self.product(known, factor, x)
                self.panel.set(n, i, found if mask is None else w.select(mask, found, x))
            return []

        self.along(add(w, c, w.int(1)), [], part)

    def _below(self, row: Value, q: Value, change: Callable[[Value, Value], Value]) -> None:
        """Column q of the panel from a row on becomes change(row, elements), vector by vector."""
        w = self.w

        def part(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            x = self.panel.get(q, i)
            found = change(i, x)
            self.panel.set(q, i, found if mask is None else w.select(mask, found, x))
            return []

        self.along(row, [], part)

    # -- right of a panel --------------------------------------------------------------------

    def _solved(self, k: Value, behind: Value) -> None:
        """The panel's rows of U right of it: row after row less those above."""
        w, form = self.w, self.form
        step = VECTORS * form.lanes

        def tile(j: Value) -> None:
            columns = [add(w, j, w.int(v * form.lanes)) for v in range(VECTORS)]

            def row(r: Value, _: list[Value]) -> list[Value]:
                own = add(w, k, r)

                def less(q: Value, sums: list[Value]) -> list[Value]:
                    above = add(w, k, q)
                    number = self.rows.one(own, above)
                    factor = w.splat(w.unary("fneg", number), form.lanes)
                    pairs = zip(columns, sums, strict=True)
                    return [self.product(factor, self.rows.get(above, j), x) for j, x in pairs]

                sums = self.nest.loop(
                    w.int(0), r, 1, [self.rows.get(own, j) for j in columns], less
                )
                for column, total in zip(columns, sums, strict=True):
                    self.rows.set(own, column, total)
                return []

            self.nest.loop(1, form.width, 1, [], row)

        self.over((behind, w.int(form.columns + step - 1)), tile, step)

    def _lessened(self, k: Value, behind: Value) -> None:
        """What is below and right of the panel less L U."""
        w, form = self.w, self.form

        def some(i: Value, end: Value) -> None:
            def tile(j: Value) -> None:
                upper = [self.rows.get(add(w, k, w.int(q)), j) for q in range(form.width)]
                self.less_products((i, end), (self.columns(k), w.int(0)), j, upper)

            self.over((behind, w.int(form.columns + form.lanes - 1)), tile)

        self.in_blocks(behind, some)
