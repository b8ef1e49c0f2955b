"""A direct convolution of few results by long windows, as gradients of kernels are.

All results of some rows have their sums in registers, while taps of a row are a loop.

    for unit (part of what is summed, image, block of rows of results, some vectors of features):
        for image summed:                                            # units are parallel
            for tap of the outer dimensions that meets the base: for vector of features:
                for tap of the row: sums += ..
            totals += sums
        totals to the results

An element of the kernel serves all results of a block, one of the base those that meet it. A row
of taps that only some rows of results meet is added for each of them apart, so that taps beside the
base are left out. Sums of a row of taps are added up by image, and these then, so that chains of
additions are short. Where features are few the images are summed in parts, which a kernel adds
up: how many follows from sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.direct_convolution import Along
from hlo.backend.ir.arithmetic import add, advanced, shared, split_index, times
from hlo.backend.ir.control import each, loop, ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence, Sums, Work
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.direct.form import Direct, Given, met_of
from hlo.backend.kernels.contraction.problem.axes import Axis, Contraction, Operand
from hlo.backend.kernels.contraction.problem.result import Result
from hlo.backend.kernels.contraction.problem.ring import partial_type
from hlo.backend.kernels.contraction.products.parts_nest import parts_schedule
from hlo.backend.kernels.contraction.products.split_k import (
    parts_sums,
    sum_kernel,
)
from hlo.backend.loops.schedule import Plan
from hlo.machine import ALIGNMENT

TAPS = 4  # Taps of a row in a round.
FEWEST_UNITS = 16  # Below, what is summed goes in parts.
TOGETHER = 8  # Vectors of features at most that a unit takes.
LEAST_RUN = 4  # And at least, where they come from far.
Places = tuple[Value, Value]  # In base and kernel.


class Rows(Struct, frozen=True):
    """The results of a unit: `rows` outputs of a dimension from one on; all of a row."""

    along: Along
    first: Value
    count: int


class Ahead(Struct, frozen=True):
    """What one row of taps asks for of the next one: of which of a unit's rows, by how many
    elements it lies behind in the base and in the kernel.
    """

    rows: tuple[int, ...]
    base: int
    kernel: int


class DirectTaps(Direct):
    """The kernel with loops over taps. buffers: base, kernel, result, what the epilogue reads."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        form, ring, dtypes = given.form, given.ring, given.dtypes
        self.row_results = form.row.outputs
        most = max(1, (ring.registers - TAPS - 1) // self.row_results)
        rows = self.blocked.outputs if self.blocked else 1
        self.blocks = -(-rows // most)
        self.rows = -(-rows // self.blocks)
        self.groups, self.parts = self._units()
        is_parted = self.parts > 1
        held = partial_type(ring) if is_parted else dtypes[2]
        self.result = Result(self.w, replace(ring, result=held) if is_parted else ring, held, 2,
                             None if is_parted else given.epilogue)  # fmt: skip
        self.memory_of_sums = [
            self.w.alloca(
                f"[{self.sums * -(-self.vectors // self.groups)} x {self.type}]", ALIGNMENT
            )
            for _ in range(2)
        ]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the units' numbers, beside the part."""
        outer = (a.outputs for a in self.outer)
        return (self.form.images.size, *outer, self.blocks, self.groups)

    @property
    def sums(self) -> int:
        """Of a vector of features."""
        return self.rows * self.row_results

    def _units(self) -> tuple[int, int]:
        """Groups of vectors, which lie side by side in long runs, and parts of what is summed:
        enough for units; then shorter runs, if there are not. 8 images of 112 x 112 x 96, windows
        of 3 x 3 in steps of 2, took 0.75 of the time in runs of 6 vectors instead of 3 (Zen 4).
        """
        form = self.form
        others = form.images.size * prod(a.outputs for a in self.outer) * self.blocks
        groups = -(-self.vectors // TOGETHER)
        parts = max(1, min(form.summed.size, FEWEST_UNITS // (others * groups)))
        most = max(1, self.vectors // LEAST_RUN) if self.asks_ahead else self.vectors
        groups = max(groups, min(most, FEWEST_UNITS // (others * parts)))
        return groups, parts

    @property
    def chain(self) -> int:
        """Additions that a term goes through: of a row's taps, of an image's rows, of images."""
        form = self.form
        inputs = 1 if form.is_batch else form.inputs
        taps = prod(a.window.size for a in form.rows)
        return form.row.window.size * inputs + taps + -(-form.summed.size // self.parts)

    @property
    def stores_once(self) -> bool:
        rows = self.blocked.outputs if self.blocked else 1
        return not self.overlaps and self.rows * self.blocks == rows

    @property
    def lines(self) -> tuple[str, ...]:
        """How it works, for people."""
        results = f"{self.rows} x {self.row_results}"
        return (
            f"direct: {results} results by {self.lanes} lanes of features in registers, over taps",
            f"parts: {self.parts} of what is summed",
        )

    @classmethod
    def sequence(
        cls, given: Given, places: tuple[tuple[int, ...], tuple[int, ...]]
    ) -> KernelSequence:
        """The kernel, and the sum of its parts. places: of the factors, and of all others."""
        form, ring, dtypes, epilogue = given.form, given.ring, given.dtypes, given.epilogue
        made = cls(given)
        kernel = ring.target.shown(made.kernel_of(), partial(Plan, made.lines))
        factors, others = places
        sums = Sums("direct", made.chain)
        if made.parts == 1:
            pairs = epilogue.in_place if epilogue and made.stores_once else frozenset()
            return KernelSequence((KernelCall(kernel, (*factors, *others)),), (), pairs, sums=sums)
        size, parts, features = made.results, made.parts, form.features
        whole = Contraction(
            batch=(),
            rows=(Axis(size // features, out=features),),
            columns=(Axis(features, out=1),),
            depth=(Axis(1),),
            lhs=Operand(dtypes[0], 0),
            rhs=Operand(dtypes[1], 1),
            out=dtypes[2],
        )
        summing = ring.target.shown(
            sum_kernel(whole, ring, parts, epilogue),
            partial(parts_schedule, whole, ring, parts, epilogue),
        )
        place = given.buffers.temporaries
        return KernelSequence(
            (KernelCall(kernel, (*factors, place)), KernelCall(summing, (place, *others))),
            (parts * size * ring.scalar_bytes,),
            epilogue.in_place if epilogue else frozenset(),
            sums=parts_sums(sums, parts),
        )

    @property
    def results(self) -> int:
        form = self.form
        images = form.images.size * (form.inputs if form.is_batch else 1)
        return images * prod(a.outputs for a in form.along) * form.features

    def kernel_of(self) -> Kernel:
        w, form = self.w, self.form
        sizes = (self.parts, *self.sizes)
        ranged(w, BEGIN, END, lambda unit: self._unit(split_index(w, unit, sizes)))
        inputs = 1 if form.is_batch else form.inputs
        terms = form.summed.size * inputs * prod(a.window.size for a in form.along)
        vectors = self.results / form.features * self.vectors
        base = form.images.size * form.summed.size * prod(a.size for a in form.along)
        base *= form.features // form.outputs * form.inputs * self.dtypes[0].item_bytes
        taps = form.summed.size * inputs * prod(a.window.size for a in form.along)
        moved = self.blocks * (base + taps * form.features * self.dtypes[1].item_bytes)
        return Kernel(
            w.kernel_function(),
            prod(sizes),
            *w.beside,
            flops=2 * self.results * terms,
            work=Work(
                instructions=vectors * terms * (1 + self.permuted),
                sums=vectors * self.parts,
                moved=moved,  # some vectors of each position, far from those of the next
                reach=moved // self.blocks,
            ),
        )

    @property
    def permuted(self) -> float:
        """Permutations for a product: each place that a round of taps meets has one, where elements
        serve several lanes.
        """
        form, row = self.form, self.form.row
        if form.inputs == form.outputs == 1:
            return 0.0
        window = row.window
        places = (TAPS - 1) * window.window_dilation + (self.row_results - 1) * window.stride + 1
        return places / (TAPS * self.row_results)

    # -- a unit ----------------------------------------------------------------------------------

    def _unit(self, numbers: list[Value]) -> None:
        w, form = self.w, self.form
        part, image, *outer, block, group = numbers
        self.own = shared(w, group, self.vectors, self.groups)
        self.count = w.binary("sub", self.own[1], self.own[0])
        out = times(w, image, form.images.out)
        for along, output in zip(self.outer, outer, strict=True):
            out = add(w, out, times(w, output, along.out))
        rows: Rows | None = None
        if self.blocked is not None:
            last = w.int(self.blocked.outputs - self.rows)
            first = w.intrinsic("llvm.umin", "i64", times(w, block, self.rows), last)
            rows = Rows(self.blocked, first, self.rows)
            out = add(w, out, times(w, first, self.blocked.out))
        out = add(w, out, times(w, part, self.results))
        base = times(w, image, form.images.lhs)
        kernels = w.int(self.first_taps())
        begin, end = shared(w, part, form.summed.size, self.parts)
        for number in range(form.inputs if form.is_batch else 1):
            self._each_sum(lambda k: self._put(1, k, self.zero))

            def summed(n: Value, number: int = number) -> None:
                self._each_sum(lambda k: self._put(0, k, self.zero))
                places = (
                    self.place(0, add(w, base, times(w, n, form.summed.lhs))),
                    self.place(1, add(w, kernels, times(w, n, form.summed.rhs))),
                )

                def inner(places: Places, _: list[Value]) -> list[Value]:
                    self._block(places, rows, number)
                    return []

                self.under_taps(self.outer, outer, places, [], inner)
                self._each_sum(
                    lambda k: self._put(1, k, self.added(self._got(1, k), self._got(0, k)))
                )

            each(w, begin, end, summed)
            self._store(add(w, out, w.int(number * form.group.out)))

    def _each_sum(self, body: Callable[[Value], None]) -> None:
        each(self.w, self.w.int(0), times(self.w, self.count, self.sums), body)

    def _store(self, index: Value) -> None:
        w, form = self.w, self.form

        def vector(v: Value) -> None:
            first = add(w, index, self.feature(add(w, self.own[0], v)))

            def row(r: Value) -> None:
                at = add(w, first, times(w, r, self.blocked.out if self.blocked else 0))
                number = add(w, times(w, v, self.sums), times(w, r, self.row_results))

                def result(x: Value) -> None:
                    place = add(w, at, times(w, x, form.row.out))
                    self.result.store((self._got(1, add(w, number, x)),), place, 1, None)

                each(w, w.int(0), w.int(self.row_results), result)

            each(w, w.int(0), w.int(self.rows), row)

        each(w, w.int(0), self.count, vector)

    def _place_of_sum(self, which: int, number: Value | int) -> Value:
        return advanced(self.w, self.memory_of_sums[which], number, self.type)

    def _got(self, which: int, number: Value | int) -> Value:
        return self.w.load(self._place_of_sum(which, number), self.type, self.ring.scalar_bytes)

    def _put(self, which: int, number: Value | int, value: Value) -> None:
        self.w.store(value, self._place_of_sum(which, number), self.ring.scalar_bytes)

    # -- rows of taps ----------------------------------------------------------------------------

    def _block(self, places: Places, rows: Rows | None, number: int) -> None:
        """What all rows of taps give to a unit's results. places: in row 0 of both."""
        w = self.w
        if rows is None:
            self._row(places, [w.int(0)], w.int(0), number)
            return
        ranges = []
        for r in range(rows.count):
            first, count = self.range_of(rows.along, add(w, rows.first, w.int(r)))
            ranges.append((first, add(w, first, count)))
        first, end = ranges[0]
        for low, high in ranges[1:]:
            first = w.intrinsic("llvm.smax", "i64", first, low)
            end = w.intrinsic("llvm.smin", "i64", end, high)
        end = w.intrinsic("llvm.smax", "i64", end, first)
        every = [w.int(r) for r in range(rows.count)]
        ranged(w, first, end, lambda tap: self._tap(places, rows, tap, (every, w.int(0)), number))
        if rows.count > 1:
            each(w, w.int(0), w.int(rows.count), lambda r: self._apart(
                places, rows, r, (first, end), number
            ))  # fmt: skip

    def _apart(
        self, places: Places, rows: Rows, r: Value, met: tuple[Value, Value], number: int
    ) -> None:
        """The taps that one row of results meets and not all rows do: before and behind those."""
        w = self.w
        first, count = self.range_of(rows.along, add(w, rows.first, r))
        end = add(w, first, count)
        before = w.intrinsic("llvm.smin", "i64", end, met[0])
        behind = w.intrinsic("llvm.smax", "i64", first, met[1])

        def side(s: Value) -> None:
            is_first = w.compare("icmp eq", s, w.int(0))
            low, high = w.select(is_first, first, behind), w.select(is_first, before, end)
            at = times(w, r, self.row_results)
            ranged(w, low, high, lambda tap: self._tap(places, rows, tap, ([r], at), number))

        each(w, w.int(0), w.int(2), side)

    def _tap(
        self,
        places: Places,
        rows: Rows,
        tap: Value,
        results: tuple[list[Value], Value],
        number: int,
    ) -> None:
        """A tap of the rows' dimension. results: which of the unit's rows it is for, and where
        their sums are."""
        w, along = self.w, rows.along
        bases = []
        for r in results[0]:
            output = add(w, rows.first, r)
            element = add(w, times(w, output, along.window.stride), w.int(-along.window.pad_low))
            element = add(w, element, times(w, tap, along.window.window_dilation))
            bases.append(times(w, element, along.lhs))
        kernel = self.moved(places[1], times(w, tap, along.tap), 1)
        ahead = self._ahead(along) if len(bases) == rows.count else None
        self._row((places[0], kernel), bases, results[1], number, ahead)

    def _ahead(self, along: Along) -> Ahead | None:
        """What the next tap of the rows' dimension is the first to read."""
        window = along.window
        if not self.asks_ahead:
            return None
        last = (self.rows - 1) * window.stride
        rows = [r for r in range(self.rows) if r * window.stride + window.window_dilation > last]
        return Ahead(tuple(rows), window.window_dilation * along.lhs, along.tap)

    def _row(
        self,
        places: Places,
        bases: list[Value],
        at: Value,
        number: int,
        ahead: Ahead | None = None,
    ) -> None:
        """A row of taps for some rows of results, whose rows of the base begin at `bases`; their
        sums are those from number `at` of each vector of features on. ahead: what is asked for
        meanwhile.
        """
        w, form = self.w, self.form

        def vector(v: Value) -> None:
            feature = self.feature(add(w, self.own[0], v))
            own = self.base_feature(feature)
            rows = [self.moved(places[0], add(w, base, own), 0) for base in bases]
            kernel = self.moved(places[1], feature, 1)
            totals = [self.zero] * (len(rows) * self.row_results)
            if form.is_batch:
                totals = self._taps(totals, rows, kernel, number, ahead)
            else:
                for n in range(form.inputs):
                    there = self.moved(kernel, w.int(n * form.group.rhs), 1)
                    totals = self._taps(totals, rows, there, n, None if n else ahead)
            first = add(w, times(w, v, self.sums), at)
            for k, total in enumerate(totals):
                place = add(w, first, w.int(k))
                self._put(0, place, self.added(self._got(0, place), total))

        each(w, w.int(0), self.count, vector)

    def _taps(
        self,
        totals: list[Value],
        rows: list[Value],
        kernel: Value,
        number: int,
        ahead: Ahead | None,
    ) -> list[Value]:
        """The row's taps: those at the ends one by one, as some results have none there."""
        w, row = self.w, self.form.row
        size, met = row.window.size, row.met
        low, high = (met[0], met[-1] + 1) if met else (size, size)
        rounds = (high - low) // TAPS
        for tap in range(low):
            totals = self._few(totals, rows, kernel, [tap], number)

        def some(n: Value, totals: list[Value]) -> list[Value]:
            step = times(w, n, TAPS)
            moved = times(w, step, row.window.window_dilation * row.lhs)
            there = [self.moved(place, moved, 0) for place in rows]
            own = self.moved(kernel, times(w, step, row.tap), 1)
            if ahead is not None:
                self._ask(ahead, there, own)
            return self._few(totals, there, own, range(low, low + TAPS), number)

        if rounds:
            totals = loop(w, w.int(rounds), totals, some)
        for tap in range(low + rounds * TAPS, size):
            totals = self._few(totals, rows, kernel, [tap], number)
        return totals

    def _ask(self, ahead: Ahead, rows: list[Value], kernel: Value) -> None:
        """Ask for the elements that a round's taps move over, and for theirs of the kernel."""
        w, row = self.w, self.form.row
        for r, n in product(ahead.rows, range(TAPS * row.window.window_dilation)):
            w.prefetch(self.moved(rows[r], w.int(ahead.base + n * row.lhs), 0), locality=2)
        for n in range(TAPS):
            w.prefetch(self.moved(kernel, w.int(ahead.kernel + n * row.tap), 1), locality=2)

    def _few(
        self,
        totals: list[Value],
        rows: list[Value],
        kernel: Value,
        taps: Sequence[int],
        number: int,
    ) -> list[Value]:
        """Some taps, for all results that have an element there."""
        w, row, totals = self.w, self.form.row, list(totals)
        met = met_of(row, enumerate(range(self.row_results)), taps)
        factors = {tap: self.kernel(self.moved(kernel, w.int(tap * row.tap), 1)) for tap in taps}
        for r, place in enumerate(rows):
            for at, pairs in sorted(met.items()):
                element = self.base(self.moved(place, w.int(at * row.lhs), 0), number)
                for n, tap in pairs:
                    k = r * self.row_results + n
                    totals[k] = self.multiplied(totals[k], element, factors[tap])
        return totals
