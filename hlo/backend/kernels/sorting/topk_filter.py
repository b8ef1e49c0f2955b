"""The best k of a long row, k too large for a list kept in order: a bound lets few elements pass.

    bound = the k-th best of a sample;  for vectors of keys: append what passes to a buffer;
    buffer full: sort it, keep k, bound = the k-th best so far

The sample's elements are spread over the row, so that the bound is close from the start whatever
order the row has. Of random data some k (1 + ln(n / buffer)) elements pass, and a row costs little
more than reading it; where all pass, a sort of the buffer for each part of the row.
Records are key << 32 | position, appended in the order of positions and sorted stably, so that of
equal keys the earlier element wins.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.sorting.radix import RadixForm, radix_form, record_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while, when

_BUFFERS = 4  # Shorter rows than so many buffers are sorted.
_LEAST = 256  # Records of the shortest buffer.
Key = Callable[[Value, int], Value]  # (position, lanes) -> keys of at most 32 bits


class Filter(Struct, frozen=True):
    """How the best k of `count` elements pass through a buffer, `lanes` at a time."""

    count: int
    k: int
    bits: int
    lanes: int

    @property
    def buffer(self) -> int:
        """Records that are collected before the best are sorted out."""
        return max(_LEAST, 4 * self.k)

    @property
    def pays(self) -> bool:
        """Whether a row is filtered rather than sorted."""
        return self.bits <= 32 and self.k > 0 and self.count >= _BUFFERS * self.buffer

    @property
    def form(self) -> RadixForm:
        """How the buffer is sorted."""
        return radix_form(self.buffer, self.bits, with_position=True)

    @property
    def scratch_bytes(self) -> int:
        """The buffer's sort, how many records there are, the bound, one vector of keys."""
        return self.form.scratch_bytes + 16 + self.bits // 8 * self.lanes

    def filtered(self, nest: Nest, scratch: Value, key: Key) -> None:
        """Leave the first k records of a row at the head of the scratch memory."""
        run = _Run(nest, self, scratch, key)
        run.sample()
        run.scan()


class _Run:
    """The code for one row."""

    def __init__(self, nest: Nest, filter: Filter, scratch: Value, key: Key) -> None:
        w = nest.w
        self.nest, self.filter, self.scratch, self.key = nest, filter, scratch, key
        self.key_type = f"i{filter.bits}"
        sorts = filter.form.scratch_bytes
        self.filled = w.address(scratch, w.int(sorts), "i8")
        self.bound = w.address(scratch, w.int(sorts + 8), "i8")
        self.spill = w.address(scratch, w.int(sorts + 16), "i8")

    def sample(self) -> None:
        """Empty the buffer, and let pass what is no worse than the k-th best of a sample."""
        w, f = self.nest.w, self.filter

        def take(s: Value, _: list[Value]) -> list[Value]:
            j = w.binary("mul", s, w.int(f.count // f.buffer))
            w.store(record_of(w, self.key(j, 1), j), w.address(self.scratch, s, "i64"))
            return []

        self.nest.loop(0, f.buffer, 1, [], take)
        (records, *_) = f.form.sort(self.nest, self.scratch)
        w.store(self._last(records), self.bound)
        w.store(w.int(0), self.filled)

    def scan(self) -> None:
        """Fill the buffer and sort it until the row is at its end."""
        w, f = self.nest.w, self.filter

        def ends(state: list[Value]) -> Value:
            return w.compare("icmp ult", state[0], w.int(f.count))

        def has_space(state: list[Value]) -> Value:
            space = w.compare("icmp ule", self._filled(), w.int(f.buffer - f.lanes))
            return w.binary("and", ends(state), space)

        def part(state: list[Value]) -> list[Value]:
            following = repeat_while(self.nest, state, has_space, self._vector)
            self._keep_best()
            return following

        repeat_while(self.nest, [w.int(0)], ends, part)

    def _vector(self, state: list[Value]) -> list[Value]:
        """Append what passes of a vector of keys. The row's last vector begins early, with lanes
        that have been seen."""
        w, f = self.nest.w, self.filter
        (j,) = state
        start = w.intrinsic("llvm.umin", "i64", j, w.int(f.count - f.lanes))
        keys = self.key(start, f.lanes)
        bound = w.load(self.bound, self.key_type)
        passes = w.compare("icmp ule", keys, w.splat(bound, f.lanes))
        bits = w.cast("zext", w.cast("bitcast", passes, f"i{f.lanes}"), "i64")
        new = w.binary("shl", w.int(-1), w.binary("sub", j, start))
        bits = w.binary("and", bits, new)
        some = w.compare("icmp ne", bits, w.int(0))
        when(self.nest, some, lambda: self._append(bits, keys, start))
        return [w.binary("add", j, w.int(f.lanes))]

    def _append(self, bits: Value, keys: Value, start: Value) -> None:
        w = self.nest.w
        w.store(keys, self.spill)

        def is_left(state: list[Value]) -> Value:
            return w.compare("icmp ne", state[0], w.int(0))

        def one(state: list[Value]) -> list[Value]:
            left, place = state
            lane = w.intrinsic("llvm.cttz", "i64", left, w.int(1, "i1"))
            key = w.load(w.address(self.spill, lane, self.key_type), self.key_type)
            record = record_of(w, key, w.binary("add", start, lane))
            w.store(record, w.address(self.scratch, place, "i64"))
            fewer = w.binary("and", left, w.binary("sub", left, w.int(1)))
            return [fewer, w.binary("add", place, w.int(1))]

        _, place = repeat_while(self.nest, [bits, self._filled()], is_left, one)
        w.store(place, self.filled)

    def _keep_best(self) -> None:
        """Sort the buffer, keep k records; what passes from now on is better than the last."""
        w, f = self.nest.w, self.filter

        def fill(i: Value, _: list[Value]) -> list[Value]:
            w.store(w.int(-1), w.address(self.scratch, i, "i64"))
            return []

        self.nest.loop(self._filled(), w.int(f.buffer), 1, [], fill)
        (records, *_) = f.form.sort(self.nest, self.scratch)
        last = self._last(records)
        one = w.int(1, self.key_type)
        w.store(w.intrinsic("llvm.usub.sat", self.key_type, last, one), self.bound)

        def keep(i: Value, _: list[Value]) -> list[Value]:
            record = w.load(w.address(records, i, "i64"), "i64")
            w.store(record, w.address(self.scratch, i, "i64"))
            return []

        self.nest.loop(0, f.k, 1, [], keep)
        w.store(w.int(f.k), self.filled)

    def _filled(self) -> Value:
        return self.nest.w.load(self.filled, "i64")

    def _last(self, records: Value) -> Value:
        """The key of the k-th record."""
        w = self.nest.w
        record = w.load(w.address(records, w.int(self.filter.k - 1), "i64"), "i64")
        return w.cast("trunc", w.binary("lshr", record, w.int(32)), self.key_type)
