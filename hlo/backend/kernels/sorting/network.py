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

_WRITTEN_OUT = 32  # So many records have names of their own; more lie in memory.


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
    half = 1 << max(count - 1, 0).bit_length() >> 1
    bit = half
    while bit:
        yield Stage(bit, bit, False)
        whole = half
        while whole > bit:
            yield Stage(whole - bit, bit, True)
            whole //= 2
        bit //= 2


def comparators(count: int) -> int:
    """How many pairs are compared."""
    return sum(len(run) for stage in stages(count) for run in stage.runs(count))


def is_written_out(count: int) -> bool:
    """Whether records are values, rather than vectors in memory."""
    return count <= _WRITTEN_OUT


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

    def exchange(i: Value, distance: int) -> None:
        low, high = place(i), place(w.binary("add", i, w.int(distance)))
        pair = _exchanged(nest, w.load(low, type), w.load(high, type))
        for value, at in zip(pair, (low, high), strict=True):
            w.store(value, at)

    for stage in stages(count):
        _pass(nest, stage, count, exchange)


def _pass(nest: Nest, stage: Stage, count: int, exchange: Callable[[Value, int], None]) -> None:
    """Loops over the pairs of a stage: whole runs, then the last one if it is shorter."""
    w = nest.w

    def each(i: Value, _: list[Value]) -> list[Value]:
        exchange(i, stage.distance)
        return []

    def run_from(first: Value, _: list[Value]) -> list[Value]:
        nest.loop(first, w.binary("add", first, w.int(stage.bit)), 1, [], each)
        return []

    runs = list(stage.runs(count))
    whole = sum(len(run) == stage.bit for run in runs)
    if whole:
        step = 2 * stage.bit
        high = runs[0].start + whole * step
        nest.loop(runs[0].start, high, step, [], each if stage.bit == 1 else run_from)
    for run in runs[whole:]:
        nest.loop(run.start, run.stop, 1, [], each)


def _exchanged(nest: Nest, a: Value, b: Value) -> tuple[Value, Value]:
    """The lesser and the greater. Few machines have them of 64 bits; of a choice between what was
    loaded LLVM makes masked stores, which take many times as long.
    """
    w = nest.w
    if a.scalar_type != "i64":
        return w.intrinsic("llvm.smin", a.type, a, b), w.intrinsic("llvm.smax", a.type, a, b)
    greater = w.cast("sext", w.compare("icmp sgt", a, b), a.type)
    change = w.binary("and", w.binary("xor", a, b), greater)
    return w.binary("xor", a, change), w.binary("xor", b, change)
