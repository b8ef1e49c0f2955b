"""Numbering: which units of its parts a kernel runs for units [begin, end) of its own.

    parts --spans_of--> [Span]: a part's numbers --Span.units--> the part's units

Boxes side by side in the same rows share their numbers, each in proportion: a thread that takes
some rows takes all columns of them, their edges too. Boxes of other rows, and other results, have
numbers of their own; if their units differ in work, as many as their share of the work asks for.
Every unit has one place for any begin and end, so that threads change no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.costs import evaluations, flops
from hlo.backend.kernels.part import Part

_MOST_UNEVEN = 0.125  # between a group's share of the numbers and of the work


class Span(Struct, frozen=True):
    """Numbers [first, first + count) of the kernel, and how many units of a part they are."""

    first: int
    count: int
    units: int

    def limits(self, w: Writer, begin: Value, end: Value, total: int) -> tuple[Value, Value]:
        """The part's units for the kernel's units [begin, end) of `total`."""
        return self._limit(w, begin, total), self._limit(w, end, total)

    def _limit(self, w: Writer, number: Value, total: int) -> Value:
        if self.first > 0:
            number = w.binary("sub", number, w.int(self.first))
            number = w.intrinsic("llvm.smax", "i64", number, w.int(0))
        if self.first + self.count < total:
            number = w.intrinsic("llvm.smin", "i64", number, w.int(self.count))
        if self.units != self.count:
            scaled = w.binary("mul", number, w.int(self.units))
            number = w.binary("udiv", scaled, w.int(self.count))
        return number


def spans_of(parts: Sequence[Part]) -> list[Span]:
    """Each part's numbers, in order."""
    groups = [list(group) for _, group in groupby(parts, _rows)]
    counts = _evened([max(p.units for p in g) for g in groups], [_work(g) for g in groups])
    spans, first = [], 0
    for group, count in zip(groups, counts, strict=True):
        spans += [Span(first, count, part.units) for part in group]
        first += count
    return spans


def total_of(spans: Sequence[Span]) -> int:
    """How many numbers there are."""
    return max((s.first + s.count for s in spans), default=0)


def _rows(part: Part) -> tuple[object, ...]:
    """What boxes side by side have in common: their results, and where they lie along the rows."""
    whole = part.outputs[0].dims
    outermost = next((d for d, size in enumerate(whole) if size > 1), 0)
    place = outermost, outermost + 1
    return id(part.outputs[0]), part.low[slice(*place)], part.dims[slice(*place)]


def _work(parts: Sequence[Part]) -> int:
    """Operations, reads and writes of the parts."""
    reads = sum(evaluations([r.position]) for part in parts for r in part.trace.reads)
    return flops(parts) + reads + sum(part.size * len(part.outputs) for part in parts)


def _evened(counts: list[int], works: list[int]) -> list[int]:
    """The groups' numbers of units, or in their place shares of the work where these differ."""
    numbers, work = sum(counts), sum(works)
    uneven = (abs(n / numbers - share / work) for n, share in zip(counts, works, strict=True))
    if len(counts) < 2 or max(uneven) <= _MOST_UNEVEN:
        return counts
    return [max(1, round(numbers * share / work)) for share in works]
