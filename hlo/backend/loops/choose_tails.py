"""Tails: how a loop over lanes ends, what becomes of elements after the last full round."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from hlo.backend.loops.nest_schedule import FEW_VECTORS, NestSchedule
from hlo.backend.loops.schedule import Axis, Source, Tail
from hlo.backend.loops.vectors import MOST_SHORT


def choose_tail(schedule: NestSchedule) -> NestSchedule:
    """The schedule with its innermost loop over lanes ended; those of strips are already."""
    vector = schedule.vector
    if vector is None or schedule.inner or schedule.is_blocked:
        return schedule
    ended = _ended(schedule, vector)
    axes = tuple(ended if a is vector else a for a in schedule.axes)
    return replace(schedule, axes=axes)


def _ended(schedule: NestSchedule, vector: Axis) -> Axis:
    length, lanes, step = schedule.domain.extents[-1], vector.lanes, vector.step
    if schedule.source is Source.TURNED and length % lanes and _may_repeat(schedule):
        return replace(vector, step=lanes, tail=Tail.OVERLAPPING)
    if vector.tail is Tail.OVERLAPPING:
        return vector
    if vector.tail is Tail.PREDICATED:
        return replace(vector, step=lanes)
    assert not schedule.block % step, "a unit's block is whole rounds"
    if not length % step:
        return vector
    if vector.of:
        return replace(vector, tail=Tail.MASKED, tail_step=_rest_step(schedule, vector))
    rest = length % lanes
    shortens = not schedule.masks_all
    shortens |= schedule.is_light and length <= FEW_VECTORS * lanes
    is_short = not rest or (shortens and rest.bit_count() <= _most_short(schedule))
    return replace(vector, tail=Tail.SHORT if is_short else Tail.MASKED)


def _most_short(schedule: NestSchedule) -> int:
    """How many short vectors may take a masked one's place. What a loop may hand on in registers is
    one row, and rows of less than a vector are nothing else; of many longer rows each would take
    more vectors.
    """
    extents = schedule.domain.extents
    return MOST_SHORT if prod(extents[:-1]) == 1 or extents[-1] < schedule.lanes else 1


def _rest_step(schedule: NestSchedule, vector: Axis) -> int:
    """Elements of a round after the last full one: a vector, but all that are left where each lane
    adds terms up, for these wait for each other.
    """
    lanes = _rest_lanes(schedule)
    is_reduction = bool(schedule.domain.trace.reductions) and schedule.block == vector.step
    if not is_reduction or lanes < vector.lanes:
        return lanes
    rest = schedule.domain.extents[-1] % vector.step
    return -(-rest // lanes) * lanes


def _rest_lanes(schedule: NestSchedule) -> int:
    """Lanes after the last full batch: elements that lie apart are gathered in 32 bits each."""
    domain = schedule.domain
    lane = domain.variables[-1]
    steps = [read.position.coefficient(lane) or 0 for read in domain.trace.reads]
    words = schedule.machine.vector_bytes // 4
    return min(schedule.lanes, words) if any(abs(k) > 1 for k in steps) else schedule.lanes


def _may_repeat(schedule: NestSchedule) -> bool:
    """Whether lanes may be stored twice: they rest on nothing that a result may lie over."""
    domain = schedule.domain
    lane = domain.variables[-1]
    return all(o.alias is None for o in domain.outputs) and all(
        read.reduced for read in domain.trace.reads if read.position.depends_on(lane)
    )
