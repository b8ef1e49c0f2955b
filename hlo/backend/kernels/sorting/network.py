"""Networks of comparators: short rows sorted many at once, a row a lane.

    for each pair i < j of the network:  record[i], record[j] = min, max

Which records are compared depends on no value, so that no branch is guessed wrong, and a pair takes
two instructions for as many rows as there are lanes. Records are keys alone.

Source: merge exchange of Batcher 1968, for any number of records as Knuth, volume 3, 5.2.2,
algorithm M has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest


class Stage(Struct, frozen=True):
    """Pairs of one distance, which do not meet: i and i + distance, for i with this bit as said."""

    distance: int
    bit: int
    is_set: bool

    def runs(self, count: int) -> Iterator[range]:
        """The lesser members of its pairs among `count` records, run by run."""
        for first in range(self.bit if self.is_set else 0, count - self.distance, 2 * self.bit):
            yield range(first, min(first + self.bit, count - self.distance))


def stages(count: int) -> Iterator[Stage]:
    """The stages that sort `count` records, the first first."""
    half = _half(count)
    bit = half
    while bit:
        yield Stage(bit, bit, False)
        whole = half
        while whole > bit:
            yield Stage(whole - bit, bit, True)
            whole //= 2
        bit //= 2


def _half(count: int) -> int:
    """The largest power of two below `count`, 0 for one record."""
    return 1 << max(count - 1, 0).bit_length() >> 1


def comparators(count: int) -> int:
    """How many pairs are compared."""
    return sum(len(run) for stage in stages(count) for run in stage.runs(count))


def sorted_values(nest: Nest, records: list[Value]) -> list[Value]:
    """Vectors of signed integers, the least of each lane first."""
    found = list(records)
    for stage in stages(len(found)):
        for run in stage.runs(len(found)):
            for i in run:
                j = i + stage.distance
                found[i], found[j] = _exchanged(nest, found[i], found[j])
    return found


def sort_memory(nest: Nest, memory: Value, count: int, type: str) -> None:
    """The same of vectors of this type that lie one after the other."""
    w = nest.w

    def place(i: Value) -> Value:
        return w.address(memory, i, type)

    def exchange(i: Value, distance: Value) -> list[Value]:
        low, high = place(i), place(w.binary("add", i, distance))
        pair = _exchanged(nest, w.load(low, type), w.load(high, type))
        for value, at in zip(pair, (low, high), strict=True):
            w.store(value, at)
        return []

    half = _half(count)
    levels = half.bit_length()

    def level(n: Value, _: list[Value]) -> list[Value]:
        """The stages of one bit but the lowest, whose pairs come in runs of so many."""
        bit = w.binary("lshr", w.int(half), n)
        twice = w.binary("sub", w.int(levels), n)  # the power of two that two runs are

        def runs(start: Value, stop: Value, distance: Value) -> None:
            def run(first: Value, end: Value) -> None:
                nest.loop(first, end, 1, [], lambda i, _: exchange(i, distance))

            pairs = w.binary("sub", stop, start)
            whole = w.binary("ashr", w.binary("add", pairs, bit), twice)

            def each(k: Value, _: list[Value]) -> list[Value]:
                first = w.binary("add", start, w.binary("shl", k, twice))
                run(first, w.binary("add", first, bit))
                return []

            nest.loop(w.int(0), whole, 1, [], each)
            run(w.binary("add", start, w.binary("shl", whole, twice)), stop)

        _each_stage(nest, half, count, bit, w.binary("add", n, w.int(1)), runs)
        return []

    nest.loop(0, levels - 1, 1, [], level)

    def neighbours(start: Value, stop: Value, distance: Value) -> None:
        """Of the lowest bit: every second one."""
        end = w.binary("add", stop, w.int(1))
        nest.loop(start, end, 2, [], lambda i, _: exchange(i, distance))

    _each_stage(nest, half, count, w.int(1), w.int(levels), neighbours)


def _each_stage(
    nest: Nest,
    half: int,
    count: int,
    bit: Value,
    times: Value,
    body: Callable[[Value, Value, Value], None],
) -> None:
    """The stages of a bit, as `stages` has them: where its pairs' lesser members begin and end, and
    their distance.
    """
    w = nest.w

    def stage(n: Value, _: list[Value]) -> list[Value]:
        is_first = w.compare("icmp eq", n, w.int(0))
        whole = w.binary("lshr", w.int(2 * half), n)
        distance = w.select(is_first, bit, w.binary("sub", whole, bit))
        start = w.select(is_first, w.int(0), bit)
        body(start, w.binary("sub", w.int(count), distance), distance)
        return []

    nest.loop(w.int(0), times, 1, [], stage)


def _exchanged(nest: Nest, a: Value, b: Value) -> tuple[Value, Value]:
    """The lesser and the greater. Where machines do not have them of 64 bits they are made of a
    comparison's bits: of a choice between what was loaded LLVM makes masked stores, which take many
    times as long.
    """
    w = nest.w
    if a.scalar_type != "i64" or nest.target.isa.has_long_extremes:
        return w.intrinsic("llvm.smin", a.type, a, b), w.intrinsic("llvm.smax", a.type, a, b)
    greater = w.cast("sext", w.compare("icmp sgt", a, b), a.type)
    change = w.binary("and", w.binary("xor", a, b), greater)
    return w.binary("xor", a, change), w.binary("xor", b, change)
