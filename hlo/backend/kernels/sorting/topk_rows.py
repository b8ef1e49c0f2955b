"""The best k of many short rows at once, a row a lane: a sorted list of k vectors.

    for a column of records x:  for t in 0..k-1:  list[t], x = min(list[t], x), max(list[t], x)

What falls out of one place is compared with the next. Nothing depends on the values, so that no
branch is guessed wrong. Records are signed integers, the key above, the position below: of equal
keys the earlier element wins. Columns are read by rows, and turned in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.values import vector_of
from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed

# Steps of one row from which on looking for the few elements that enter a list costs less.
_MOST_STEPS = 4096
Key = Callable[[Value, Value, int], Value]  # (row, position, lanes) -> keys of at most 32 bits


class RowLanes(Struct, frozen=True):
    """How the best k of `rows` rows of `count` elements are found; of a machine with so many
    vector registers of so many bytes."""

    rows: int
    count: int
    k: int
    bits: int
    vector_bytes: int
    registers: int

    @property
    def half(self) -> int:
        """Bits of a record's key, and of its position."""
        return 16 if self.bits <= 16 and self.count <= 1 << 16 else 32

    @property
    def record(self) -> str:
        return f"i{2 * self.half}"

    @property
    def lanes(self) -> int:
        """Rows that are looked at together."""
        return 8 * self.vector_bytes // (2 * self.half)

    @property
    def units(self) -> int:
        return -(-self.rows // self.lanes)

    @property
    def pays(self) -> bool:
        """Whether rows are taken together: enough of them, whose list stays in registers."""
        is_short = self.count * self.k <= _MOST_STEPS and 0 < self.k <= self.registers // 2
        return is_short and self.bits <= 32 and min(self.rows, self.count) >= self.lanes >= 4

    @property
    def scratch_bytes(self) -> int:
        return self.k * self.vector_bytes

    def best(self, nest: Nest, scratch: Value, key: Key, first: Value) -> None:
        """Leave the list of the rows from `first` on in the scratch memory: record t of each row
        beside those of the others."""
        w = nest.w
        places = [self._row(nest, first, lane) for lane in range(self.lanes)]

        def take(start: Value, held: list[Value], skipped: int) -> list[Value]:
            rows = [self._records(nest, key(place, start, self.lanes), start) for place in places]
            for x in transposed(nest, rows)[skipped:]:
                held = self._entered(nest, held, x)
            return held

        greatest = (1 << (2 * self.half - 1)) - 1
        empty = w.splat(w.int(greatest, self.record), self.lanes)
        whole = self.count // self.lanes * self.lanes
        held = nest.loop(0, whole, self.lanes, [empty] * self.k, lambda j, s: take(j, s, 0))
        if whole < self.count:
            last = self.count - self.lanes
            held = take(w.int(last), held, whole - last)
        for t, records in enumerate(held):
            w.store(records, w.address(scratch, w.int(t * self.vector_bytes), "i8"))

    def position(self, nest: Nest, scratch: Value, t: Value, lane: Value) -> Value:
        """Where in its row the t-th best of a lane's row lies."""
        w = nest.w
        at = w.binary("add", w.binary("mul", t, w.int(self.lanes)), lane)
        record = w.load(w.address(scratch, at, self.record), self.record)
        wide = record if self.half == 32 else w.cast("zext", record, "i64")
        return w.binary("and", wide, w.int((1 << self.half) - 1))

    def _row(self, nest: Nest, first: Value, lane: int) -> Value:
        """A lane's row; beyond the last one the last."""
        w = nest.w
        row = w.binary("add", first, w.int(lane))
        return w.intrinsic("llvm.umin", "i64", row, w.int(self.rows - 1))

    def _records(self, nest: Nest, keys: Value, start: Value) -> Value:
        """keys << half | position, the highest bit turned over: unsigned order as signed."""
        w = nest.w
        type = vector_of(self.record, keys.lanes)
        wide = keys if keys.type == type else w.cast("zext", keys, type)
        shifted = w.binary("shl", wide, w.int(self.half, type))
        narrow = start if self.half == 32 else w.cast("trunc", start, self.record)
        record = w.binary("or", shifted, w.counting(narrow, keys.lanes))
        return w.binary("xor", record, w.int(-(1 << (2 * self.half - 1)), type))

    def _entered(self, nest: Nest, held: list[Value], x: Value) -> list[Value]:
        w, found = nest.w, []
        for kept in held:
            found.append(w.intrinsic("llvm.smin", x.type, kept, x))
            x = w.intrinsic("llvm.smax", x.type, kept, x)
        return found
