"""The best few of a row in one pass: a short sorted list, its last held against vectors of keys.

Records are key << 32 | position, smallest first, so that of equal keys the earlier element wins.
Of random data only k ln(n/k) elements enter the list.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.sorting.radix import record_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while, when

MOST = 32  # Keeping longer lists in order costs more than a sort.
Key = Callable[[Value, int], Value]  # (position, lanes) -> keys of at most 32 bits


def pays(count: int, bits: int, k: int) -> bool:
    """Whether a row is scanned rather than sorted."""
    return bits <= 32 and 0 < k <= MOST and count >= 4 * k


def scratch_bytes(k: int, bits: int, lanes: int) -> int:
    """The list, and one vector of keys."""
    return 8 * k + bits // 8 * lanes


def scanned(nest: Nest, scratch: Value, key: Key, shape: tuple[int, int], lanes: int) -> None:
    """Leave the first k records of a row at the head of the scratch memory; shape: (count, k)."""
    count, k = shape
    w = nest.w

    def start(j: Value, _: list[Value]) -> list[Value]:
        _insert(nest, scratch, record_of(w, key(j, 1), j), j)
        return []

    nest.loop(0, k, 1, [], start)
    whole = k + (count - k) // lanes * lanes

    def hold(width: int) -> Callable[[Value, list[Value]], list[Value]]:
        def step(j: Value, _: list[Value]) -> list[Value]:
            keys = key(j, width)
            last = w.load(w.address(scratch, w.int(k - 1), "i64"), "i64")
            bound = w.cast("trunc", w.binary("lshr", last, w.int(32)), keys.scalar_type)
            better = w.compare("icmp ult", keys, w.splat(bound, width))
            if width == 1:
                record = record_of(w, keys, j)
                when(nest, better, lambda: _insert(nest, scratch, record, w.int(k - 1)))
            else:
                when(nest, w.any_lane(better), lambda: _insert_lanes(nest, scratch, (keys, j), k))
            return []

        return step

    nest.loop(k, whole, lanes, [], hold(lanes))
    if lanes > 1:
        nest.loop(whole, count, 1, [], hold(1))


def _insert_lanes(nest: Nest, scratch: Value, found: tuple[Value, Value], k: int) -> None:
    """Every lane's key, by way of memory, against the list as it then is."""
    w = nest.w
    keys, first = found
    spill = w.address(scratch, w.int(8 * k), "i8")
    w.store(keys, spill)

    def lane(n: Value, _: list[Value]) -> list[Value]:
        key = w.load(w.address(spill, n, keys.scalar_type), keys.scalar_type)
        record = record_of(w, key, w.binary("add", first, n))
        last = w.load(w.address(scratch, w.int(k - 1), "i64"), "i64")
        better = w.compare("icmp ult", record, last)
        when(nest, better, lambda: _insert(nest, scratch, record, w.int(k - 1)))
        return []

    nest.loop(0, keys.lanes, 1, [], lane)


def _insert(nest: Nest, scratch: Value, record: Value, end: Value) -> None:
    """Put the record into the sorted list of `end` records; one at place `end` falls out."""
    w = nest.w

    def greater(state: list[Value]) -> Value:
        below = w.binary("sub", state[0], w.int(1))
        safe = w.intrinsic("llvm.smax", "i64", below, w.int(0))
        other = w.load(w.address(scratch, safe, "i64"), "i64")
        inside = w.compare("icmp sgt", state[0], w.int(0))
        return w.binary("and", inside, w.compare("icmp ugt", other, record))

    def shift(state: list[Value]) -> list[Value]:
        below = w.binary("sub", state[0], w.int(1))
        moved = w.load(w.address(scratch, below, "i64"), "i64")
        w.store(moved, w.address(scratch, state[0], "i64"))
        return [below]

    (hole,) = repeat_while(nest, [end], greater, shift)
    w.store(record, w.address(scratch, hole, "i64"))
