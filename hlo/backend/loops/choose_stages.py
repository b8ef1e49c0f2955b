"""Fission: a long chain of elementwise ops as several short loops over one block of elements.

    schedule --choose_stages--> [values kept after the first loop], [after the second], ..

A processor looks some hundred instructions ahead. While one element's chain (a logarithm, then a
division, then an error function) is longer than that, it waits for results instead of working on
the next element, however many units it has: 150 cycles a vector where the arithmetic takes 60.
The loop is parted (loop fission): each part is a stage, a loop of its own over the block, whose
iterations do not depend on each other; what a later stage needs is kept in a row, in the first
level of cache. What waits for its operands fills a processor's schedulers long before its window of
instructions: on Zen 5 functions with chains of 100 to 190 cycles (a softplus, a logit, a power
under an error function) take 0.6 to 0.95 of the time in stages, whether caches hold their arrays or
memory does; with AVX2 0.74 to 1.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hlo.analysis.fusibility import is_elementwise
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import Keep, NestSchedule
from hlo.backend.loops.schedule import Axis, Role, Tail
from hlo.indexing.affine import linear
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.machine import Cycles, Machine
from hlo.ops.table import OPS, Trait, opcodes

_STAGE = 110  # Cycles of a chain that one stage may have.
_MOST_KEPT = 6  # Rows that stages may leave in all.
_MOST_WORK = 10
_CHEAP = 3  # Ops that a stage does again rather than read what an earlier one kept.
_MOST_ABREAST = 4  # Vectors that go through a chain together.
# Work that takes so many times as long as a chain hides its waits: beside as much, some unit always
# waits. More vectors for that take more registers, of which a function needs so many for each.
_HIDING, _HELD = 2, 8
# Numbers alive for each register, before twice as many vectors go through a chain.
_MOST_SPILLED = 2
_FEWEST = 8  # Vectors of a loop that is worth parting into stages.
# Users that read a value at the index that it is computed at.
_IN_PLACE = opcodes(Trait.SAME_PLACE) | {"tuple"}


Stages = tuple[tuple[Instruction, ...], ...]


def block_of(machine: Machine) -> int:
    """Elements that the stages take in turn, so that rows stay in the first cache."""
    return max(256, machine.first_cache.bytes // 16 // 256 * 256)


def choose_stages(expression: Expression, schedule: NestSchedule) -> NestSchedule:
    """With the values to keep after each stage but the last, and the blocks that stages share."""
    if not _may_split(schedule):
        return schedule
    roots = [expression.source(o.source, o.path)[0] for o in schedule.domain.outputs]
    order = list(_members(expression, schedule, roots))
    done: dict[Instruction, int] = {}
    cycles = schedule.machine.cycles
    for member in order:
        operands = _operands(expression, member)
        before = max((done.get(o, cycles.load_latency) for o in operands), default=0)
        done[member] = before + _latency(member, cycles)
    total = max(done.values(), default=0)
    if total < cycles.window:
        return schedule
    count = -(-total // _STAGE)
    stage = {m: min(d * count // (total + 1), count - 1) for m, d in done.items()}
    stages = _kept(expression, order, stage, count)
    if not stages:
        return _abreast(expression, schedule, order, total)
    remark = f"stages: {count}, a chain of {total} cycles, {cycles.window} are long"
    return _staged(schedule, stages).because(remark)


def _staged(schedule: NestSchedule, stages: Stages) -> NestSchedule:
    """The loop over lanes parted, in blocks where it is longer than the rows between its parts."""
    vector, length = schedule.vector, schedule.domain.extents[-1]
    assert vector is not None, "there are lanes"
    if vector.tail is Tail.OVERLAPPING:  # what a stage leaves begins where its block does
        vector = replace(vector, tail=Tail.PREDICATED)
        schedule = replace(schedule, axes=(*schedule.axes[:-1], vector))
    block = block_of(schedule.machine)
    keeps = []
    for member in (m for kept in stages for m in kept):
        dtype = dt.F32 if member.shape.dtype.is_narrow_float else member.shape.dtype
        keeps.append(Keep(member, dtype, min(block, length), over=schedule.lanes))
    axes = schedule.axes
    if schedule.block or length > block:
        extent = schedule.block or length
        serial = Axis(vector.name, extent, Role.SERIAL, block, of=length, loop=vector.loop)
        axes = (*axes[:-1], serial, replace(vector, extent=block, of=length))
    return replace(schedule, axes=axes, stages=stages, keeps=(*schedule.keeps, *keeps))


def _abreast(
    expression: Expression, schedule: NestSchedule, order: list[Instruction], total: int
) -> NestSchedule:
    """More vectors a round, where too much lives on between a chain's parts to part it.

    The operations of a vector keep the units busy for less time than its chain takes, so several go
    through it together. What they hold, the numbers that are alive at once, may be four times what
    the registers do: what is spilled goes through other units than those that compute. A unit's
    block stays whole rounds. On Zen 4 two Chebyshev series of f64 took 0.7 of the time, normal
    numbers of f64 0.68; Bessel functions, which hold between two and four times the registers, 0.74
    to 0.85, with AVX2 too; steps of a recurrent network that are written out 0.32 to 0.5.
    """
    vector, machine = schedule.vector, schedule.machine
    assert vector is not None, "there are lanes"
    if schedule.is_small or schedule.domain.trace.carried:
        return schedule
    operations = sum(OPS[m.opcode].cost.operations for m in order)
    work = operations * machine.turns // machine.cycles.operations
    registers = max(-(-vector.step // machine.lanes(m.shape.dtype)) for m in order)
    alive, most_alive = _most_alive(expression, order), _MOST_SPILLED * machine.registers
    vectors = 1
    while vectors < _MOST_ABREAST:
        fits = 2 * vectors * registers * _HELD <= machine.registers
        hidden = _HIDING * total if fits else total
        is_whole = not schedule.block % (2 * vectors * vector.step)
        is_hidden = vectors * registers * work >= hidden
        if is_hidden or vectors * registers * alive > most_alive or not is_whole:
            break
        vectors *= 2
    if vectors == 1:
        return schedule
    remark = f"vectors: {vectors} a round, a chain of {total} cycles beside {work} of work"
    schedule = schedule.with_axis(vector.loop, step=vectors * vector.step, tail=Tail.NONE)
    return schedule.because(remark)


def _most_alive(expression: Expression, order: list[Instruction]) -> int:
    """The most results at a time that later members ask for."""
    last = {o: n for n, member in enumerate(order) for o in _operands(expression, member)}
    ending = [0] * len(order)
    alive = most = 0
    for n, member in enumerate(order):
        alive += 1 - ending[n]
        most = max(most, alive)
        if member in last:
            ending[last[member]] += 1
        else:
            alive -= 1
    return most


def _may_split(schedule: NestSchedule) -> bool:
    domain = schedule.domain
    if domain.trace.reductions or domain.outer or schedule.tile is not None:
        return False
    if schedule.vector is None:
        return False
    if any(
        o.source.shape.is_tuple or o.dims != o.source.shape.dims for o in schedule.domain.outputs
    ):
        return False
    place = linear(domain.own_index, domain.outputs[0].dims)
    is_long = domain.extents[-1] >= _FEWEST * schedule.lanes
    return is_long and place.coefficient(domain.variables[-1]) == 1


def _latency(member: Instruction, cycles: Cycles) -> int:
    if not member.operands[0].shape.dtype.is_float:
        return 1
    return OPS[member.opcode].cost.latency or cycles.latency


def _operands(expression: Expression, member: Instruction) -> list[Instruction]:
    return [expression.source(o, ())[0] for o in member.operands]


def _members(
    expression: Expression, schedule: NestSchedule, roots: Sequence[Instruction]
) -> Iterator[Instruction]:
    """The elementwise ops of the results' dimensions, operands first."""
    stack = [(root, False) for root in roots]
    seen: set[Instruction] = set()
    while stack:
        top, is_ready = stack.pop()
        if is_ready:
            yield top
            continue
        if top in seen or (top, ()) in expression.leaves or not is_elementwise(top):
            continue
        if top.shape.dims != schedule.domain.outputs[0].dims or top.shape.dtype.is_complex:
            continue
        seen.add(top)
        stack.append((top, True))
        stack += [(o, False) for o in _operands(expression, top)]


def _kept(
    expression: Expression, order: list[Instruction], stage: dict[Instruction, int], count: int
) -> Stages:
    """What is asked for in a later stage and is not quickly done again."""
    last: dict[Instruction, int] = {}  # the latest stage that asks
    work: dict[Instruction, int] = {}  # to do it again
    for member in order:
        work[member] = min(OPS[member.opcode].cost.operations, _MOST_WORK)
        for o in _operands(expression, member):
            if o in stage and (stage[o] == stage[member] or work[o] <= _CHEAP):
                work[member] = min(work[member] + work[o], _MOST_WORK)
    for member in reversed(order):
        asked = max(last.get(member, 0), stage[member])
        for operand in _operands(expression, member):
            if operand in stage:
                # What is done again asks for its own operands then.
                at = asked if work[member] <= _CHEAP else stage[member]
                last[operand] = max(last.get(operand, 0), at)
    kept = [m for m in order if last.get(m, 0) > stage[m] and work[m] > _CHEAP]
    if not kept or len(kept) > _MOST_KEPT or _is_moved(kept):
        return ()
    return tuple(tuple(m for m in kept if stage[m] == k) for k in range(count - 1))


def _is_moved(kept: Sequence[Instruction]) -> bool:
    """Whether elements may be asked for at other indices than those of a stage's own lanes."""
    stack, seen = list(kept), set(kept)
    while stack:
        for user in stack.pop().users:
            if not is_elementwise(user) and user.opcode not in _IN_PLACE:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return False
