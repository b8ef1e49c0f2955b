"""Buckets of a long row's records: found for each part of the row, dealt out, sorted by radix.

record -> its bucket: how many bounds its key reaches
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from msgspec import Struct

from hlo.backend.ir.values import vector_of
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.sorting.radix import (
    SUMMED,
    RadixForm,
    count_one,
    prefix_sums,
    start_places,
)
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.machine import aligned

BUCKETS = SUMMED  # One vector counts them.
# A vector of places, and room to the next thread's: where they share a line, or a pair of lines
# that come together, a sort of two threads took twice the time of one.
PLACES_BYTES = 4 * BUCKETS + 448
_PART = 1 << 12  # The least elements of a part.
_MOST_PARTS = 16
_DIGIT = 12  # The most bits of a digit: most buckets of f32 differ in up to 24.


class Parts(Struct, frozen=True):
    """How a row of `count` elements is cut."""

    count: int

    @property
    def size(self) -> int:
        """Elements of a part but the last."""
        parts = max(1, min(_MOST_PARTS, self.count // _PART))
        return aligned(-(-self.count // parts))

    @property
    def number(self) -> int:
        return -(-self.count // self.size)

    def bounds(self, w: Writer, part: Value) -> tuple[Value, Value]:
        """The first element of a part, and the one behind its last."""
        low = w.binary("mul", part, w.int(self.size))
        end = w.binary("add", low, w.int(self.size))
        return low, w.intrinsic("llvm.umin", "i64", end, w.int(self.count))


class Buckets(Struct, frozen=True):
    """What kernels hand on in memory. copies: columns of records, as parts have them and as buckets
    do. numbers: each record's bucket (i8). counters: records of each part in each bucket (i32).
    bounds: the keys at which buckets but the first begin."""

    nest: Nest
    form: RadixForm
    parts: Parts
    copies: tuple[list[Value], list[Value]]
    numbers: Value
    counters: Value
    bounds: Value

    @property
    def scratch_bytes(self) -> int:
        """Counters of a digit."""
        return 4 << _DIGIT

    def loaded_bounds(self) -> list[Value]:
        w, record = self.nest.w, self._key_type
        places = (w.address(self.bounds, w.int(n), record) for n in range(BUCKETS - 1))
        return [w.load(place, record) for place in places]

    @property
    def _key_type(self) -> str:
        """As the sample has them."""
        return f"i{self.form.bits}"

    # -- of a part ---------------------------------------------------------------------------

    def find(
        self, bounds: list[Value], part: Value, range: tuple[Value, Value], lanes: int
    ) -> None:
        """The bucket of each of a part's records, and how many go to each."""
        w = self.nest.w
        low, high = range
        length = w.binary("sub", high, low)
        reached = [w.zero(vector_of("i32", lanes)) for _ in bounds]
        reached = self.nest.loop(low, high, lanes, reached, self._finder(bounds, lanes))
        if lanes > 1:
            suffix = f"v{lanes}i32"
            reached = [
                w.intrinsic("llvm.vector.reduce.add", "i32", r, suffix=suffix) for r in reached
            ]
            rest = w.binary("sub", high, w.binary("urem", length, w.int(lanes)))
            reached = self.nest.loop(rest, high, 1, reached, self._finder(bounds, 1))
        reached = [w.cast("trunc", length, "i32"), *reached, w.int(0, "i32")]
        own = w.address(self.counters, w.binary("mul", part, w.int(BUCKETS)), "i32")
        for n, (more, less) in enumerate(pairwise(reached)):
            w.store(w.binary("sub", more, less), w.address(own, w.int(n), "i32"))

    def _finder(
        self, bounds: list[Value], lanes: int
    ) -> Callable[[Value, list[Value]], list[Value]]:
        """The loop's body: carries how many keys have reached each bound."""
        w, form = self.nest.w, self.form
        counted = vector_of("i32", lanes)

        def step(j: Value, reached: list[Value]) -> list[Value]:
            place = w.address(self.copies[0][0], j, form.record)
            keys = form.key(self.nest, w.load(place, vector_of(form.record, lanes)))
            if form.joined:
                keys = w.cast("trunc", keys, vector_of(self._key_type, lanes))
            number, found = w.zero(counted), []
            for bound, before in zip(bounds, reached, strict=True):
                limit = w.splat(bound, lanes) if lanes > 1 else bound
                one = w.cast("zext", w.compare("icmp uge", keys, limit), counted)
                number = w.binary("add", number, one)
                found.append(w.binary("add", before, one))
            narrow = w.cast("trunc", number, vector_of("i8", lanes))
            w.store(narrow, w.address(self.numbers, j, "i8"))
            return found

        return step

    def deal(self, part: Value, range: tuple[Value, Value], places: Value) -> None:
        """Move a part's records: behind those of lesser buckets, and those of their bucket in the
        parts before. places: scratch memory."""
        w = self.nest.w
        counts, before = self._counts(part)
        start = w.binary("sub", prefix_sums(self.nest, counts), counts)
        w.store(w.binary("add", start, before), places)

        def step(j: Value, _: list[Value]) -> list[Value]:
            narrow = w.load(w.address(self.numbers, j, "i8"), "i8")
            place = count_one(self.nest, places, w.cast("zext", narrow, "i64"))
            wide = w.cast("zext", place, "i64")
            for source, aim, type in zip(*self.copies, self.form.column_types, strict=True):
                record = w.load(w.address(source, j, type), type)
                w.store(record, w.address(aim, wide, type))
            return []

        self.nest.loop(*range, 1, [], step)

    def _counts(self, part: Value) -> tuple[Value, Value]:
        """Records in each bucket: of all parts, and of those before one."""
        w = self.nest.w
        type = vector_of("i32", BUCKETS)

        def add(q: Value, sums: list[Value]) -> list[Value]:
            place = w.address(self.counters, w.binary("mul", q, w.int(BUCKETS)), "i32")
            counts = w.load(place, type)
            is_before = w.cast("sext", w.compare("icmp ult", q, part), "i32")
            before = w.binary("and", counts, w.splat(is_before, BUCKETS))
            return [w.binary("add", sums[0], counts), w.binary("add", sums[1], before)]

        zeros = [w.zero(type), w.zero(type)]
        counts, before = self.nest.loop(0, self.parts.number, 1, zeros, add)
        return counts, before

    # -- of a bucket -------------------------------------------------------------------------

    def limits(self, bucket: Value, scratch: Value) -> tuple[Value, Value]:
        """The first record of a bucket, and the one behind its last."""
        w = self.nest.w
        counts, _ = self._counts(w.int(0))
        ends = prefix_sums(self.nest, counts)
        w.store(ends, scratch)
        high = w.load(w.address(scratch, bucket, "i32"), "i32")
        w.store(counts, scratch)
        count = w.load(w.address(scratch, bucket, "i32"), "i32")
        low = w.binary("sub", high, count)
        return w.cast("zext", low, "i64"), w.cast("zext", high, "i64")

    def sorted(self, low: Value, high: Value, counters: Value) -> list[Value]:
        """Sort a bucket; the columns that hold its records then, at the same places.

        A digit of which there is one value needs no pass, and would take long: each next record
        waits for the counter that the one before has changed.
        """
        w, nest, types = self.nest.w, self.nest, self.form.column_types
        least, most = self._extremes(low, high)
        passes, width = self._digits(w.binary("sub", most, least))
        size = w.binary("shl", w.int(1), width)
        count = w.binary("sub", high, low)

        def digit(p: Value, record: Value) -> Value:
            distance = w.binary("sub", self._wide_key(record), least)
            shifted = w.binary("lshr", distance, w.binary("mul", p, width))
            return w.binary("and", shifted, w.binary("sub", size, w.int(1)))

        def begun(columns: list[Value]) -> list[Value]:
            return [w.address(c, low, type) for c, type in zip(columns, types, strict=False)]

        def one(p: Value, state: list[Value]) -> list[Value]:
            source, aim = state[: len(types)], state[len(types) :]
            value = partial(digit, p)
            differs = self._counted(begun(source[:1])[0], value, count, (counters, size))

            def move() -> None:
                start_places(nest, counters, size)
                columns = begun(source), begun(aim)
                self.form.scatter(nest, value, counters, columns, (0, count))

            when(nest, differs, move)
            pairs = list(zip(source, aim, strict=True))
            there = [w.select(differs, t, s) for s, t in pairs]
            return [*there, *(w.select(differs, s, t) for s, t in pairs)]

        state = [*self.copies[1], *self.copies[0]]
        return nest.loop(0, passes, 1, state, one)[: len(types)]

    def _counted(
        self,
        records: Value,
        value: Callable[[Value], Value],
        count: Value,
        table: tuple[Value, Value],
    ) -> Value:
        """How often each value of a digit occurs; whether more than one does (i1)."""
        w, nest, (counters, size) = self.nest.w, self.nest, table
        self._clear(counters, size)

        def step(j: Value, _: list[Value]) -> list[Value]:
            record = w.load(w.address(records, j, self.form.record), self.form.record)
            count_one(nest, counters, value(record))
            return []

        nest.loop(0, count, 1, [], step)
        sample = value(w.load(records, self.form.record))
        of_sample = w.load(w.address(counters, sample, "i32"), "i32")
        return w.compare("icmp ne", of_sample, w.cast("trunc", count, "i32"))

    def _digits(self, span: Value) -> tuple[Value, Value]:
        """How many digits distances up to this one have, and of how many bits."""
        w = self.nest.w
        zeros = w.intrinsic("llvm.ctlz", "i64", span, w.int(0, "i1"))
        bits = w.binary("sub", w.int(64), zeros)
        passes = w.binary("udiv", w.binary("add", bits, w.int(_DIGIT - 1)), w.int(_DIGIT))
        some = w.intrinsic("llvm.umax", "i64", passes, w.int(1))
        more = w.binary("add", bits, w.binary("sub", some, w.int(1)))
        width = w.binary("udiv", more, some)
        return passes, w.intrinsic("llvm.umax", "i64", width, w.int(BUCKETS.bit_length() - 1))

    def _clear(self, counters: Value, size: Value) -> None:
        w = self.nest.w

        def clear(d: Value, _: list[Value]) -> list[Value]:
            w.store(w.zero(vector_of("i32", BUCKETS)), w.address(counters, d, "i32"))
            return []

        self.nest.loop(0, size, BUCKETS, [], clear)

    def _wide_key(self, record: Value) -> Value:
        return self.form.key(self.nest, self.nest.w.cast("zext", record, "i64"))

    def _extremes(self, low: Value, high: Value) -> tuple[Value, Value]:
        """The least and the greatest key of a bucket (i64); of none: none between them."""
        w, form, lanes = self.nest.w, self.form, BUCKETS
        whole = vector_of(form.record, lanes)

        def step(width: int) -> Callable[[Value, list[Value]], list[Value]]:
            def take(j: Value, found: list[Value]) -> list[Value]:
                type = vector_of(form.record, width)
                record = w.load(w.address(self.copies[1][0], j, form.record), type)
                return [
                    w.intrinsic("llvm.umin", type, found[0], record),
                    w.intrinsic("llvm.umax", type, found[1], record),
                ]

            return take

        ends = [w.splat(w.int(-1, form.record), lanes), w.zero(whole)]
        vectors = self.nest.loop(low, high, lanes, ends, step(lanes))
        suffix = f"v{lanes}{form.record}"
        ends = [
            w.intrinsic(f"llvm.vector.reduce.{name}", form.record, vector, suffix=suffix)
            for name, vector in zip(("umin", "umax"), vectors, strict=True)
        ]
        rest = w.binary("urem", w.binary("sub", high, low), w.int(lanes))
        least, most = self.nest.loop(w.binary("sub", high, rest), high, 1, ends, step(1))
        least = w.intrinsic("llvm.umin", form.record, least, most)
        return self._wide_key(least), self._wide_key(most)
