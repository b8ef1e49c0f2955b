"""A direct convolution by rows of results: a tile of neighbours has its sums in registers.

They stay there over all of the window.

    for unit (image, row of results, stretch of it):        in parallel
        for tile: for vector of features:
            for tap of the outer dimensions that meets the base: for tap of the row: sums += ..
            sums to the results

An element of the base is loaded once for all results of a tile that meet it. Tiles at the ends of a
row, where taps miss the base, have code of their own, which leaves these out.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec import Struct

from hlo.analysis.direct_convolution import DirectForm
from hlo.backend.ir.arithmetic import add, shared, split_index, times
from hlo.backend.ir.control import each, ranged, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.direct.form import AT_ONCE, Direct, Given, Pair, met_of
from hlo.backend.kernels.contraction.problem.result import Result
from hlo.backend.kernels.contraction.problem.ring import Ring, element_address
from hlo.machine import ALIGNMENT

MOST_PRODUCTS = 160  # Of a tile and one outer tap: they are written out.
LEAST_TILE = 4
# Of one of many tiles of a row: as many sums as hide the latency of products, so that the copies of
# code for the ends of a row are short; but groups are permuted once for a tile.
MANY_TILE = 8
# Times the last cache's bytes that one program counts on: of more, results are asked for before
# they are written. Zen 4, one core, of the time without, f32: 9.6 MB 0.77 to 0.86, 12.8 MB 0.74 to
# 0.97, 4.2 MB 1.06.
FAR = 2
STRETCH = 64  # Results of a row that a unit takes, about.


class Tiles(Struct, frozen=True):
    """So many tiles of `size` results cover a row of `outputs`, the last one overlapping if they do
    not fit; those from `first` to `end` are one loop, the others are written out."""

    outputs: int
    size: int
    first: int
    end: int

    @property
    def count(self) -> int:
        return -(-self.outputs // self.size)

    @property
    def overlaps(self) -> bool:
        return self.outputs % self.size > 0

    def start(self, tile: int) -> int:
        """Where a tile begins in the row."""
        return min(tile * self.size, self.outputs - self.size)

    @property
    def written(self) -> tuple[int, ...]:
        """The tiles in their order, of those in the loop only the first."""
        return (*range(min(self.first + 1, self.end)), *range(self.end, self.count))


def tiles_of(form: DirectForm, ring: Ring) -> Tiles:
    """As many results as there are registers for, in tiles of one length."""
    row = form.row
    taps, period = min(row.window.size, AT_ONCE), row.window.base_dilation
    room = ring.registers - taps - 2
    written = MOST_PRODUCTS // (row.window.size * form.inputs)
    most = max(LEAST_TILE, min(room, written))
    if row.outputs > 2 * most and form.inputs == 1:
        most = min(most, MANY_TILE)
    count = -(-row.outputs // most)
    size = min(row.outputs, -(-row.outputs // (count * period)) * period)
    inside = row.inside
    first, end = -(-inside.start // size), min(inside.stop, row.outputs) // size
    return Tiles(row.outputs, size, first, end) if first < end else Tiles(row.outputs, size, 0, 0)


class DirectRows(Direct):
    """The kernel by rows of results. buffers: base, kernel, result, what the epilogue reads."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        form, ring = given.form, given.ring
        self.result = Result(self.w, ring, given.dtypes[2], 2, given.epilogue)
        self.tiles = tiles_of(form, ring)
        if given.epilogue is not None:
            self.stage = self.w.alloca(f"[{self.tiles.size} x {self.type}]", ALIGNMENT)
        self.part_sums()
        self.stretches = max(1, self.tiles.count * self.tiles.size // STRETCH)

    @property
    def stores_once(self) -> bool:
        return not (self.tiles.overlaps or self.overlaps)

    @property
    def chain(self) -> int:
        """Additions that a term goes through."""
        return self.parted.chain if self.parted else self.terms

    @property
    def terms(self) -> int:
        """Products of a result."""
        form = self.form
        summed = form.summed.size * (1 if form.is_batch else form.inputs)
        return summed * prod(a.window.size for a in form.along)

    @property
    def results(self) -> int:
        """Vectors of results."""
        form = self.form
        images = form.images.size * (form.inputs if form.is_batch else 1)
        return images * prod(a.outputs for a in form.rows) * form.row.outputs * self.vectors

    @property
    def lines(self) -> tuple[str, ...]:
        """How it works, for people."""
        t = self.tiles
        written = t.count - (t.end - t.first)
        return (
            f"direct: {t.size} results of a row by {self.lanes} lanes of features in registers",
            f"tiles: {t.count} in a row, {written} of them written out for its ends",
        )

    def kernel_of(self) -> Kernel:
        w, form = self.w, self.form
        rows = [a.outputs for a in form.rows]
        sizes = (form.images.size, *rows, self.stretches)
        ranged(w, BEGIN, END, lambda unit: self._unit(split_index(w, unit, sizes)))
        results = self.results
        return Kernel(
            w.kernel_function(),
            prod(sizes),
            *w.beside,
            flops=2 * results * self.lanes * self.terms,
            work=self._work(results),
        )

    @property
    def products(self) -> float:
        """Of vectors: those whose element is there."""
        form = self.form
        met = prod(a.pairs / (a.outputs * a.window.size) for a in form.along)
        return self.results * self.terms * met

    @property
    def permutations(self) -> float:
        """Of vectors of the base whose elements serve several lanes each: one for each input of a
        group at each place that a tile meets.
        """
        form, row, size = self.form, self.form.row, self.tiles.size
        if form.inputs == form.outputs == 1:
            return 0.0
        places = (size - 1) * row.window.stride + row.window.size
        return self.products * places / (size * row.window.size)

    def _work(self, results: int) -> Work:
        form = self.form
        base = form.images.size * form.summed.size * prod(a.size for a in form.along)
        base *= form.features // form.outputs * form.inputs * self.dtypes[0].item_bytes
        stored = results * self.lanes * self.dtypes[2].item_bytes
        # Parts are added up beside products, which have units of their own; half of them wait.
        added = self.parted.count / 2 if self.parted else 0.0
        return Work(
            instructions=results * (1 + added) + self.products + self.permutations,
            sums=results,
            moved=base + 2 * stored,
            reach=base + stored,
            is_stream=True,
        )

    def _unit(self, numbers: list[Value]) -> None:
        w, form, tiles = self.w, self.form, self.tiles
        image, *rows, stretch = numbers
        first, end = shared(w, stretch, tiles.count, self.stretches)
        base = times(w, image, form.images.lhs)
        self.out = times(w, image, form.images.out)
        for along, output in zip(form.rows, rows, strict=True):
            self.out = add(w, self.out, times(w, output, along.out))
        self.image, self.outputs = base, rows
        for t in tiles.written:
            if tiles.first <= t < tiles.end:
                inner = (
                    w.intrinsic("llvm.umax", "i64", first, w.int(t)),
                    w.intrinsic("llvm.umin", "i64", end, w.int(tiles.end)),
                )
                ranged(w, *inner, lambda n: self._tile(times(w, n, tiles.size)))
            else:
                self._alone(t, first, end)

    def _alone(self, t: int, first: Value, end: Value) -> None:
        """A tile that is written out, where it is in the stretch."""
        w = self.w

        def tile() -> None:
            self._tile(w.int(self.tiles.start(t)))

        if self.stretches == 1:
            tile()
            return
        after = w.compare("icmp ule", first, w.int(t))
        when(w, w.binary("and", after, w.compare("icmp ugt", end, w.int(t))), tile)

    def _tile(self, start: Value) -> None:
        """A tile of all features; start: its first result's place in the row."""
        w, form, row, size = self.w, self.form, self.form.row, self.tiles.size
        window = row.window
        known = start.integer
        at = self.tiles.start(self.tiles.first) if known is None else known
        met = met_of(row, ((n, at + n) for n in range(size)), range(window.size))
        moved = w.int(0)
        if known is None:  # elements are counted from those of the tile's first result on
            before = at * window.stride // window.base_dilation
            met = {element - before: pairs for element, pairs in met.items()}
            moved = start
            if window.base_dilation > 1:
                moved = w.binary("udiv", start, w.int(window.base_dilation))
            moved = times(w, moved, window.stride * row.lhs)
        out = add(w, self.out, times(w, start, row.out))

        def vector(v: Value) -> None:
            feature = self.feature(v)
            own = add(w, self.base_feature(feature), add(w, self.image, moved))
            kernels = add(w, feature, w.int(self.first_taps()))
            for image in range(form.inputs if form.is_batch else 1):
                index = add(w, add(w, out, feature), w.int(image * form.group.out))
                self._sums(own, kernels, met, index, image)

        each(w, w.int(0), w.int(self.vectors), vector)

    def _ask_ahead(self, base: Value) -> None:
        """Ask for what the row of results after this one is the first to read, at this tile: a
        tile's own loads wait for memory together, but none is begun while its sums are finished.
        base: of the tile's first element in row 0.
        """
        w, form, row = self.w, self.form, self.form.row
        if not form.rows or not self.asks_ahead:
            return
        along, output = form.rows[-1], self.outputs[-1]
        window = along.window
        last = (window.size - 1) * window.window_dilation - window.pad_low + 1
        moved = times(w, add(w, times(w, output, window.stride), w.int(last)), along.lhs)
        for outer, at in zip(form.rows[:-1], self.outputs[:-1], strict=True):
            moved = add(w, moved, times(w, times(w, at, outer.window.stride), outer.lhs))
        place = self.place(0, add(w, base, moved))
        for r, n in product(range(window.stride), range(self.tiles.size * row.window.stride)):
            there = self.moved(place, w.int(r * along.lhs + n * row.lhs), 0)
            w.prefetch(there, locality=2)

    def _ask_for_results(self, index: Value) -> None:
        """Ask for the lines that the next tile writes at these features, where the result goes to
        memory: results lie apart, so that their stores would wait. index: of the tile's first one.
        """
        w, dtype, step = self.w, self.dtypes[2], self.form.row.out
        vector_bytes, machine = self.lanes * dtype.item_bytes, self.ring.target.machine
        is_far = self.results * vector_bytes > FAR * machine.last_cache.bytes
        if not is_far or 2 * vector_bytes < machine.line_bytes:
            return
        following = add(w, index, w.int(self.tiles.size * step))
        first = element_address(w, self.result.address, following, dtype)
        for n in range(self.tiles.size):
            line = w.offset("getelementptr", first, w.int(n * step * dtype.item_bytes), "i8")
            w.prefetch(line, is_written=True)

    def _sums(
        self,
        base: Value,
        kernels: Value,
        met: dict[int, list[Pair]],
        index: Value,
        image: int,
    ) -> None:
        """The tile's results at a vector of features, from an index on."""
        w, form = self.w, self.form

        def summed(n: Value, totals: list[Value]) -> list[Value]:
            places = (
                self.place(0, add(w, base, times(w, n, form.summed.lhs))),
                self.place(1, add(w, kernels, times(w, n, form.summed.rhs))),
            )
            return self.under_taps(form.rows, self.outputs, places, totals, at_row)

        def at_row(places: tuple[Value, Value], totals: list[Value]) -> list[Value]:
            size = self.part_size(form.row)
            if not size:
                return self._row(totals, met, places, image)
            for first in range(0, form.row.window.size, size):
                some = taps_of(met, range(first, first + size))
                none = [self.zero] * len(totals)
                totals = self.all_added(totals, self._row(none, some, places, image))
            return totals

        self._ask_ahead(base)
        self._ask_for_results(index)
        totals = [self.zero] * self.tiles.size
        if form.summed.size == 1:
            totals = summed(w.int(0), totals)
        else:
            count = w.int(form.summed.size)
            totals = self.in_parts(count, self.part_size(None), totals, summed)

        def finish(n: Value, sums: list[Value]) -> None:
            self.result.store(tuple(sums), add(w, index, times(w, n, form.row.out)), 1, None)

        self.finished_in_turn(totals, 1, finish)

    def _row(
        self,
        totals: list[Value],
        met: dict[int, list[Pair]],
        places: tuple[Value, Value],
        image: int,
    ) -> list[Value]:
        """The totals with what a row of taps gives, of all inputs of a group or of an image."""
        w, form = self.w, self.form
        if form.is_batch:
            return self.row_of_taps(totals, met, places, image)
        for number in range(form.inputs):
            kernel = self.moved(places[1], w.int(number * form.group.rhs), 1)
            totals = self.row_of_taps(totals, met, (places[0], kernel), number)
        return totals


def taps_of(met: dict[int, list[Pair]], taps: range) -> dict[int, list[Pair]]:
    """What positions serve with some of the taps."""
    some = {at: [(n, tap) for n, tap in pairs if tap in taps] for at, pairs in met.items()}
    return {at: pairs for at, pairs in some.items() if pairs}
