"""A direct convolution as its kernels see it: numbers, lanes, and the code of what both have.

    DirectForm (of the instruction), Ring (of the machine) --Direct--> loads, ranges of taps

A lane is an output feature. Those of a vector read a run of the base's features, of which each
serves the lanes of its group: a permutation of a load, or one element for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

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
Pair = tuple[int, int]  # Which accumulator, and which of the row's taps it takes.


class Given(Struct, frozen=True):
    """What a kernel is made for. dtypes: of base, kernel and result."""

    form: DirectForm
    ring: Ring
    dtypes: tuple[DType, DType, DType]
    buffers: BufferNumbers
    epilogue: Epilogue | None


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
        return self.ring.multiply_add_part(self.w, total, a, b)

    def added(self, a: Value, b: Value) -> Value:
        return self.ring.add(self.w, (a,), (b,))[0]

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

        return repeated(w, count, carried, tap)

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
