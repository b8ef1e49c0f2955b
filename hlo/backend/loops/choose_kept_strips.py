"""Kept strips: elements that several stages of a strip need, left by the first for the others.

What is expensive to compute or to gather is kept, and what is read from memory in rows so far apart
that a cache cannot hold them together: lines whose addresses differ by a power of two share a set.
Few bytes lie on the stack, more in the thread's scratch memory, all of them in its core's cache.
"""

from __future__ import annotations

from collections.abc import Collection
from math import gcd, prod

from msgspec.structs import replace

from hlo.backend.loops.domain import covers
from hlo.backend.loops.expression import Expression, Leaf, Path
from hlo.backend.loops.nest_schedule import Keep, NestSchedule
from hlo.backend.loops.reductions import UNROLLED
from hlo.backend.loops.schedule import Role
from hlo.backend.loops.trace import Read, reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Index
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.machine import aligned

_LEFT = Leaf(dt.F32, 0)  # Stands for a value that an earlier stage has left in memory.


def choose_strips(expression: Expression, schedule: NestSchedule) -> NestSchedule:
    """With memory for what a strip's stages share, as much as a cache holds."""
    vector = schedule.vector
    if vector is None or not schedule.inner:
        return schedule
    reduced = prod(axis.extent for axis in schedule.inner)
    wanted = _wanted(schedule, reduced)
    offsets, size_bytes = _offsets(expression, schedule, wanted, reduced * vector.step)
    keeps: list[Keep] = []
    remarks: list[str] = []
    for instruction, offset in offsets.items():
        inner, shift = wanted[instruction]
        sizes = tuple(instruction.shape.dims[d] for d in inner)
        there = [k.value for k in keeps if k.offset == offset]
        keeps.append(
            Keep(
                instruction, _kept_type(instruction), reduced * vector.step, inner, sizes,
                vector.step, shift, offset=offset, shares=there[-1] if there else None,
            )
        )  # fmt: skip
        remarks.append(f"strip: {instruction.name} kept, of {size_bytes} bytes in all")
    return replace(schedule, keeps=tuple(keeps)).because(*remarks)


def _wanted(schedule: NestSchedule, reduced: int) -> dict[Instruction, tuple[tuple[int, ...], int]]:
    """What is kept of a schedule with a strip, with the dimensions along its columns and
    how far its columns are from the schedule's."""
    found: dict[Instruction, tuple[tuple[int, ...], int]] = {}
    is_written_out = all(axis.role is Role.UNROLLED for axis in schedule.inner)
    if reduced <= UNROLLED or (is_written_out and not schedule.domain.trace.conditions):
        return found
    for instruction, indices in (schedule.domain.trace.heavy_at | _read_apart(schedule)).items():
        inner = _reduced_dims(schedule, indices, instruction.shape.dims)
        if inner is None or instruction.shape.dtype.is_complex:
            continue
        if prod(instruction.shape.dims[d] for d in inner) == reduced:
            (across,) = [e for e in indices[0] if e.depends_on(schedule.lane)]
            found[instruction] = inner, across.constant
    return found


def _offsets(
    expression: Expression, schedule: NestSchedule, wanted: Collection[Instruction], size: int
) -> tuple[dict[Instruction, int], int]:
    """Where each begins, in bytes, and how many they are: two may share memory."""
    asked = _asked(expression, schedule, wanted) if len(wanted) > 1 else {}
    held: dict[int, list[Instruction]] = {}  # by where they begin
    total, most = 0, schedule.machine.second_cache.bytes // 2
    for instruction in wanted:
        dtype = _kept_type(instruction)
        size_bytes = aligned(size * dtype.item_bytes)
        free = (
            place
            for place, others in held.items()
            if not schedule.domain.trace.conditions
            and all(
                _kept_type(o) is dtype and _take_turns(asked[o], asked[instruction]) for o in others
            )
        )
        place = next(free, total)
        if place < total or total + size_bytes <= most:
            held.setdefault(place, []).append(instruction)
            total = max(total, place + size_bytes)
    return {i: place for place, held_there in held.items() for i in held_there}, total


Asked = dict[int, set[Index]]  # the stages in which an element is asked for, and where


def _take_turns(a: Asked, b: Asked) -> bool:
    """Whether one value may be left where the other one lay: that is last asked for where it is
    made, at the same place."""
    first, second = sorted((a, b), key=lambda asked: min(asked, default=0))
    last, begin = max(first, default=-1), min(second, default=-1)
    is_same = last == begin and first[last] == second[begin] and len(first[last]) == 1
    return last < begin or (is_same and max(second) > last)


def _asked(
    expression: Expression, schedule: NestSchedule, wanted: Collection[Instruction]
) -> dict[Instruction, Asked]:
    """What each stage asks for while what earlier stages left is there."""
    found: dict[Instruction, Asked] = {i: {} for i in wanted}
    index = schedule.domain.own_index
    stages: list[list[tuple[Instruction, Index, Path]]] = []
    for reduce, at in reversed(schedule.domain.trace.reductions):
        inner, _ = reduced_index(reduce, at)
        stages.append([(o, inner, ()) for o in reduce.operands[: len(reduce.operands) // 2]])
    stages.append([(o.source, index, o.path) for o in schedule.domain.outputs])
    reductions = [reduce for reduce, _ in reversed(schedule.domain.trace.reductions)]
    own = expression.leaves
    expression.leaves = dict(own)
    for stage, roots in enumerate(stages):
        traced = trace(expression, roots)
        met = [(r.source, r.index) for r in traced.reads]
        met += [(i, at) for i, all_at in traced.heavy_at.items() for at in all_at]
        for instruction, at in met:
            if instruction in found:
                found[instruction].setdefault(stage, set()).add(at)
                expression.leaves.setdefault((instruction, ()), _LEFT)
        for k in range(len(reductions[stage].operands) // 2 if stage < len(reductions) else 0):
            expression.leaves[
                reductions[stage], (k,) if reductions[stage].shape.is_tuple else ()
            ] = _LEFT
    expression.leaves = own
    return found


def _kept_type(instruction: Instruction) -> DType:
    """What lanes are: neither packed nor spread again."""
    dtype = instruction.shape.dtype
    return dt.F32 if dtype.is_narrow_float else dtype


def _read_apart(schedule: NestSchedule) -> dict[Instruction, list[Index]]:
    """The operands whose elements lie apart for neighbouring lanes, or in rows that a cache cannot
    hold together, with the indices of reads."""
    if schedule.domain.trace.conditions:
        return {}
    lane = schedule.lane
    apart: set[Instruction] = set()
    for read in schedule.domain.trace.reads:
        step = read.position.coefficient(lane) or 0
        if step > 1 or (step == 1 and _collides(schedule, read)):
            apart.add(read.source)
    found: dict[Instruction, list[Index]] = {}
    for read in schedule.domain.trace.reads:
        if read.source in apart and read.source.shape.is_array:
            found.setdefault(read.source, []).append(read.index)
    return found


def _collides(schedule: NestSchedule, read: Read) -> bool:
    """Whether more rows of a column than a set has room for, beside those of other arrays, lie in
    one set of the second-level cache.
    """
    reduced = {*read.reduced, *schedule.domain.variables[schedule.loops + 1 :]}
    steps = [(k, a) for a, k in read.position.terms.items() if a in reduced]
    rows = prod(a.high - a.low + 1 for _, a in steps)
    step_bytes = gcd(*(k for k, _ in steps)) * read.dtype.item_bytes
    cache = schedule.machine.second_cache
    return rows > cache.ways // 2 * cache.sets_of(step_bytes)


def _reduced_dims(
    schedule: NestSchedule, indices: list[Index], dims: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The dimensions in which the stages' indices differ, if lanes are one other dimension."""
    if len(indices) < 2:
        return None
    inner = [d for d in range(len(indices[0])) if any(i[d] != indices[0][d] for i in indices)]
    lane = schedule.lane
    for index in indices:
        across = [d for d, e in enumerate(index) if e.depends_on(lane)]
        if len(across) != 1 or across[0] in inner or index[across[0]].coefficient(lane) != 1:
            return None
        sizes = [dims[d] for d in inner]
        if not covers(affine.linear([index[d] for d in inner], sizes), prod(sizes)):
            return None  # a stage that leaves, or wants, other elements than the others
    return tuple(inner)
