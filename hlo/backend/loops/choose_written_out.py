"""Loops of few steps that are written out, because conditions ask for their counters.

    schedule --choose_written_out--> axes between units and lanes with the role `unrolled`

What stages of a butterfly join (sums beside differences, gates on qubits, polar codes) is asked for
at a place whose digits say of which stage which half it is: a loop for each digit, and in each step
what both halves need is loaded, under masks, and one of it chosen. Written out, each place has what
it needs alone. Six stages over rows of 64 take 0.19 of the time (Emerald Rapids, two threads; 0.11
with AVX2), a Walsh-Hadamard transform 0.5 (0.36).
"""

from __future__ import annotations

import itertools
from math import prod

from hlo.backend.loops.domain import traced
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.schedule import Role
from hlo.backend.loops.trace import Trace
from hlo.indexing import affine

_MOST_STEPS = 4  # Of a loop that is written out.
_MOST_PLACES = 32  # Of loops that are written out together.
_MOST_OPS = 300  # Of the code of all places, as if they shared nothing.


def choose_written_out(expression: Expression, schedule: NestSchedule) -> NestSchedule:
    """The schedule with its loops between units and lanes written out where conditions meet them,
    that is decided then, and the code is not much.
    """
    domain, first, last = schedule.domain, schedule.prefix, schedule.loops
    if domain.trace.reductions or domain.outer or schedule.rows > 1 or not _is_plain(schedule):
        return schedule
    met = [
        k
        for k in range(first, last)
        if domain.extents[k] <= _MOST_STEPS
        and any(c.index.depends_on(domain.variables[k]) for c in domain.trace.conditions)
    ]
    places = prod(domain.extents[k] for k in met)
    if not met or places > _MOST_PLACES:
        return schedule
    values = [affine.of(v) for v in domain.variables]
    found = []
    for place in itertools.product(*(range(domain.extents[k]) for k in met)):
        for k, n in zip(met, place, strict=True):
            values[k] = affine.number(n)
        found.append(traced(expression, domain, domain.index(values)))
    ops = sum(map(_code, found))
    if any(t.conditions for t in found) or ops > _MOST_OPS:
        return schedule
    for k in met:
        schedule = schedule.with_axis(k, role=Role.UNROLLED)
    whole = places * _code(domain.trace)
    return schedule.because(
        f"written out: {places} places of {ops} operations together, {whole} with conditions"
    )


def _is_plain(schedule: NestSchedule) -> bool:
    """Whether the lanes' loop is the innermost one, and each step of the others a row."""
    return schedule.vector is not None and not schedule.inner and schedule.tile is None


def _code(found: Trace) -> int:
    return found.ops + len(found.reads)
