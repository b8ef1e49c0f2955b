"""A direct convolution as its kernels see it: numbers, lanes, and the code of what both have.

    DirectForm (of the instruction), Ring (of the machine) --Direct--> loads, ranges of taps

A lane is an output feature. Those of a vector read a run of the base's features, of which each
serves the lanes of its group: a permutation of a load, or one element for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.direct_convolution import Along, DirectForm
from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.control import each, repeated
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring, loaded
from hlo.backend.lanes.types import storage_scalar
from hlo.ir.dtype import DType

AT_ONCE = 8  # Taps of a row whose elements of the kernel are in registers.
MOST_CHAIN = 24  # Terms of a sum that are added one after the other.
LEAST_PART = 4  # Terms that are worth a sum of their own.
Pair = tuple[int, int]  # Which accumulator, and which of the row's taps it takes.


class Given(Struct, frozen=True):
    """What a kernel is made for. dtypes: of base, kernel and result."""

    form: DirectForm
    ring: Ring
    dtypes: tuple[DType, DType, DType]
    buffers: BufferNumbers
    epilogue: Epilogue | None


class Parts(Struct, frozen=True):
    """Sums of long windows are made in parts, which are then added up, so that no chain of
    additions is long: of the taps of one dimension `size` are a part. along: None for the images
    that are summed."""

    along: Along | None
    size: int
    terms: int  # of a part
    count: int  # of all parts

    @property
    def chain(self) -> int:
        """Additions that a term goes through."""
        return self.terms + self.count


def parts_of(form: DirectForm) -> Parts:
    """A part for each tap of the dimension whose terms are more than MOST_CHAIN together; where a
    tap has fewer than LEAST_PART, about equal parts of at most MOST_CHAIN terms.

    Additions of parts have units of their own beside those of products: 32 channels, windows of 5x5
    to 11x11, take 0.93 to 1.0 of the time on Zen 4, along rows 0.8 to 1.05.
    """
    alongs: list[Along | None] = [*reversed(form.along), None]
    sizes = [*(a.window.size for a in reversed(form.along)), form.summed.size]
    inner = 1 if form.is_batch else form.inputs
    for k, (along, size) in enumerate(zip(alongs, sizes, strict=True)):
        if inner * size > MOST_CHAIN:
            few = -(-size // -(-inner * size // MOST_CHAIN))
            part = 1 if inner >= LEAST_PART else few
            return Parts(along, part, inner * part, -(-size // part) * prod(sizes[k + 1 :]))
        inner *= size
    return Parts(None, sizes[-1], inner, 0)


class Direct:
    """The kernel being written."""

    def __init__(self, given: Given) -> None:
        form, ring, buffers = given.form, given.ring, given.buffers
        self.w = Writer()
        self.form, self.ring, self.dtypes = form, ring, given.dtypes
        self.outer, self.blocked = form.rows[:-1], form.rows[-1] if form.rows else None
        self.lanes = min(ring.lanes, 1 << (form.features.bit_length() - 1))
        self.vectors = -(-form.features // self.lanes)
        self.offsets = (buffers.lhs.offset, buffers.rhs.offset)
        self.memory = [self.w.buffer_address(place) for place in (0, 1)]
        self.stage: Value | None = None  # Where sums wait for what is done to them.
        self.parted: Parts | None = None  # None: sums are no longer than they may be.

    @property
    def type(self) -> str:
        return self.ring.type(self.lanes)

    @property
    def zero(self) -> Value:
        return self.w.zero(self.type)

    @property
    def overlaps(self) -> bool:
        """Whether the last vector of features begins before the one before it ends."""
        return self.form.features % self.lanes > 0

    @property
    def asks_ahead(self) -> bool:
        """Whether the base comes from far, in lines that a vector of features takes most of."""
        form, near = self.form, self.ring.target.machine.second_cache.bytes
        size = self.dtypes[0].item_bytes * prod(a.size for a in form.along)
        size *= form.features // form.outputs * form.inputs
        has_holes = any(a.window.base_dilation > 1 for a in form.along)
        is_line = self.lanes * self.dtypes[0].item_bytes * 2 >= self.ring.target.machine.line_bytes
        return form.images.size * form.summed.size * size > near and is_line and not has_holes

    def feature(self, vector: Value) -> Value:
        """The output feature of a vector's lane 0; the last vector ends where the features do."""
        w, start = self.w, times(self.w, vector, self.lanes)
        if not self.overlaps:
            return start
        return w.intrinsic("llvm.umin", "i64", start, w.int(self.form.features - self.lanes))

    def base_feature(self, feature: Value) -> Value:
        """The base's feature that lane 0's group begins with."""
        return times(self.w, divided(self.w, feature, self.form.outputs), self.form.inputs)

    # -- elements --------------------------------------------------------------------------------

    def place(self, side: int, index: Value) -> Value:
        """The address of an element, or of where it would lie beside the array."""
        w = self.w
        index = add(w, index, w.int(self.offsets[side]))
        return self.moved(self.memory[side], index, side)

    def moved(self, place: Value, index: Value, side: int) -> Value:
        if index.integer == 0:
            return place
        return self.w.offset("getelementptr", place, index, storage_scalar(self.dtypes[side]))

    def base(self, place: Value, number: int) -> Value:
        """The elements of the base that meet the lanes, from the first lane's group on.

        number: of the group's inputs.
        """
        w, form, ring = self.w, self.form, self.ring
        dtype = self.dtypes[0]
        if form.inputs == form.outputs == 1:
            return loaded(w, ring, dtype, place, self.lanes)[0]
        if form.outputs >= self.lanes:  # all lanes are of one group
            one = loaded(w, ring, dtype, self.moved(place, w.int(number), 0), 1)[0]
            return w.splat(one, self.lanes)
        width = self.lanes // form.outputs * form.inputs
        order = [lane // form.outputs * form.inputs + number for lane in range(self.lanes)]
        if width == 1:
            return w.splat(loaded(w, ring, dtype, place, 1)[0], self.lanes)
        run = loaded(w, ring, dtype, place, width)[0]
        return w.shuffle(run, None, order)

    def kernel(self, place: Value) -> Value:
        """The elements of the kernel at the lanes."""
        return loaded(self.w, self.ring, self.dtypes[1], place, self.lanes)[0]

    def finished_in_turn(
        self, sums: list[Value], size: int, finish: Callable[[Value, list[Value]], None]
    ) -> None:
        """finish(n, the n-th `size` sums) for all of them: by a loop, through memory, where there
        is something to be done. Written out, many such chains at once have no room in registers:
        logistic functions behind depthwise convolutions made these take 2.2 times as long.
        """
        w, count = self.w, len(sums) // size
        if self.stage is None or count == 1:
            for n in range(count):
                finish(w.int(n), sums[n * size : (n + 1) * size])
            return
        stage = self.stage
        for n, value in enumerate(sums):
            w.store(value, advanced(w, stage, n, self.type), self.ring.scalar_bytes)

        def some(n: Value) -> None:
            first = times(w, n, size)
            places = [advanced(w, stage, add(w, first, w.int(k)), self.type) for k in range(size)]
            finish(n, [w.load(place, self.type, self.ring.scalar_bytes) for place in places])

        each(w, w.int(0), w.int(count), some)

    def multiplied(self, total: Value, a: Value, b: Value) -> Value:
        if self.parted is not None and total == self.zero:  # a part's first
            return self.w.binary("fmul", a, b)
        return self.ring.multiply_add_part(self.w, total, a, b)

    def added(self, a: Value, b: Value) -> Value:
        return self.ring.add(self.w, (a,), (b,))[0]

    # -- parts of sums ---------------------------------------------------------------------------

    def part_sums(self) -> None:
        """Make sums in parts, where rounding is and they are long."""
        parts = parts_of(self.form)
        if parts.count > 1 and self.ring.rounds and self.ring.parts == 1:
            self.parted = parts

    def part_size(self, along: Along | None) -> int:
        """How many taps of a dimension are a part of a sum; 0 where it is not what is parted."""
        return self.parted.size if self.parted is not None and self.parted.along is along else 0

    def all_added(self, totals: list[Value], sums: list[Value]) -> list[Value]:
        """The totals with the sums of a part, of those that have any; a total of nothing is +0, so
        that a part of -0 adds up to +0."""
        pairs = zip(totals, sums, strict=True)
        return [a if b == self.zero else self.added(a, b) for a, b in pairs]

    def in_parts(
        self,
        count: Value,
        size: int,
        totals: list[Value],
        body: Callable[[Value, list[Value]], list[Value]],
    ) -> list[Value]:
        """totals = body(n, totals) for all n < count, of which `size` have sums of their own."""
        w = self.w
        if not size:
            return repeated(w, count, totals, body)
        none = [self.zero] * len(totals)

        def part(number: Value, totals: list[Value]) -> list[Value]:
            first = times(w, number, size)
            left = w.intrinsic("llvm.smin", "i64", w.int(size), w.binary("sub", count, first))
            sums = (
                body(first, none)
                if size == 1
                else repeated(w, left, none, lambda n, sums: body(add(w, first, n), sums))
            )
            return self.all_added(totals, sums)

        return repeated(w, self._up(count, size), totals, part)

    # -- taps ------------------------------------------------------------------------------------

    def row_of_taps(
        self,
        totals: list[Value],
        met: Mapping[int, Sequence[Pair]],
        places: tuple[Value, Value],
        number: int,
    ) -> list[Value]:
        """The totals with what positions of a row give. met: by the positions, in elements from
        places[0] on, which totals take them with which tap, counted from places[1] on."""
        w, row, totals = self.w, self.form.row, list(totals)
        taps = sorted({tap for pairs in met.values() for _, tap in pairs})
        for first in range(0, len(taps), AT_ONCE):
            kernels = {
                tap: self.kernel(self.moved(places[1], w.int(tap * row.tap), 1))
                for tap in taps[first : first + AT_ONCE]
            }
            for at in sorted(met):
                pairs = [(n, tap) for n, tap in met[at] if tap in kernels]
                if not pairs:
                    continue
                element = self.base(self.moved(places[0], w.int(at * row.lhs), 0), number)
                for n, tap in pairs:
                    totals[n] = self.multiplied(totals[n], element, kernels[tap])
        return totals

    def range_of(self, along: Along, output: Value) -> tuple[Value, Value]:
        """The taps of an outer dimension that meet elements: the first and how many, each so many
        behind the one before as the base's holes say."""
        w, d = self.w, along.window
        low = w.binary("sub", w.int(d.pad_low), times(w, output, d.stride))
        last = add(w, low, w.int((along.size - 1) * d.base_dilation))
        first = self.at_least_0(self._up(low, d.window_dilation))
        end = add(w, self._down(last, d.window_dilation), w.int(1))
        end = w.intrinsic("llvm.smin", "i64", end, w.int(d.size))
        if d.base_dilation == 1:
            return first, w.binary("sub", end, first)
        # The first tap from there on that is in no hole: low + tap is a multiple of the dilation.
        moved = w.binary("sub", first, low)
        first = add(w, low, times(w, self._up(moved, d.base_dilation), d.base_dilation))
        count = self._up(w.binary("sub", end, first), d.base_dilation)
        return first, count

    def at_least_0(self, value: Value) -> Value:
        return self.w.intrinsic("llvm.smax", "i64", value, self.w.int(0))

    def _up(self, value: Value, divisor: int) -> Value:
        """value / divisor, rounded up."""
        return self._down(add(self.w, value, self.w.int(divisor - 1)), divisor)

    def _down(self, value: Value, divisor: int) -> Value:
        """value / divisor, rounded down, whatever its sign is: numbers here are below 2^62."""
        w = self.w
        if divisor == 1:
            return value
        quotient = w.binary("sdiv", value, w.int(divisor))
        less = w.compare("icmp slt", value, times(w, quotient, divisor))
        return w.binary("sub", quotient, w.cast("zext", less, "i64"))

    def under_taps(
        self,
        alongs: Sequence[Along],
        outputs: Sequence[Value],
        places: tuple[Value, Value],
        carried: list[Value],
        body: Callable[[tuple[Value, Value], list[Value]], list[Value]],
    ) -> list[Value]:
        """carried = body(.) at every tap of outer dimensions that meets elements. places: of tap 0
        and element 0 in each."""
        if not alongs:
            return body(places, carried)
        w, (along, *rest), (output, *others) = self.w, alongs, outputs
        d = along.window
        first, count = self.range_of(along, output)
        moved = w.binary("sub", times(w, output, d.stride), w.int(d.pad_low))

        def tap(n: Value, carried: list[Value]) -> list[Value]:
            at = add(w, first, times(w, n, d.base_dilation))
            element = add(w, moved, times(w, at, d.window_dilation))
            if d.base_dilation > 1:
                element = w.binary("sdiv", element, w.int(d.base_dilation))
            there = (
                self.moved(places[0], times(w, element, along.lhs), 0),
                self.moved(places[1], times(w, at, along.tap), 1),
            )
            return self.under_taps(rest, others, there, carried, body)

        return self.in_parts(count, self.part_size(along), carried, tap)

    def first_taps(self) -> int:
        """Where the kernel's element of position 0 in every dimension lies."""
        return sum(a.first_tap * a.rhs for a in self.form.along)


def met_of(row: Along, outputs: Iterable[tuple[int, int]], taps: Iterable[int]) -> dict[
    int, list[Pair]
]:  # fmt: skip
    """What positions of a row serve: outputs are pairs of a number and the output's place."""
    found: dict[int, list[Pair]] = {}
    outputs = list(outputs)
    for tap in taps:
        for number, output in outputs:
            element = row.element(output, tap)
            if element is not None:
                found.setdefault(element, []).append((number, tap))
    return found
