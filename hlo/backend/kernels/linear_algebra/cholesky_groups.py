"""Cholesky factors of large matrices that threads share out, a group of rows of U at a time.

    load   a's triangle --> U, in panels
    step   for the groups of columns behind group g, each by itself:
               U[g, j] -= conj(U[p, g]) U[p, j] for the rows p above g
               U[g, j] = U[g, g]^-H U[g, j]
           and the first of them is the next group, whose own square is factored there and then
    next   g + 1; step and next, as often as there are groups
    store  the factor

All that a step needs of other columns is there when it begins, so that its units wait for nobody
and have the same bits for any number of threads.
Source: left-looking Cholesky (Golub, Van Loan 4.2), blocked by rows.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import Parts, element_address
from hlo.backend.kernels.linear_algebra.cholesky_form import Factor, GroupsForm
from hlo.backend.kernels.linear_algebra.cholesky_memory import (
    FAILED,
    SOURCE,
    TARGET,
    UPPER,
    FactorMemory,
)
from hlo.backend.kernels.linear_algebra.groups import GROUP, SHARES
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.loops.schedule import Plan

BLOCK = 16  # Rows of a square that are factored row by row.

INVERSES, STATE = Value("%inverses", "ptr"), Value("%state", "ptr")
PANEL, LOW, FIRST, COUNT, COLUMNS, ROUND = (
    Value(f"%{name}", "i64") for name in ("panel", "low", "first", "count", "columns", "round")
)


def cholesky_groups(factor: Factor, form: GroupsForm, target: Target) -> KernelSequence:
    """The kernels. Buffers: a, the factor, the failures if it reports, then U, the inverses of its
    pivots, and the number of the round with each matrix's first pivot that failed."""
    made = [_Kernel(factor, form, target) for _ in range(4)]
    load, step, following, store = made
    kernels = load.load(), step.step(), following.following(), store.store()
    buffers = tuple(range(load.count))
    first, *middle, last = (KernelCall(kernel, buffers) for kernel in kernels)
    calls = (first, *(form.groups * middle)[:-1], last)
    sizes = factor.batch * form.bytes, factor.batch * form.inverses_bytes, 8 + 4 * factor.batch
    return KernelSequence(calls, sizes, in_place=frozenset({(0, 0)}))


class _Kernel:
    """A kernel under construction."""

    def __init__(self, factor: Factor, form: GroupsForm, target: Target) -> None:
        self.nest = Nest(Writer(), target)
        self.w, self.factor, self.form, self.target = self.nest.w, factor, form, target
        self.count = 5 + factor.reports
        self.buffers = [self.w.buffer_address(k) for k in range(self.count)]
        self.functions: list[Kernel] = []

    def load(self) -> Kernel:
        """A unit is a group of columns of U, or of rows where they are the factor's."""
        w, form = self.w, self.form
        state = self.buffers[-1]

        def group(u: Value, matrix: Value, c: Value) -> None:
            when(self.nest, w.compare("icmp eq", u, w.int(0)), lambda: w.store(w.int(0), state, 8))
            none, at = w.int(0, "i32"), self._failed(matrix)
            when(self.nest, w.compare("icmp eq", c, w.int(0)), lambda: w.store(none, at, 4))
            self._called(_Work.loaded, (*self._memory(matrix), c))

        self._over_units(form.groups, group)
        return self._made("loads", self.factor.batch * form.groups, self._moved)

    def step(self) -> Kernel:
        """A unit is every SHARES-th group of columns."""
        w, form = self.w, self.form
        shares = self._shares

        def share(_: Value, matrix: Value, own: Value) -> None:
            round = w.load(self.buffers[-1], "i64", 8)
            upper = self._memory(matrix)[0]
            pivots = times(w, matrix, form.groups * GROUP)
            inverses = w.address(self.buffers[-2], pivots, form.ring.scalar)
            ahead = w.binary("and", w.binary("sub", own, round), w.int(shares - 1))

            def columns(c: Value, _: list[Value]) -> list[Value]:
                behind = w.compare("icmp ne", round, w.int(0))
                arguments = upper, inverses, c, round
                when(self.nest, behind, lambda: self._called(_Work.behind, arguments))
                is_next = w.compare("icmp eq", c, round)
                own = upper, inverses, self._failed(matrix), round
                when(self.nest, is_next, lambda: self._called(_Work.squared, own))
                return []

            self.nest.loop(add(w, round, ahead), form.groups + shares - 1, shares, [], columns)

        self._over_units(shares, share)
        n, parts = self.factor.size, form.ring.parts
        flops = self.factor.batch * n * n * n * parts**2 // 3 // form.groups
        text = f"groups of columns behind a group of {GROUP} rows, tiles of {form.rows} rows by 2"
        moved = self.factor.batch * form.bytes // 2
        text += f" x {form.ring.lanes} lanes"
        return self._made(text, self.factor.batch * shares, moved, flops)

    def following(self) -> Kernel:
        """The next round."""
        w, state = self.w, self.buffers[-1]
        w.store(add(w, w.load(state, "i64", 8), w.int(1)), state, 8)
        return self._made("next group", 1, 16)

    def store(self) -> Kernel:
        """A unit is a group of rows of the factor."""
        w, form = self.w, self.form

        def group(_: Value, matrix: Value, g: Value) -> None:
            failed = w.load(self._failed(matrix), "i32", 4)
            if self.factor.reports:
                place = w.address(self.buffers[2], matrix, "i32")
                is_first = w.compare("icmp eq", g, w.int(0))
                when(self.nest, is_first, lambda: w.store(failed, place, 4))
            self._called(_Work.stored, (*self._memory(matrix), g, failed))

        self._over_units(form.groups, group)
        return self._made("stores", self.factor.batch * form.groups, self._moved)

    @property
    def _shares(self) -> int:
        return min(SHARES, 1 << (self.form.groups - 1).bit_length())

    def _over_units(self, each: int, body: Callable[[Value, Value, Value], None]) -> None:
        """body(unit, its matrix, which of `each` parts of the matrix)."""
        w = self.w

        def unit(u: Value, _: list[Value]) -> list[Value]:
            matrix = divided(w, u, each) if self.factor.batch > 1 else w.int(0)
            body(u, matrix, w.binary("sub", u, times(w, matrix, each)))
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _memory(self, matrix: Value) -> tuple[Value, Value, Value]:
        """A matrix's U, where it lies, and its result."""
        w, form, n = self.w, self.form, self.factor.size
        scalars = times(w, matrix, form.plane * form.ring.parts)
        upper = w.address(self.buffers[-3], scalars, form.ring.scalar)
        first = times(w, matrix, n * n)
        a, result = (element_address(w, b, first, self.factor.dtype) for b in self.buffers[:2])
        return upper, a, result

    def _failed(self, matrix: Value) -> Value:
        """Where the number of a matrix's first pivot that failed is."""
        w = self.w
        return w.address(self.buffers[-1], add(w, matrix, w.int(2)), "i32")

    def _called(self, part: Callable[[_Work], Kernel], arguments: tuple[Value, ...]) -> None:
        found = _functions(part, self.form, self.target)
        self.functions += found
        call(self.w, found[-1], *arguments)

    @property
    def _moved(self) -> int:
        """Bytes of the matrices, in and out."""
        factor = self.factor
        return 2 * factor.batch * factor.size**2 * factor.dtype.item_bytes

    def _made(self, text: str, units: int, moved: int, flops: int = 0) -> Kernel:
        w, factor = self.w, self.factor
        w.ret()
        kernel = Kernel(
            w.function(has_entry=True),
            units,
            *w.beside,
            functions=tuple(self.functions),
            bytes_moved=moved,
            flops=flops,
        )
        n = factor.size
        shown = f"Cholesky: {n} x {n}, batch of {factor.batch}: {text}"
        return self.target.shown(kernel, lambda: Plan((shown,)))


class _Work(FactorMemory):
    """A function that a kernel calls."""

    form: GroupsForm

    def __init__(self, nest: Nest, form: GroupsForm) -> None:
        super().__init__(nest, form)
        self.functions: list[Kernel] = []

    def loaded(self) -> Kernel:
        """Group COLUMNS of columns of U, or of rows."""
        w = self.w
        if self.factor.lower and self.factor.size % GROUP:
            is_last = w.compare("icmp eq", COLUMNS, w.int(self.form.groups - 1))
            when(self.nest, is_last, self._clear)
        self.load(*self._ends(COLUMNS), reach=GROUP)
        return as_function(w, (UPPER, SOURCE, TARGET, COLUMNS))

    def stored(self) -> Kernel:
        """Group COLUMNS of rows of the factor."""
        self.store(*self._ends(COLUMNS), FAILED)
        return as_function(self.w, (UPPER, SOURCE, TARGET, COLUMNS, FAILED))

    def behind(self) -> Kernel:
        """The rows of the group before ROUND in group COLUMNS of columns."""
        w = self.w
        first = times(w, add(w, ROUND, w.int(-1)), GROUP)
        reduced, solved = self._function(_Work.reduced), self._function(_Work.solved)

        def panel(t: Value) -> None:
            call(w, reduced, UPPER, t, w.int(0), first, w.int(GROUP))
            call(w, solved, UPPER, INVERSES, t, first)

        self._over_panels(COLUMNS, panel)
        return as_function(w, (UPPER, INVERSES, COLUMNS, ROUND))

    def squared(self) -> Kernel:
        """The square of group ROUND: a block of rows less those above it, then row by row."""
        w = self.w
        first = times(w, ROUND, GROUP)
        reduced, factored = self._function(_Work.reduced), self._function(_Work.factored)

        def less(low: Value, row: Value, count: int) -> None:
            self._over_panels(ROUND, lambda t: call(w, reduced, UPPER, t, low, row, w.int(count)))

        def block(k: Value) -> None:
            row = add(w, first, k)
            less(first, row, BLOCK)
            call(w, factored, UPPER, INVERSES, STATE, first, row)

        less(w.int(0), first, GROUP)
        self.over(0, GROUP, BLOCK, block)
        return as_function(w, (UPPER, INVERSES, STATE, ROUND))

    def factored(self) -> Kernel:
        """Rows LOW .. LOW + BLOCK of the square from row and column FIRST on."""
        w, n, form = self.w, self.numbers, self.form
        end, block_end = add(w, FIRST, w.int(GROUP)), add(w, LOW, w.int(BLOCK))

        def vectors(row: Value, change: Callable[[Value, Parts], Parts]) -> None:
            first = w.binary("and", row, w.int(-n.lanes))
            self.over(
                first, end, n.lanes, lambda j: self.set(row, j, 0, change(j, self.get(row, j, 0)))
            )

        def row(k: Value) -> None:
            pivot = self.one(k, k)[0]
            self._check(pivot, k)
            root = w.intrinsic("llvm.sqrt", pivot.type, pivot)
            inverse = w.binary("fdiv", w.float(1.0, pivot.type), root)
            w.store(inverse, w.address(INVERSES, k, form.ring.scalar), form.ring.scalar_bytes)
            scale = w.splat(inverse, n.lanes)
            vectors(k, lambda _, known: n.scaled(known, scale))
            exact = (root, w.zero(root.type))[: n.parts]
            n.set_planes(UPPER, form.at(w, k, k), form.plane, exact)

            def below(q: Value) -> None:
                factor = n.splat(n.conjugate(self.one(k, q)), n.lanes)
                vectors(q, lambda j, known: n.less_product(known, factor, self.get(k, j, 0)))

            self.over(add(w, k, w.int(1)), block_end, 1, below)

        self.over(LOW, block_end, 1, row)
        return as_function(w, (UPPER, INVERSES, STATE, FIRST, LOW))

    def _check(self, pivot: Value, k: Value) -> None:
        """Keep the number of the first pivot that is not positive, counted from 1, of those that
        the matrix has."""
        w = self.w
        known = w.load(STATE, "i32", 4)
        bad = w.compare("fcmp ule", pivot, w.zero(pivot.type))
        inside = w.compare("icmp slt", k, w.int(self.factor.size))
        first = w.compare("icmp eq", known, w.int(0, "i32"))
        here = w.binary("and", w.binary("and", bad, inside), first)
        number = w.cast("trunc", add(w, k, w.int(1)), "i32")
        w.store(w.select(here, number, known), STATE, 4)

    def reduced(self) -> Kernel:
        """COUNT of panel PANEL's rows from FIRST on less what rows LOW .. FIRST account for."""
        w, form = self.w, self.form
        rows = form.rows_near(self.nest.target.machine)

        def chunk(p: Value) -> None:
            end = w.intrinsic("llvm.smin", "i64", add(w, p, w.int(rows)), FIRST)
            self.over(0, COUNT, form.rows, lambda r: self._tile((p, end), add(w, FIRST, r)))

        self.over(LOW, FIRST, rows, chunk)
        return as_function(w, (UPPER, PANEL, LOW, FIRST, COUNT))

    def _tile(self, ends: tuple[Value, Value], start: Value) -> None:
        """A tile of panel PANEL's rows from start on, less what some rows account for."""
        n, rows = self.numbers, self.form.rows
        places = self._places(start, rows)
        totals = self._less(ends, start, self._loaded(places), rows)
        for place, total in zip(places, totals, strict=True):
            n.set_planes(UPPER, place, self.form.plane, total)

    def solved(self) -> Kernel:
        """Panel PANEL's rows from FIRST on by the square of their group."""
        w, n, form = self.w, self.numbers, self.form
        rows = min(form.rows, 4)  # Their code grows with the square.

        def block(k: Value) -> None:
            start = add(w, FIRST, k)
            places = self._places(start, rows)
            totals = self._less((FIRST, start), start, self._loaded(places), rows)
            for r in range(rows):
                row = add(w, start, w.int(r))
                at = w.address(INVERSES, row, form.ring.scalar)
                inverse = w.splat(w.load(at, form.ring.scalar, form.ring.scalar_bytes), n.lanes)
                own = [n.scaled(totals[2 * r + v], inverse) for v in range(2)]
                for v in range(2):
                    n.set_planes(UPPER, places[2 * r + v], form.plane, own[v])
                for q in range(r + 1, rows):
                    factor = self._factor(form.at(w, row, start), q)
                    for v in range(2):
                        totals[2 * q + v] = n.less_product(totals[2 * q + v], factor, own[v])

        self.over(0, GROUP, rows, block)
        return as_function(w, (UPPER, INVERSES, PANEL, FIRST))

    def _places(self, start: Value, rows: int) -> list[Value]:
        """Where the two vectors of each of panel PANEL's rows from start on are."""
        return [self._place(add(self.w, start, self.w.int(r)), v)
                for r in range(rows) for v in range(2)]  # fmt: skip

    def _loaded(self, places: list[Value]) -> list[Parts]:
        n = self.numbers
        return [n.planes(UPPER, place, self.form.plane, n.lanes) for place in places]

    def _less(
        self, ends: tuple[Value, Value], start: Value, totals: list[Parts], rows: int
    ) -> list[Parts]:
        """totals less conj(U[p, start + r]) U[p, j] for rows p between ends."""
        w, n, form = self.w, self.numbers, self.form
        factors = form.at(w, w.int(0), start)

        def numbers(flat: list[Value]) -> list[Parts]:
            return [tuple(flat[i : i + n.parts]) for i in range(0, len(flat), n.parts)]

        def row(p: Value, carried: list[Value]) -> list[Value]:
            totals = numbers(carried)
            vectors = self._loaded([self._place(p, v) for v in range(2)])
            at = add(w, factors, times(w, p, form.width))
            for r in range(rows):
                factor = self._factor(at, r)
                for v in range(2):
                    totals[2 * r + v] = n.less_product(totals[2 * r + v], factor, vectors[v])
            return [part for total in totals for part in total]

        flat = [part for total in totals for part in total]
        return numbers(self.nest.loop(*ends, 1, flat, row))

    def _factor(self, first: Value, r: int) -> Parts:
        """The conjugate of the r-th number behind a place, in all lanes."""
        w, n = self.w, self.numbers
        one = n.planes(UPPER, add(w, first, w.int(r)), self.form.plane, 1)
        return n.splat(n.conjugate(one), n.lanes)

    def _place(self, row: Value, v: int) -> Value:
        """Where the v-th vector of panel PANEL's row is."""
        w, form = self.w, self.form
        at = add(w, times(w, PANEL, form.panel_size), times(w, row, form.width))
        return add(w, at, w.int(v * self.numbers.lanes))

    def _clear(self) -> None:
        """Zeros in the last group's panels, whose columns beyond the matrix stay so: left-over
        subnormals would be slow."""
        w, n, form = self.w, self.numbers, self.form
        zero, size = n.ring.zero(w, n.lanes), form.panels * form.panel_size
        first = (form.groups - 1) * size

        def vector(at: Value) -> None:
            n.set_planes(UPPER, at, form.plane, zero)

        self.over(first, first + size, n.lanes, vector)

    def _function(self, part: Callable[[_Work], Kernel]) -> Kernel:
        """Another function, which this one calls."""
        found = _functions(part, self.form, self.nest.target)
        self.functions += found
        return found[-1]

    def _ends(self, group: Value) -> tuple[Value, Value]:
        """A group's rows, those that the matrix has."""
        w = self.w
        first = times(w, group, GROUP)
        size = w.int(self.factor.size)
        return first, w.intrinsic("llvm.smin", "i64", add(w, first, w.int(GROUP)), size)

    def _over_panels(self, group: Value, body: Callable[[Value], object]) -> None:
        """body for each panel of a group of columns."""
        w, panels = self.w, self.form.panels
        first = times(w, group, panels)
        self.over(first, add(w, first, w.int(panels)), 1, body)


def _functions(part: Callable[[_Work], Kernel], form: GroupsForm, target: Target) -> list[Kernel]:
    """A part of the work as a function, the last one, behind those that it calls."""
    work = _Work(Nest(Writer(), target), form)
    function = part(work)
    return [*work.functions, function]
