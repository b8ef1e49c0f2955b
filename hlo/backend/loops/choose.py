"""Choose: the schedules of a kernel's loops, one decision after the other.

    expression, outputs --schedules_of--> [NestSchedule], one for each domain

Each choose_* asks the machine and the trace of what is read, and gives a new schedule; nothing is
decided later, while code is written. Where a value is asked for at an index of its own, as under
the conditions of a pad, reductions.py says how.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hlo.analysis.decisions import decisions_of
from hlo.backend.loops.choose_lanes import choose_lanes, choose_strip, rows_of_few
from hlo.backend.loops.choose_prefetches import choose_prefetches
from hlo.backend.loops.choose_rows import choose_rows
from hlo.backend.loops.choose_stages import choose_stages
from hlo.backend.loops.choose_tails import choose_tail
from hlo.backend.loops.choose_units import choose_units
from hlo.backend.loops.costs import BRIEF_OPERATIONS, flops
from hlo.backend.loops.domain import Domain, domains_of, looped
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.in_place import read_apart
from hlo.backend.loops.nest_schedule import NestSchedule, serial
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import Tail
from hlo.indexing import affine

# A box that is so many times as large as another one takes the time; the other's code is short.
_MANY = 16


def schedules_of(
    expression: Expression, outputs: Sequence[Output], lanes: int, said: tuple[int, ...] = ()
) -> list[NestSchedule]:
    """How the loops of each of the outputs' domains run. lanes: of a full vector of the kernel;
    said: the order of the loops that the fusion's text asks for, () for none
    (analysis/loop_order.py).
    """
    boxes = domains_of(expression, outputs, lanes)
    found = [looped(expression, box, lanes, said) for box in boxes]
    domains = [domain for domain, _ in found]
    largest = max((domain.size for domain in domains), default=0)
    apart = read_apart(expression, outputs, domains)
    schedules = []
    for domain, kept in found:
        first = replace(serial(expression.target, domain, lanes), apart=apart)
        if why := _little(domain, largest, runs_once=expression.runs_once):
            first = replace(first, is_small=True).because(f"code: little, as {why}")
        schedules.append(_chosen(expression, first, kept))
    return schedules


def _little(domain: Domain, largest: int, *, runs_once: bool) -> str:
    """Why a domain's code is better little than fast; "" where it is not."""
    if _MANY * domain.size <= largest and not domain.trace.reductions:
        return "it is of few elements"  # it lies beside a seam
    if runs_once and domain.size + flops([domain]) <= BRIEF_OPERATIONS:
        return "it is run once, and takes little"
    return ""


def _chosen(expression: Expression, first: NestSchedule, kept: int) -> NestSchedule:
    strip = choose_strip(first, kept) if kept else None
    strip = strip or choose_strip(first, rows_of_few(first))
    if strip is not None:
        from hlo.backend.loops.choose_kept_strips import choose_strips  # few loops are strips

        return choose_strips(expression, strip)
    schedule = choose_units(choose_lanes(first))
    if schedule.domain.trace.conditions:
        from hlo.backend.loops.choose_written_out import choose_written_out  # of seams left over

        schedule = choose_written_out(expression, schedule)
    if schedule.vector is not None and schedule.domain.trace.reductions:
        from hlo.backend.loops.choose_streams import choose_streams  # of reductions

        schedule = choose_streams(expression, schedule, first.lanes)
    schedule = choose_rows(choose_stages(expression, schedule))
    schedule = choose_tail(schedule)
    if expression.target.is_bounded:
        schedule = _bounded(schedule)
    return choose_prefetches(expression, schedule)


def _bounded(schedule: NestSchedule) -> NestSchedule:
    """The lanes' rounds that meet what the block's rows see, if all results have columns that lanes
    run over; others compute all of them, which nobody reads."""
    vector, domain = schedule.vector, schedule.domain
    if vector is None or schedule.block or schedule.walks or schedule.inner:
        return schedule
    if vector.tail is Tail.PREDICATED:
        return schedule
    own = affine.of(domain.variables[vector.loop])
    index = domain.index([affine.of(v) for v in domain.variables])
    for output in domain.outputs:
        column = decisions_of(output.source).bounded
        if not 0 <= column < len(index) or index[column] != own:
            return schedule
    axes = tuple(replace(a, is_bounded=a is vector) for a in schedule.axes)
    return replace(schedule, axes=axes)
