"""Choose: the schedules of a kernel's loops, one decision after the other.

    expression, outputs --schedules_of--> [NestSchedule], one for each domain

Each choose_* asks the machine and the trace of what is read, and gives a new schedule; nothing is
decided later, while code is written. Where a value is asked for at an index of its own, as under
the conditions of a pad, reductions.py says how.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hlo.backend.loops.choose_lanes import choose_lanes, choose_strip, rows_of_few
from hlo.backend.loops.choose_prefetches import choose_prefetches
from hlo.backend.loops.choose_rows import choose_rows
from hlo.backend.loops.choose_stages import choose_stages
from hlo.backend.loops.choose_tails import choose_tail
from hlo.backend.loops.choose_units import choose_units
from hlo.backend.loops.domain import domains_of, looped
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.in_place import read_apart
from hlo.backend.loops.nest_schedule import NestSchedule, serial
from hlo.backend.loops.outputs import Output

_MANY = (
    16  # A box that many times as large as another one takes the time; the other's code is short.
)


def schedules_of(
    expression: Expression, outputs: Sequence[Output], lanes: int, said: tuple[int, ...] = ()
) -> list[NestSchedule]:
    """How the loops of each of the outputs' domains run. lanes: of a full vector of the kernel;
    said: the order of the loops that the fusion's text asks for, () for none
    (analysis/loop_order.py).
    """
    found = [looped(expression, box, said) for box in domains_of(expression, outputs, lanes)]
    domains = [domain for domain, _ in found]
    largest, apart = (
        max((domain.size for domain in domains), default=0),
        read_apart(expression, outputs, domains),
    )
    schedules = []
    for domain, kept in found:
        first = replace(serial(expression.target, domain, lanes), apart=apart)
        if _MANY * domain.size <= largest and not domain.trace.reductions:
            # What lies beside a seam.
            first = replace(first, is_small=True).because("code: little, as it is of few elements")
        schedules.append(_chosen(expression, first, kept))
    return schedules


def _chosen(expression: Expression, first: NestSchedule, kept: int) -> NestSchedule:
    strip = choose_strip(first, kept or rows_of_few(first))
    if strip is not None:
        from hlo.backend.loops.choose_kept_strips import choose_strips  # few loops are strips

        return choose_strips(expression, strip)
    schedule = choose_units(choose_lanes(first))
    if schedule.vector is not None and schedule.domain.trace.reductions:
        from hlo.backend.loops.choose_streams import choose_streams  # of reductions

        schedule = choose_streams(expression, schedule, first.lanes)
    schedule = choose_rows(choose_stages(expression, schedule))
    return choose_prefetches(expression, choose_tail(schedule))
