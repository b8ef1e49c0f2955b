"""LU factors of matrices, one after the other: P a = L U, as LAPACK's getrf gives them.

    for a panel of columns:
        for k in it:  p = the first row from k on with the largest |a[p, k]|;  rows k, p exchanged
                      L[i, k] = a[i, k] / a[k, k];  a[i, q] -= L[i, k] a[k, q] for q in the panel
        U = L^-1 a in its rows, a less L U in those below

A column without a pivot is left as it is, and its number (from 1) reported. Many small matrices are
factored a matrix a lane (lu_lanes.py), large ones by all threads together (lu_groups.py).
Source: blocked right-looking elimination with partial pivoting (Golub, Van Loan 3.4.1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
    build = LuPanels(Nest(w, target), form, buffers[-1])
    build.write(buffers)
    return build.made(a, form.size * form.least * 2 // 3, "LU")


class LuPanels(Panels):
    """The kernel's function, or a part of it."""

    def write(self, buffers: list[Value]) -> None:
        """One unit is one matrix."""
        w, form = self.w, self.form
        a, factors, pivots, failures, _ = buffers

        def matrix(unit: Value, _: list[Value]) -> list[Value]:
            places = w.address(pivots, times(w, unit, form.least), "i32")
            self.part(LuPanels.load, a, unit)

            def panel(k: Value, carried: list[Value]) -> list[Value]:
                failed = self.panelled(k, places, *carried)
                self.part(LuPanels._behind, k)
                return [failed]

            none = [w.int(0, "i32")]
            (failed,) = self.nest.loop(0, form.reach, form.width, none, panel)
            self.part(LuPanels.store, factors, unit)
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

    def panelled(self, k: Value, pivots: Value, failed: Value) -> Value:
        """The panel from column k on by itself; failed: as of the one before, of this one."""
        self.part(LuPanels.take, k)
        failed = self.part(LuPanels._factored, k, pivots, failed, type="i32")
        self.part(LuPanels.give, k)
        return failed

    def _behind(self, k: Value) -> None:
        """What is right of the panel from k on."""
        behind, end = add(self.w, k, self.w.int(self.form.width)), self.w.int(self.form.columns)
        self._solved(k, behind, end, VECTORS)
        self._lessened(k, behind, end)

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

        step = form.strip if form.has_strips else form.lanes

        def whole(j: Value) -> None:
            strip = self.columns(j)
            rows = strip.near(c), strip.near(p)
            for v in range(step // form.lanes):
                place = w.int(0), w.int(v * form.lanes)
                upper, lower = (row.get(*place) for row in rows)
                rows[0].set(*place, lower)
                rows[1].set(*place, upper)

        self.nest.loop(0, form.width, 1, [], both)
        self.over((w.int(0), w.int(form.stride)), whole, step)

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

    def _solved(self, k: Value, low: Value, high: Value, vectors: int) -> None:
        """The panel's rows of U right of it: row after row less those above."""
        w, form = self.w, self.form
        step = vectors * form.lanes

        def tile(j: Value) -> None:
            places = [add(w, j, w.int(v * form.lanes)) for v in range(vectors)]
            tile = [self.columns(place).near(k) for place in places]
            here = w.int(0)

            def row(r: Value, _: list[Value]) -> list[Value]:
                lower = self.columns(k).near(add(w, k, r))

                def less(q: Value, sums: list[Value]) -> list[Value]:
                    factor = w.unary("fneg", self.splat_of(lower, here, q))
                    pairs = zip(tile, sums, strict=True)
                    return [self.product(factor, own.get(q, here), x) for own, x in pairs]

                start = [own.get(r, here) for own in tile]
                sums = self.nest.loop(w.int(0), r, 1, start, less)
                for own, total in zip(tile, sums, strict=True):
                    own.set(r, here, total)
                return []

            self.nest.loop(1, form.width, 1, [], row)

        self.over((low, add(w, high, w.int(step - 1))), tile, step)

    def _lessened(self, k: Value, low: Value, high: Value) -> None:
        """What is below the panel from k on, and in columns low .. high, less L U."""
        w, form = self.w, self.form

        def some(i: Value, end: Value) -> None:
            def tile(j: Value) -> None:
                own = self.columns(j).near(k)
                upper = [own.get(w.int(q), w.int(0)) for q in range(form.width)]
                self.less_products((i, end), (self.columns(k), w.int(0)), j, upper)

            self.over((low, add(w, high, w.int(form.lanes - 1))), tile)

        self.in_blocks(add(w, k, w.int(form.width)), some)

    # -- a tile of strips --------------------------------------------------------------------

    def solved(self, k: Value, ends: tuple[Value, Value], vectors: int) -> None:
        """The panel's rows of U in columns right of it, so many vectors at a time."""
        self.part(partial(LuPanels._solved, vectors=vectors), k, *ends)

    def reduced(
        self, panels: tuple[Value, Value], j: Value, rows: tuple[Value, Value], vectors: int
    ) -> None:
        """Rows, below the panels from one column to another, less L U in so many vectors from
        column j on: the products of all these panels stay in registers. What fills the last tile
        of rows is changed, too."""
        self.part(partial(LuPanels._reduced_tile, vectors=vectors), *panels, j, *rows)

    def _reduced_tile(
        self, first: Value, last: Value, j: Value, low: Value, high: Value, *, vectors: int
    ) -> None:
        w, form = self.w, self.form
        count = max(1, self.nest.target.machine.registers // (2 * vectors))
        own = self.columns(j)
        columns = [w.int(v * form.lanes) for v in range(vectors)]
        places = [(w.int(r), c) for r in range(count) for c in columns]

        def rows(i: Value) -> None:
            tile = own.near(i)

            def panel(k: Value, totals: list[Value]) -> list[Value]:
                factors, upper = self.columns(k).near(i), own.near(k)

                def less(q: Value, totals: list[Value]) -> list[Value]:
                    known, number = upper.near(q), factors.near(w.int(0), q)
                    found = [known.get(w.int(0), c) for c in columns]
                    ones = [self.splat_of(number, w.int(r), w.int(0)) for r in range(count)]
                    pairs = [(w.unary("fneg", a), x) for a in ones for x in found]
                    return [self.product(*p, t) for p, t in zip(pairs, totals, strict=True)]

                return self.nest.loop(0, form.width, 1, totals, less)

            start = [tile.get(*place) for place in places]
            found = self.nest.loop(first, last, form.width, start, panel)
            for place, total in zip(places, found, strict=True):
                tile.set(*place, total)

        self.over((low, add(w, high, w.int(count - 1))), rows, count)
