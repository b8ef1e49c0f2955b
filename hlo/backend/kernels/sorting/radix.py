"""Radix sort of unsigned keys, the least significant digit first, hence stable.

    records: keys alone; or key << 32 | position; or 64-bit keys beside a column of positions

One pass counts all digits; a digit in which all keys agree is skipped. Short rows are
sorted by insertion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from hlo.backend.ir.values import lanes_of, scalar_of
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes.nest import Bound, Nest
from hlo.backend.lanes.open_loops import repeat_while, when
from hlo.machine import aligned

_INSERTION = 40  # Rows up to this length are not worth the counters.
_LONG = 1024  # Rows from this length on are worth digits of 11 bits.
SUMMED = 16  # Counters that are summed together.
MOVED = 40  # What moving a record to its place takes, in plain operations.
Key = Callable[[Value, int], Value]  # (position, lanes) -> keys


def radix_form(count: int, bits: int, *, with_position: bool) -> RadixForm:
    """How rows of `count` keys of `bits` bits are sorted."""
    digit = 11 if count >= _LONG and bits >= 32 else 8
    joined = with_position and bits <= 32
    return RadixForm(
        count, bits, f"i{64 if joined else bits}", joined, with_position and not joined, digit
    )


class RadixForm(Struct, frozen=True):
    """The records of a radix sort.

    record: LLVM's type of the first column; joined: it holds the position in its low 32 bits;
    beside: a second column of i32 holds it.
    """

    count: int
    bits: int
    record: str
    joined: bool
    beside: bool
    digit: int

    @property
    def digits(self) -> int:
        """How many digits a key has."""
        return -(-self.bits // self.digit)

    @property
    def operations(self) -> int:
        """About how many plain operations a row takes, no digit of which is skipped."""
        return MOVED * self.digits * self.count

    @property
    def text(self) -> str:
        """What it says, in a line."""
        return f"rows of {self.count}, keys of {self.digits} digits of {self.digit} bits"

    @property
    def record_bytes(self) -> int:
        return int(self.record[1:]) // 8

    @property
    def column_types(self) -> list[str]:
        return [self.record, "i32"] if self.beside else [self.record]

    @property
    def scratch_bytes(self) -> int:
        """Two copies of every column, and the counters."""
        columns = sum(2 * self._column_bytes(t) for t in self.column_types)
        return columns + 4 * (self.digits << self.digit)

    def _column_bytes(self, element: str) -> int:
        return aligned(self.count * int(element[1:]) // 8)

    def _columns(self, nest: Nest, scratch: Value, which: int) -> list[Value]:
        """The addresses of one copy's columns."""
        offset, found = 0, []
        for element in self.column_types:
            size = self._column_bytes(element)
            found.append(_moved(nest, scratch, offset + which * size))
            offset += 2 * size
        return found

    # -- records -----------------------------------------------------------------------------

    def refill(self, nest: Nest, scratch: Value, key: Key, positions: Value) -> None:
        """Write the records of a row in the order of positions (i32) that an earlier sort found."""
        w = nest.w
        columns = self._columns(nest, scratch, 0)

        def step(j: Value, _: list[Value]) -> list[Value]:
            narrow = w.load(w.address(positions, j, "i32"), "i32")
            position = w.cast("zext", narrow, "i64")
            self.write(nest, columns, j, key(position, 1), position)
            return []

        nest.loop(0, self.count, 1, [], step)

    def fill(self, nest: Nest, scratch: Value, key: Key, lanes: int) -> None:
        """Write the records of a row: whole vectors of keys, then the rest one by one."""
        whole = self.count - self.count % lanes
        columns = self._columns(nest, scratch, 0)

        def write(width: int) -> Callable[[Value, list[Value]], list[Value]]:
            def step(j: Value, _: list[Value]) -> list[Value]:
                self.write(nest, columns, j, key(j, width), j)
                return []

            return step

        nest.loop(0, whole, lanes, [], write(lanes))
        if lanes > 1:
            nest.loop(whole, self.count, 1, [], write(1))

    def write(
        self, nest: Nest, columns: list[Value], j: Value, key: Value, position: Value
    ) -> None:
        """Records j, j+1, ... of keys and positions that count up from `position`."""
        w = nest.w
        if self.joined:
            wide = vector_of("i64", key.lanes)
            shifted = w.binary("shl", w.cast("zext", key, wide), w.int(32, wide))
            key = w.binary("or", shifted, _counted(nest, position, wide))
        w.store(key, w.address(columns[0], j, self.record))
        if self.beside:
            positions = _counted(nest, position, vector_of("i32", key.lanes))
            w.store(positions, w.address(columns[1], j, "i32"))

    def position(self, nest: Nest, columns: list[Value], j: Value) -> Value:
        """The position (i64) that record j holds."""
        w, types = nest.w, self.column_types
        record = [w.load(w.address(c, j, t), t) for c, t in zip(columns, types, strict=True)]
        return self.position_of(nest, record)

    def position_of(self, nest: Nest, record: list[Value]) -> Value:
        """The position (i64) that a record's columns say."""
        w = nest.w
        if self.beside:
            return w.cast("zext", record[1], "i64")
        return w.binary("and", record[0], w.int(0xFFFFFFFF))

    # -- sorting -----------------------------------------------------------------------------

    def sort(self, nest: Nest, scratch: Value) -> list[Value]:
        """Sort the records; the addresses of the columns that hold the result."""
        first = self._columns(nest, scratch, 0)
        if self.count <= _INSERTION:
            self._insert(nest, first)
            return first
        second = self._columns(nest, scratch, 1)
        counters = _moved(nest, scratch, sum(2 * self._column_bytes(t) for t in self.column_types))
        self._count(nest, first[0], counters)

        def place(p: Value, state: list[Value]) -> list[Value]:
            return self._pass(nest, p, counters, state)

        return nest.loop(0, self.digits, 1, [*first, *second], place)[: len(first)]

    def _digit(self, nest: Nest, record: Value, place: Value) -> Value:
        """The value of a digit, as i64."""
        w = nest.w
        shift = w.binary("mul", place, w.int(self.digit))
        if self.joined:
            shift = w.binary("add", shift, w.int(32))
        wide = w.cast("zext", record, "i64")
        return w.binary("and", w.binary("lshr", wide, shift), w.int((1 << self.digit) - 1))

    def _count(self, nest: Nest, records: Value, counters: Value) -> None:
        """How often each value of each digit occurs."""
        w = nest.w
        w.fill_bytes(counters, 0, 4 * (self.digits << self.digit))

        def step(j: Value, _: list[Value]) -> list[Value]:
            record = w.load(w.address(records, j, self.record), self.record)
            for p in range(self.digits):
                digit = self._digit(nest, record, w.int(p))
                at = w.binary("add", digit, w.int(p << self.digit))
                count_one(nest, counters, at)
            return []

        nest.loop(0, self.count, 1, [], step)

    def _pass(self, nest: Nest, p: Value, counters: Value, state: list[Value]) -> list[Value]:
        """Move the records to where their digit p sends them, unless all agree on it."""
        w = nest.w
        half = len(state) // 2
        source, target = state[:half], state[half:]
        table = w.address(counters, w.binary("shl", p, w.int(self.digit)), "i32")
        sample = self._digit(nest, w.load(source[0], self.record), p)
        of_sample = w.load(w.address(table, sample, "i32"), "i32")
        differs = w.compare("icmp ne", of_sample, w.int(self.count, "i32"))

        def move() -> None:
            start_places(nest, table, 1 << self.digit)
            digit = partial(self._digit, nest, place=p)
            self.scatter(nest, digit, table, (source, target), (0, self.count))

        when(nest, differs, move)
        swapped = [w.select(differs, t, s) for s, t in zip(source, target, strict=True)]
        return [*swapped, *(w.select(differs, s, t) for s, t in zip(source, target, strict=True))]

    def scatter(
        self,
        nest: Nest,
        digit: Callable[[Value], Value],
        places: Value,
        columns: tuple[list[Value], list[Value]],
        bounds: tuple[Bound, Bound],
    ) -> None:
        """Move the records of a range from the first columns to the second: each to the next place
        of its digit."""
        w = nest.w

        def step(j: Value, _: list[Value]) -> list[Value]:
            records = [
                w.load(w.address(c, j, t), t)
                for c, t in zip(columns[0], self.column_types, strict=True)
            ]
            place = count_one(nest, places, digit(records[0]))
            wide = w.cast("zext", place, "i64")
            for record, column in zip(records, columns[1], strict=True):
                w.store(record, w.address(column, wide, record.type))
            return []

        nest.loop(*bounds, 1, [], step)

    def key(self, nest: Nest, record: Value) -> Value:
        """What of a record decides, or of a vector of them; the positions of equal keys do not."""
        if not self.joined:
            return record
        return nest.w.binary("lshr", record, nest.w.int(32, record.type))

    def _insert(self, nest: Nest, columns: list[Value]) -> None:
        """Insertion sort: greater records move up until the new one fits."""
        w = nest.w

        def insert(i: Value, _: list[Value]) -> list[Value]:
            new = [
                w.load(w.address(c, i, t), t)
                for c, t in zip(columns, self.column_types, strict=True)
            ]

            def greater(state: list[Value]) -> Value:
                inside = w.compare("icmp sgt", state[0], w.int(0))
                below = w.binary("sub", state[0], w.int(1))
                safe = w.intrinsic("llvm.smax", "i64", below, w.int(0))
                other = w.load(w.address(columns[0], safe, self.record), self.record)
                above = w.compare("icmp ugt", self.key(nest, other), self.key(nest, new[0]))
                return w.binary("and", inside, above)

            def shift(state: list[Value]) -> list[Value]:
                below = w.binary("sub", state[0], w.int(1))
                for column, element in zip(columns, self.column_types, strict=True):
                    moved = w.load(w.address(column, below, element), element)
                    w.store(moved, w.address(column, state[0], element))
                return [below]

            (hole,) = repeat_while(nest, [i], greater, shift)
            for column, record in zip(columns, new, strict=True):
                w.store(record, w.address(column, hole, record.type))
            return []

        nest.loop(1, self.count, 1, [], insert)


def count_one(nest: Nest, counters: Value, at: Value) -> Value:
    """One more in a counter (i32); what it was."""
    w = nest.w
    slot = w.address(counters, at, "i32")
    before = w.load(slot, "i32")
    w.store(w.binary("add", before, w.int(1, "i32")), slot)
    return before


def start_places(nest: Nest, table: Value, size: Bound) -> None:
    """Counts become the position of each value's first record: prefix sums, lanes at a time."""
    w = nest.w

    def step(d: Value, total: list[Value]) -> list[Value]:
        slot = w.address(table, d, "i32")
        counts = w.load(slot, vector_of("i32", SUMMED))
        sums = prefix_sums(nest, counts)
        before = w.binary("add", w.binary("sub", sums, counts), w.splat(total[0], SUMMED))
        w.store(before, slot)
        return [w.binary("add", total[0], w.extract(sums, SUMMED - 1))]

    nest.loop(0, size, SUMMED, [w.int(0, "i32")], step)


def prefix_sums(nest: Nest, counts: Value) -> Value:
    """Each lane with all lanes before it."""
    w, sums = nest.w, counts
    for distance in _powers_below(SUMMED):
        sums = w.binary("add", sums, _moved_up(nest, sums, distance))
    return sums


def record_of(w: Writer, key: Value, position: Value) -> Value:
    """One joined record: a key of at most 32 bits above its position."""
    return w.binary("or", w.binary("shl", w.cast("zext", key, "i64"), w.int(32)), position)


def _powers_below(bound: int) -> list[int]:
    return [1 << n for n in range(bound.bit_length()) if 1 << n < bound]


def _moved_up(nest: Nest, x: Value, distance: int) -> Value:
    """Lane k holds lane k - distance, or 0."""
    w = nest.w
    order = (k - distance if k >= distance else x.lanes for k in range(x.lanes))
    return w.shuffle(x, w.zero(x.type), order)


def _moved(nest: Nest, base: Value, offset: int) -> Value:
    return nest.w.address(base, nest.w.int(offset), "i8") if offset else base


def _counted(nest: Nest, j: Value, type: str) -> Value:
    """j, j+1, ... in the lanes of an integer type."""
    w = nest.w
    scalar = scalar_of(type)
    start = w.cast("trunc", j, scalar) if scalar != "i64" else j
    lanes = lanes_of(type)
    if lanes == 1:
        return start
    return w.counting(start, lanes)
