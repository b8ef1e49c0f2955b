"""while-loop-blocking: a recurrence over the rows of a batch, run by each block of rows by itself.

    while(h[b, n], w, 0)   =>   fusion(h, w), kind=kCustom, calls={ while }, block=[rows]

Recurrent networks, filters and many trajectories at once need of each row of the state nothing but
that row, so no thread has to wait for another after each step, and the state stays in its core's
cache. What all rows share, as weights, has to stay there too.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.blocks.block import SUMMED, WHOLE, Block
from hlo.analysis.blocks.blocked import KIND
from hlo.analysis.blocks.blocking import Spans, is_memory, loop_spans
from hlo.analysis.blocks.size import CACHE_BYTES, divisors, longer_dims
from hlo.analysis.fusibility import is_zero
from hlo.analysis.while_loops.loop_state import counter, element_index, unchanged_elements
from hlo.analysis.work import NOTHING, Work, applied, taken_bytes, work_of
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.making import make, number_of, spread
from hlo.ops.table import Trait, has_trait
from hlo.passes.blocks.call import fused_group
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited
from hlo.passes.loop_making import element, extensible_loops, home
from hlo.passes.simplify.dce import drop_unread
from hlo.passes.while_loops.loop_shrinking import shrink, unread_elements

# Of a block's own state that stays near: of a little more than the first cache, little leaves it.
NEAR_BYTES = COMMON.first_cache.bytes * 9 // 8
LEAST_TRIPS = 4
LEAST_US = 100.0  # Of one thread; a sleeping one takes half of it to wake.
# Of a block's trip, in which the calls of its kernels take up to a tenth: on one thread 1.0 to 1.07
# of the time of the whole loop's trips, on two, which would meet after each of these, 0.55 to 0.8.
LEAST_TRIP_US = 0.25
MOST_REPEATED = 64  # Elements of the state, such as counters, that every block computes.
FULL_BITS = 32  # Of a factor of a product at the rate that estimates count with.
EXP = 10  # Arithmetic instructions of a transcendental function.
# Blocks, and rows of one, the first that a batch has: rows that share what they read of weights
# make a block fast, and many blocks keep many threads busy.
SHAPES = ((8, 16), (4, 8), (2, 4))
# Where blocks add up sums, each reads and writes a whole one in every trip. Gradients of recurrent
# networks of 32 rows take 0.86 instead of 0.97 of the time in two blocks instead of four.
SUM_SHAPES = ((8, 32), (4, 16), (2, 8), (2, 4))
MOST_ADDING = 0.75  # Of a block's trip, to read and write the sums.


def while_loop_blocking(module: Module) -> bool:
    """Make loops whose rows do not need each other fusions that run block by block.

    Where the cut is, is looked for among the first dimensions of what trips change; O(elements x
    edges of the body) for each.
    """
    changed = False
    fused = called_by_ops(module)
    for loop in extensible_loops(module):
        if home(loop) in fused or not _is_own(loop):
            continue
        for spans, block in (b for found in _blocks(loop) for b in _nearer(loop, *found)):
            if _is_cut(loop, spans, block) and _pays(loop, spans, block):
                _run_in_blocks(module, loop, spans, block)
                changed = True
                break
    return changed


def _is_own(loop: Instruction) -> bool:
    """Whether the loop's state is its own, without blocks inside, and it is known to run often."""
    (state,) = loop.operands
    known = counter(loop)
    if known is None or known.iterations < LEAST_TRIPS or state.opcode != "tuple":
        return False
    if state.users.keys() != {loop} or loop.is_root or state.is_root:
        return False
    if not all(u.opcode == "get-tuple-element" for u in loop.users):
        return False
    kept = awaited(home(loop))
    if state in kept or not kept.isdisjoint(loop.users):
        return False
    body, _ = loop.called_computations()
    return not any(
        i.opcode == "fusion" and i.attributes.get("kind") == KIND for i in body.instructions
    )


def _blocks(loop: Instruction) -> Iterator[tuple[Spans, Block]]:
    """Ways in which batches of so many rows can be parted, the best one first, and how the elements
    of the state are cut then.
    """
    kept = {element_index(e) for e in unchanged_elements(loop.called_computations()[0])}
    shapes = (s for n, s in enumerate(loop.shape.elements) if n not in kept and s.is_array)
    for rows in dict.fromkeys(dims[0] for dims in map(longer_dims, shapes) if dims):
        spans = loop_spans(loop, Block((rows,), (1,)))
        if spans is None:
            continue
        sizes = [size for size in divisors(rows) if size < rows]
        for count, least in SUM_SHAPES if SUMMED in spans else SHAPES:
            fitting = [size for size in sizes if size >= least and rows // size >= count]
            if fitting:
                yield spans, Block((rows,), (fitting[-1],))


def _nearer(loop: Instruction, spans: Spans, block: Block) -> Iterator[tuple[Spans, Block]]:
    """The same rows in smaller blocks first, if one's state leaves a core's first cache and theirs
    does not, as matrices that each row has of its own; where to read it takes longer than what
    trips compute, and rows share less than that.
    """
    (rows,), (part,) = block.lead, block.sizes
    shared, parted = _state_bytes(loop, spans)
    sizes = [n for n in divisors(rows) if n < part and parted * n // rows <= NEAR_BYTES]
    is_far = parted * part // rows > NEAR_BYTES
    is_read_long = parted / COMMON.rates.cached_bytes > _us(loop)
    if is_far and is_read_long and sizes and shared * rows <= parted * sizes[-1]:
        yield spans, Block((rows,), (sizes[-1],))
    yield spans, block


def _us(loop: Instruction) -> float:
    """The arithmetic of a trip, of all rows."""
    body, _ = loop.called_computations()
    work, rates = sum(map(_work, body.instructions), NOTHING), COMMON.rates
    flops = sum(_work(i).flops * _width(i) for i in body.instructions)
    return flops / rates.contracted_ops + work.transcendentals * EXP / rates.elementwise_ops


def _width(instruction: Instruction) -> float:
    """How long an operation takes beside one of f32: products of narrow numbers are quick."""
    inside = (i for c in instruction.called_computations() for i in c.instructions)
    members = inside if instruction.opcode == "fusion" else iter((instruction,))
    bits = (o.shape.dtype.bits for i in members if i.opcode == "dot" for o in i.operands)
    return min(max(bits, default=FULL_BITS), FULL_BITS) / FULL_BITS


def _state_bytes(loop: Instruction, spans: Spans) -> tuple[int, int]:
    """What a trip takes of the state: of what rows share, and of all rows' own, each once; nothing
    of memory, of which each trip writes a row."""
    body, _ = loop.called_computations()
    (state,) = loop.operands
    shared = parted = 0
    for part in body.parameters[0].users:
        if is_memory(state.operands[element_index(part)]):
            continue
        taken = (
            taken_bytes(user, n)
            for user in part.users
            for n, operand in enumerate(user.operands)
            if operand is part and not has_trait(user, Trait.FREE)
        )
        most = max(taken, default=0)
        if _is_shared(part, body, spans):
            shared += most
        else:
            parted += most
    return shared, parted


def _is_cut(loop: Instruction, spans: Spans, block: Block) -> bool:
    """Whether some of what trips change is cut, little of it is changed by every block alike, and
    memory that blocks write parts of is theirs alone.
    """
    (state,) = loop.operands
    memory = [o for o in state.operands if is_memory(o)]
    changed = [n for n in _changed(loop) if state.operands[n] not in memory]
    is_cut = any(spans[n] == block.all for n in changed)
    repeated = sum(loop.shape.elements[n].size for n in changed if spans[n] == WHOLE)
    is_own = all(m.users.keys() == {state} for m in memory)
    return is_cut and repeated <= MOST_REPEATED and is_own


def _changed(loop: Instruction) -> set[int]:
    """The elements of the state that trips change."""
    body, _ = loop.called_computations()
    kept = {element_index(e) for e in unchanged_elements(body)}
    return set(range(len(loop.shape.elements))) - kept


def _pays(loop: Instruction, spans: Spans, block: Block) -> bool:
    """Whether what a block's trip reads stays in a core's cache, and trips are worth their calls
    and, all together, threads.
    """
    body, _ = loop.called_computations()
    whole: dict[Instruction, int] = {}
    parted = added = 0
    for instruction in body.instructions:
        for number, operand in enumerate(instruction.operands):
            if has_trait(instruction, Trait.FREE):
                continue
            taken = taken_bytes(instruction, number)
            added += 2 * taken if _is_sum(operand, body, spans) else 0
            if _is_shared(operand, body, spans):
                whole[operand] = max(taken, whole.get(operand, 0))
            else:
                parted += taken
    shared = sum(whole.values())
    known = counter(loop)
    assert known is not None, "a loop that counts"
    rates, (rows,), (part,) = COMMON.rates, block.lead, block.sizes
    us = _us(loop)
    near = shared + parted * part // rows
    trip_us = us * part / rows
    is_long = us * known.iterations >= LEAST_US and trip_us >= LEAST_TRIP_US
    is_little = added / rates.cached_bytes <= MOST_ADDING * trip_us
    return is_long and is_little and near <= CACHE_BYTES


def _is_shared(operand: Instruction, body: Computation, spans: Spans) -> bool:
    """Whether every block reads an element of the state whole, its own or one of all."""
    is_whole = operand in body.parameters[0].users and spans[element_index(operand)] == WHOLE
    return is_whole or _is_sum(operand, body, spans)


def _is_sum(operand: Instruction, body: Computation, spans: Spans) -> bool:
    """Whether blocks add up an element of the state."""
    return operand in body.parameters[0].users and spans[element_index(operand)] == SUMMED


def _work(instruction: Instruction) -> Work:
    """The operations of an instruction of a body, those inside of a fusion."""
    if instruction.opcode == "fusion":
        (callee,) = instruction.called_computations()
        return applied(callee)
    return work_of(instruction)


def _run_in_blocks(module: Module, loop: Instruction, spans: Spans, block: Block) -> None:
    """The loop and what starts it as a fusion of its own."""
    computation, (state,) = home(loop), loop.operands
    changed = _changed(loop)
    zeros: dict[Shape, Instruction] = {}
    for n in (n for n, span in enumerate(spans) if span == SUMMED):
        _begin_with(loop, n, zeros)
    for reader in tuple(loop.users):
        if element_index(reader) not in changed:
            computation.replace_uses(reader, state.operands[element_index(reader)])
            computation.remove(reader)
    if unread := unread_elements(loop):
        loop = shrink(loop, unread)
        (state,) = loop.operands
    memory = [o for o in dict.fromkeys(state.operands) if is_memory(o)]
    starts = [*memory, *(z for z in zeros.values() if z.opcode == "broadcast")]
    fused_group(module, computation, [*starts, state, loop, *loop.users], block)
    computation.reorder(post_order(computation))


def _begin_with(loop: Instruction, number: int, zeros: dict[Shape, Instruction]) -> None:
    """Let a sum over blocks begin with zero, one for all of its shape, and what it began with be
    added behind the loop.
    """
    computation, (state,) = home(loop), loop.operands
    start = state.operands[number]
    ends = [u for u in loop.users if element_index(u) == number]
    if not is_zero(start) and ends:
        whole = element(loop, number)
        for end in ends:
            computation.replace_uses(end, make(end, "add", start, whole))
            computation.remove(end)
    computation.set_operand(state, number, _zero(start, start.shape, zeros))
    drop_unread(start)


def _zero(start: Instruction, shape: Shape, zeros: dict[Shape, Instruction]) -> Instruction:
    """The one zero of a shape, spread from the one number of its type."""
    scalar = Shape.array(shape.dtype)
    if scalar not in zeros:
        zeros[scalar] = number_of(start, 0, shape.dtype)
    if shape not in zeros:
        zeros[shape] = spread(start, zeros[scalar], shape)
    return zeros[shape]
