"""QR factors of matrices, one after the other, as LAPACK's geqrf and orgqr give them.

    geqrf   for a panel of columns: its reflectors H_k = 1 - t_k v_k v_k^T (qr_lanes.py), each on
            the panel's other columns;  H_0 .. H_last = 1 - V T V^T;
            a less V T^T (V^T a) in the columns behind
    orgqr   Q = H_0 .. H_last of the first columns of 1, from the last panel to the first:
            Q less V T (V^T Q)

V has ones on its diagonal and zeros above, and lies by rows; T is upper triangular. A column that
is zero below its diagonal keeps it, with t = 0, as with many small matrices.
Source: blocked Householder QR in compact form (Golub, Van Loan 5.2.3; LAPACK's larft, larfb).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra.matrix_lanes import towards_one
from hlo.backend.kernels.linear_algebra.panels import (
    Grid,
    PanelForm,
    Panels,
    Part,
    panel_form,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.ir.shape import Shape


def qr_kernel(a: Shape, target: Target) -> Kernel | None:
    """The kernel of geqrf: buffers a, factors, t, scratch. None where another way is better."""
    form = panel_form(a, "geqrf", target)
    return None if form is None else _made("QR", _Qr.factor, a, form, form.least, target)


def q_kernel(a: Shape, count: int, target: Target) -> Kernel | None:
    """The kernel of orgqr, for `count` reflectors: buffers a, t, Q, scratch. None where another way
    is better, or matrices are wider than high."""
    form = panel_form(a, "orgqr", target)
    if form is None or not 0 < count <= form.columns <= form.rows:
        return None
    return _made("Q", _Qr.expand, a, form, count, target)


def _made(
    name: str,
    work: Callable[[_Qr, list[Value]], None],
    a: Shape,
    form: PanelForm,
    count: int,
    target: Target,
) -> Kernel:
    """The kernel of some work on an array's matrices. count: of the reflectors."""
    w = Writer()
    buffers = [w.buffer_address(k) for k in range(4)]
    build = _Qr(Nest(w, target), form, buffers[-1])
    build.count = count
    work(build, buffers)
    return build.made(a, 4 * form.size * count // 3, name)


class _Qr(Panels):
    """The kernel's function, or a part of it. Behind the matrix and its panel lie V, T by rows and
    by columns, what it is made of, sums of columns, and the t of a panel."""

    count: int  # of the reflectors, where the whole is written

    def __init__(self, nest: Nest, form: PanelForm, scratch: Value) -> None:
        super().__init__(nest, form, scratch)
        self.v = self.grid(form.height, form.width)
        self.t, self.turned_t, self.gram = (self.grid(form.width, form.width) for _ in range(3))
        self.sums = self.grid(form.width, form.stride)
        self.shares = self.grid(1, form.width)

    def _end(self, k: Value) -> Value:
        """Where the reflectors of a panel end."""
        w = self.w
        behind = add(w, k, w.int(self.form.width))
        return w.intrinsic("llvm.smin", "i64", behind, w.int(self.count))

    # -- factors -----------------------------------------------------------------------------

    def factor(self, buffers: list[Value]) -> None:
        """One unit is one matrix."""
        w, form = self.w, self.form
        a, factors, t, _ = buffers

        def matrix(unit: Value, _: list[Value]) -> list[Value]:
            shares = w.address(t, times(w, unit, form.least), form.scalar)

            def panel(k: Value) -> None:
                end, behind = self._end(k), add(w, k, w.int(form.width))
                self.part(_Qr.take, k)
                self.part(_Qr._factored, k, end, shares)
                self.part(_Qr.give, k)

                def rest() -> None:
                    self.part(_Qr._joined, k, end)
                    self.part(_Qr._reflected, k, behind, self.t.base)

                when(self.nest, w.compare("icmp slt", behind, w.int(form.columns)), rest)

            self.part(_Qr.load, a, unit)
            self.over((w.int(0), w.int(form.reach)), panel, form.width)
            self.part(_Qr.store, factors, unit)
            return []

        self.nest.loop(BEGIN, END, 1, [], matrix)

    def _factored(self, k: Value, end: Value, shares: Value) -> None:
        """The panel from column k on, of which those before `end` become reflectors."""
        self._no_shares()
        self.over((k, end), lambda c: self._column(k, c, shares), 1)

    def _no_shares(self) -> None:
        w, form = self.w, self.form
        zero = w.zero(form.scalar)
        self.over((w.int(0), w.int(form.width)), lambda q: self.shares.set(w.int(0), q, zero), 1)

    def _column(self, k: Value, c: Value, shares: Value) -> None:
        """Column c of the panel from k on becomes a reflector, the panel's others go through it."""
        w, form = self.w, self.form
        q = w.binary("sub", c, k)
        share = self._reflector(q, c)
        self.shares.set(w.int(0), q, share)
        w.store(share, w.address(shares, c, form.scalar), form.item_bytes)

        def others() -> None:
            behind = (add(w, q, w.int(1)), w.int(form.width))
            self.over(behind, lambda o: self._through(q, o, c, share), 1)

        when(self.nest, w.compare("fcmp une", share, w.zero(form.scalar)), others)

    def _reflector(self, q: Value, c: Value) -> Value:
        """t of the panel's column q with its diagonal in row c; below it is v then."""
        w, form = self.w, self.form
        head, zero = self.panel.one(q, c), w.zero(form.vector)
        lanes = form.lanes

        def higher(i: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            x = w.intrinsic("llvm.fabs", form.vector, self.panel.get(q, i))
            x = x if mask is None else w.select(mask, x, zero)
            largest, some = carried
            some = w.binary("or", some, w.compare("fcmp une", x, zero))
            return [self.larger(x, largest), some]

        start = [zero, w.zero(vector_of("i1", lanes))]
        largest, some = self._below(c, start, higher)
        below = self.folded(largest, self.larger)
        size = w.intrinsic("llvm.fabs", form.scalar, head)
        most = self.larger(size, below)
        nearer, back = towards_one(w, form.dtype, most)
        near, many = w.binary("fmul", head, nearer), w.splat(nearer, lanes)

        def square(i: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            x = w.binary("fmul", self.panel.get(q, i), many)
            x = x if mask is None else w.select(mask, x, zero)
            return [self.product(x, x, carried[0])]

        (squares,) = self._below(c, [zero], square)
        total = self.product(near, near, self._sum(squares))
        norm = w.intrinsic("llvm.sqrt", form.scalar, total)
        b = w.unary("fneg", w.intrinsic("llvm.copysign", form.scalar, norm, near))
        apart = w.binary("fsub", near, b)
        is_some = w.any_lane(some)
        share = w.binary("fdiv", w.unary("fneg", apart), b)
        share = w.select(is_some, share, w.zero(form.scalar))

        def reflector() -> None:
            inverse = w.splat(w.binary("fdiv", w.float(1.0, form.scalar), apart), lanes)

            def divided(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
                x = self.panel.get(q, i)
                v = w.binary("fmul", w.binary("fmul", x, many), inverse)
                self.panel.set(q, i, v if mask is None else w.select(mask, v, x))
                return []

            self._below(c, [], divided)
            self.panel.set(q, c, w.binary("fmul", b, back))

        when(self.nest, is_some, reflector)
        return share

    def _through(self, q: Value, o: Value, c: Value, share: Value) -> None:
        """Column o of the panel less t v (v^T column), v below row c of column q."""
        w, form = self.w, self.form
        zero = w.zero(form.vector)

        def along(i: Value, mask: Value | None, carried: list[Value]) -> list[Value]:
            v = self.panel.get(q, i)
            v = v if mask is None else w.select(mask, v, zero)
            return [self.product(v, self.panel.get(o, i), carried[0])]

        (sums,) = self._below(c, [zero], along)
        head = self.panel.one(o, c)
        part = w.unary("fneg", w.binary("fmul", share, w.binary("fadd", head, self._sum(sums))))
        self.panel.set(o, c, w.binary("fadd", head, part))
        parts = w.splat(part, form.lanes)

        def less(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
            x = self.panel.get(o, i)
            found = self.product(self.panel.get(q, i), parts, x)
            self.panel.set(o, i, found if mask is None else w.select(mask, found, x))
            return []

        self._below(c, [], less)

    def _below(
        self,
        c: Value,
        carried: list[Value],
        body: Part,
    ) -> list[Value]:
        """Vectors of rows below one."""
        return self.along(add(self.w, c, self.w.int(1)), carried, body)

    def _sum(self, vector: Value) -> Value:
        """Of the lanes."""
        return self.folded(vector, lambda a, b: self.w.binary("fadd", a, b))

    # -- a panel's reflectors together ---------------------------------------------------------

    def _joined(self, k: Value, end: Value) -> None:
        """V and T of the reflectors from column k to `end`."""
        self._known(k, end)
        self._triangle(k)

    def _known(self, k: Value, end: Value) -> None:
        """V from row and column k on; columns without a reflector are zero."""
        w, form = self.w, self.form
        source, zero = self.columns(k), w.zero(form.vector)
        ones = w.splat(w.float(1.0, form.scalar), form.lanes)

        def row(i: Value) -> None:
            for first in range(0, form.width, form.lanes):
                columns = self.numbers(add(w, k, w.int(first)))
                diagonal, last = self.splat(i), self.splat(end)
                x = source.get(i, w.int(first))
                x = w.select(w.compare("icmp slt", columns, diagonal), x, zero)
                x = w.select(w.compare("icmp eq", columns, diagonal), ones, x)
                x = w.select(w.compare("icmp slt", columns, last), x, zero)
                self.v.set(w.binary("sub", i, k), w.int(first), x)

        self.over((k, w.int(form.height)), row, 1)

    def _triangle(self, k: Value) -> None:
        """T from V and t: column c is -t_c T (V^T v_c), above t_c itself. Its columns lie as rows
        of `turned_t`, T by rows is `t`."""
        w, form = self.w, self.form
        places = [w.int(first) for first in range(0, form.width, form.lanes)]
        zeros = [w.zero(form.vector)] * form.width

        def nothing(place: Value) -> None:
            self._set(self.gram, place, zeros)

        def squared(i: Value, last: Value) -> None:
            rows = (i, w.intrinsic("llvm.smin", "i64", last, w.int(form.rows)))

            def tile(place: Value) -> None:
                own = partial(self._row_of_v, k, place)
                self._add(self.gram, place, self.products(rows, (self.v, k), own, zeros))

            self.over((w.int(0), w.int(form.width)), tile)

        def column(c: Value) -> None:
            share = self.shares.one(w.int(0), c)
            factor = w.splat(w.unary("fneg", share), form.lanes)

            def more(r: Value, carried: list[Value]) -> list[Value]:
                number = w.splat(self.gram.one(r, c), form.lanes)
                pairs = zip(places, carried, strict=True)
                return [self.product(number, self.turned_t.get(r, p), x) for p, x in pairs]

            start = [w.zero(form.vector) for _ in places]
            sums = self.nest.loop(w.int(0), c, 1, start, more)
            for place, total in zip(places, sums, strict=True):
                self.turned_t.set(c, place, w.binary("fmul", total, factor))
            self.turned_t.set(c, c, share)
            across = (w.int(0), w.int(form.width))
            self.over(across, lambda r: self.t.set(r, c, self.turned_t.one(c, r)), 1)

        self.over((w.int(0), w.int(form.width)), nothing)
        self.in_blocks(k, squared)
        self.over((w.int(0), w.int(form.width)), column, 1)

    def _row_of_v(self, k: Value, place: Value, i: Value) -> Value:
        return self.v.get(self.w.binary("sub", i, k), place)

    def _set(self, grid: Grid, j: Value, sums: list[Value]) -> None:
        """Sums in columns j.. of a grid, a row each."""
        for q, total in enumerate(sums):
            grid.set(self.w.int(q), j, total)

    def _add(self, grid: Grid, j: Value, parts: list[Value]) -> None:
        """Parts to such sums: those of some rows each, added up, err less than one long sum."""
        known = [grid.get(self.w.int(q), j) for q in range(len(parts))]
        pairs = zip(known, parts, strict=True)
        self._set(grid, j, [self.w.binary("fadd", total, part) for total, part in pairs])

    def _reflected(self, k: Value, first: Value, triangle: Value) -> None:
        """Columns from `first` on less V (triangle^T (V^T them)), rows from k on. triangle: where T
        or its transpose lies."""
        w, form = self.w, self.form
        factors = Grid(self.nest, form, triangle, form.width)

        def each(tile: Callable[[Value], None]) -> None:
            self.over((first, w.int(form.columns + form.lanes - 1)), tile)

        zeros = [w.zero(form.vector)] * form.width

        def nothing(j: Value) -> None:
            self._set(self.sums, j, zeros)

        def added(i: Value, last: Value) -> None:
            rows = (i, w.intrinsic("llvm.smin", "i64", last, w.int(form.rows)))

            def tile(j: Value) -> None:
                own = self.columns(j)
                more = self.products(rows, (self.v, k), lambda i: own.get(i, w.int(0)), zeros)
                self._add(self.sums, j, more)

            each(tile)

        def turned(j: Value) -> None:
            rows = (w.int(0), w.int(form.width))
            sums = self.products(rows, (factors, w.int(0)), lambda q: self.sums.get(q, j), zeros)
            self._set(self.sums, j, sums)

        def less(i: Value, last: Value) -> None:
            each(lambda j: self.less_products((i, last), (self.v, k), j, self._kept(j)))

        each(nothing)
        self.in_blocks(k, added)
        each(turned)
        self.in_blocks(k, less)

    def _kept(self, j: Value) -> list[Value]:
        """The sums of columns j.."""
        return [self.sums.get(self.w.int(q), j) for q in range(self.form.width)]

    # -- Q -----------------------------------------------------------------------------------

    def expand(self, buffers: list[Value]) -> None:
        """One unit is one matrix."""
        w, form = self.w, self.form
        a, t, result, _ = buffers
        panels = -(-self.count // form.width)

        def matrix(unit: Value, _: list[Value]) -> list[Value]:
            shares = w.address(t, times(w, unit, self.count), form.scalar)

            def panel(n: Value) -> None:
                k = times(w, w.binary("sub", w.int(panels - 1), n), form.width)
                end = self._end(k)
                self.part(_Qr._taken, k, end, shares)
                self.part(_Qr._joined, k, end)
                self.part(_Qr._unit_columns, k, add(w, k, w.int(form.width)))
                self.part(_Qr._reflected, k, k, self.turned_t.base)

            self.part(_Qr.load, a, unit)
            self.part(_Qr._unit_columns, w.int(panels * form.width), w.int(form.columns))
            self.over((w.int(0), w.int(panels)), panel, 1)
            self.part(_Qr.store, result, unit)
            return []

        self.nest.loop(BEGIN, END, 1, [], matrix)

    def _taken(self, k: Value, end: Value, shares: Value) -> None:
        """The t of the reflectors from column k to `end`."""
        w, form = self.w, self.form

        def one(c: Value) -> None:
            share = w.load(w.address(shares, c, form.scalar), form.scalar, form.item_bytes)
            self.shares.set(w.int(0), w.binary("sub", c, k), share)

        self._no_shares()
        self.over((k, end), one, 1)

    def _unit_columns(self, first: Value, end: Value) -> None:
        """Columns of 1, from one on."""
        w, form = self.w, self.form
        zero, one = w.zero(form.scalar), w.float(1.0, form.scalar)

        def column(j: Value) -> None:
            self.over((w.int(0), w.int(form.rows)), lambda i: self.rows.set(i, j, zero), 1)
            self.rows.set(j, j, one)

        self.over((first, end), column, 1)
