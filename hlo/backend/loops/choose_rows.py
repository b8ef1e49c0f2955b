"""Kept rows: elements that several stages read and that cost much are computed by the first only.

The exponential of a softmax is asked for by the sum and by the division: it is kept in a row of the
inner dimensions, in memory of the thread, so it stays in the first levels of cache. Of a chain with
several such elements (an activation before a norm) the last one is kept that all stages go through.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from hlo.backend.loops.domain import covers
from hlo.backend.loops.nest_schedule import Keep, NestSchedule
from hlo.indexing import affine
from hlo.indexing.affine import Index
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction


def choose_rows(schedule: NestSchedule) -> NestSchedule:
    """With rows for the elements that are asked for at several indices with one outer part.

    A longer row than a part of the second-level cache is as slow as computing again; elements that
    are cheap come faster out of the first level only.
    """
    trace = schedule.domain.trace
    if not trace.reductions or schedule.block or schedule.inner:
        return schedule
    from hlo.backend.loops.post_dominators import PostDominators  # many programs get no further

    keeps: list[Keep] = []
    remarks: list[str] = []
    total = 0
    first, second = schedule.machine.first_cache.bytes, schedule.machine.second_cache.bytes
    narrowest = PostDominators()
    wanted: dict[Instruction, tuple[tuple[int, ...], bool]] = {}
    for asked, inner in _worth_a_row(schedule).items():
        last = narrowest.of(asked)
        is_heavy = asked in trace.heavy_at or (last in wanted and wanted[last][1])
        wanted[last] = inner, is_heavy
    for instruction, (inner, is_heavy) in wanted.items():
        dtype = instruction.shape.dtype
        if dtype.is_narrow_float:
            dtype = dt.F32  # what the lanes are: neither packed nor spread again
        sizes = tuple(instruction.shape.dims[d] for d in inner)
        keep = Keep(instruction, dtype, prod(sizes) * schedule.rows, inner, sizes)
        most = second // 32 if is_heavy else first // 2
        if keep.size < schedule.lanes or keep.size_bytes > most:
            continue
        if total + keep.size_bytes > second // 8:
            continue
        total += keep.size_bytes
        keeps.append(keep)
        remarks.append(f"row: {instruction.name} kept, {keep.size_bytes} bytes of {most} at most")
    return replace(schedule, keeps=(*schedule.keeps, *keeps)).because(*remarks)


def _worth_a_row(schedule: NestSchedule) -> dict[Instruction, tuple[int, ...]]:
    """What several stages read, with the dimensions of its row: the expensive, and of what is
    rounded (five instructions each) the last before something that is not kept.
    """
    found: dict[Instruction, tuple[int, ...]] = {}
    for instruction, indices in (
        schedule.domain.trace.heavy_at | schedule.domain.trace.rounded_at
    ).items():
        inner = _inner(indices, instruction.shape.dims)
        if inner is None or instruction.shape.dtype.is_complex:
            continue
        if not any(
            _is_across(schedule, i, inner) or _is_partial(schedule, i, inner) for i in indices
        ):
            found[instruction] = inner
    return {
        i: inner
        for i, inner in found.items()
        if i in schedule.domain.trace.heavy_at
        or not i.users
        or any(u not in found for u in i.users)
    }


def _inner(indices: list[Index], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions in which the indices differ, if each runs over all of them; else None."""
    if len(indices) < 2:
        return None
    inner = tuple(d for d in range(len(dims)) if any(i[d] != indices[0][d] for i in indices))
    for index in indices:
        place = affine.linear([index[d] for d in inner], [dims[d] for d in inner])
        if not covers(place, prod(dims[d] for d in inner)):
            return None
        outer = {a for d in range(len(dims)) if d not in inner for a in index[d].terms}
        if outer & set(place.terms):
            return None
    return inner


def _is_across(schedule: NestSchedule, index: Index, inner: tuple[int, ...]) -> bool:
    """Whether the schedule's lanes are elements of different rows."""
    if schedule.vector is None:
        return False
    lane = schedule.domain.variables[-1]
    return any(e.depends_on(lane) for d, e in enumerate(index) if d not in inner)


def _is_partial(schedule: NestSchedule, index: Index, inner: tuple[int, ...]) -> bool:
    """Whether it is an element of the row at an index that is fixed where the reductions are."""
    depth = max(
        (schedule.domain.fixes(at) for _, at in schedule.domain.trace.reductions), default=0
    )
    return any(index[d].depends_on(v) for d in inner for v in schedule.domain.variables[:depth])
