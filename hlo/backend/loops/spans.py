"""Spans: which units of its nests a kernel runs for units [begin, end) of its own.

    schedules --spans_of--> [Span]: a nest's numbers --unit_limits--> the nest's units

Boxes side by side in the same rows share their numbers, each in proportion: a thread that takes
some rows takes all columns of them, their edges too. Boxes of other rows, and other results, have
numbers of their own; if their units differ in work, as many as their share of the work asks for.
Every unit has one place for any begin and end, so that threads change no bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from hlo.backend.loops.costs import evaluations, flops
from hlo.backend.loops.nest_schedule import NestSchedule

# The most by which a group's share of the numbers may differ from that of the work.
_MOST_UNEVEN = 0.125


class Span(Struct, frozen=True):
    """Numbers [first, first + count) of the kernel, and how many units of a nest they are."""

    first: int
    count: int
    units: int


def spans_of(schedules: Sequence[NestSchedule]) -> list[Span]:
    """Each nest's numbers, in order."""
    groups = [list(group) for _, group in groupby(schedules, _rows)]
    counts = _evened([max(p.units for p in g) for g in groups], [_work(g) for g in groups])
    spans, first = [], 0
    for group, count in zip(groups, counts, strict=True):
        spans += [Span(first, count, schedule.units) for schedule in group]
        first += count
    return spans


def total_of(spans: Sequence[Span]) -> int:
    """How many numbers there are."""
    return max((s.first + s.count for s in spans), default=0)


def _rows(schedule: NestSchedule) -> tuple[object, ...]:
    """What boxes side by side have in common: their results, and where they lie along the rows."""
    domain = schedule.domain
    whole = domain.outputs[0].dims
    outermost = next((d for d, size in enumerate(whole) if size > 1), 0)
    place = outermost, outermost + 1
    return id(domain.outputs[0]), domain.low[slice(*place)], domain.dims[slice(*place)]


def _work(schedules: Sequence[NestSchedule]) -> int:
    """Operations, reads and writes of the nests."""
    domains = [schedule.domain for schedule in schedules]
    reads = sum(evaluations([r.position]) for domain in domains for r in domain.trace.reads)
    return flops(domains) + reads + sum(d.size * len(d.outputs) for d in domains)


def _evened(counts: list[int], works: list[int]) -> list[int]:
    """The groups' numbers of units, or in their place shares of the work where these differ."""
    numbers, work = sum(counts), sum(works)
    uneven = (abs(n / numbers - share / work) for n, share in zip(counts, works, strict=True))
    if len(counts) < 2 or max(uneven) <= _MOST_UNEVEN:
        return counts
    return [max(1, round(numbers * share / work)) for share in works]
