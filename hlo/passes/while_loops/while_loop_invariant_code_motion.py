"""while-loop-invariant-code-motion: compute before the loop what every iteration computes alike.

    state = (a, b); body: (f(a, b), b), f uses g(b)   =>   state = (a, b, g(b)); body reads g(b)

What the condition computes alike before every trip leaves as well.

A value is invariant when its operands are: constants, and state elements that the body hands on
unchanged. Ops are pure, so that computing them for a loop without iterations does no harm.

    reshape(cosine(b)), read by the body      =>   the reshape is computed before the loop
    broadcast(cosine(b)), read by the body    =>   the cosine is; the broadcast stays in the body

    dot(x, convert(w)) of few rows            =>   stays: the product reads w, of fewer bytes
    dot(x, f64 convert(w)), w near            =>   the conversion is computed before the loop
    dot(x, bf16 convert(f32 w))               =>   the conversion is, whose bytes are fewer
    dot(x, slice(w)), some columns of w       =>   the slice is, which is no run of memory
    dot(x, transpose(w)), batches of w last   =>   the transpose is

What costs nothing inside a kernel does not leave by itself. Where it rests on work, the work
leaves, and the loop reads the fewest bytes from which it has the value without doing the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from hlo.analysis.factors import sliced_from
from hlo.analysis.fusibility import CONTRACTIONS, is_elementwise
from hlo.analysis.prologue_costs import Prologue, is_cheaper, is_streamed
from hlo.analysis.while_loops.loop_state import (
    element_index,
    extend,
    is_extensible,
    start_of,
    unchanged_elements,
)
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, callers, clone_instruction, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import COMMON
from hlo.ops.effects import has_effect
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait, opcodes
from hlo.passes.liveness import awaited
from hlo.passes.patterns.matching import ints

# Ops that are not worth moving by themselves, as they cost no memory traffic inside a kernel. They
# move with a user, or with an operand that is work.
FOLLOWING = opcodes(Trait.FREE | Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS)
FOLLOWING |= opcodes(Trait.SAME_PLACE | Trait.PADS) | {"iota"} | {"convert"}
# Those of them that make an array for a product that reads it, and those that lie between the two.
_MADE = opcodes(Trait.CUTS | Trait.PADS | Trait.PERMUTES) | {"convert"}
_PASSING = _MADE | opcodes(Trait.REGROUPS)


NEAR_BYTES = COMMON.second_cache.bytes


class Hoisting(Struct, frozen=True):
    """What moves out of one loop: all values in order, and those that the loop goes on reading."""

    moved: tuple[Instruction, ...]
    read: tuple[Instruction, ...]


def while_loop_invariant_code_motion(module: Module) -> bool:
    """Hoist what does not change out of while loops.

    Inner loops first, so that a value leaves all loops it does not depend on. O(edges).
    """
    changed = False
    calls = callers(module)
    for computation in callees_first(module):
        kept = awaited(computation)
        for loop in computation.instructions:
            if loop.opcode == "while" and loop not in kept and is_extensible(loop, calls):
                for read_by in loop.called_computations():
                    hoisting = _plan(loop, read_by)
                    if hoisting.read:
                        loop = _hoist(loop, read_by, hoisting)
                        changed = True
    return changed


def _plan(loop: Instruction, computation: Computation) -> Hoisting:
    """What moves out of the loop's body or condition."""
    unchanged = {element_index(e) for e in unchanged_elements(loop.called_computations()[0])}
    (state,) = computation.parameters
    elements = [u for u in state.users if u.opcode == "get-tuple-element"]
    invariant = {e for e in elements if element_index(e) in unchanged}
    kept = awaited(computation)
    moved: dict[Instruction, None] = {}
    for instruction in post_order(computation):
        if instruction in invariant or instruction in kept or instruction.is_root:
            continue
        if _is_pure(instruction) and all(
            o in moved or o in invariant for o in instruction.operands
        ):
            moved[instruction] = None
    _keep_prologues(moved)
    read = _cut(moved)
    needed = _with_operands(read, moved)
    return Hoisting(tuple(i for i in moved if i in needed), tuple(i for i in moved if i in read))


def _keep_prologues(moved: dict[Instruction, None]) -> None:
    """Leave in the loop what its products compute where they read it, of arrays of half the bytes
    or less: few rows that meet a factor from beyond the second-level cache wait for its bytes.
    """
    for factor in list(moved):
        if not factor.shape.is_array or factor.shape.size_bytes <= NEAR_BYTES:
            continue
        chain = _chain(factor, moved)
        arrays = {_spread(o) for member in chain for o in member.operands if o not in chain}
        products = [(user, factor) for user in factor.users]
        if (
            chain
            and 2 * sum(o.shape.size_bytes for o in arrays) <= factor.shape.size_bytes
            and all(u not in moved and u.opcode == "dot" for u in factor.users)
            and all(is_streamed(*product) for product in products)
            and is_cheaper(Prologue(factor, chain, arrays), products)
        ):
            for member in chain:
                del moved[member]


def _chain(factor: Instruction, moved: dict[Instruction, None]) -> set[Instruction]:
    """The factor and what it alone is computed from, of as many elements."""
    chain = {factor} if _is_computed(factor) else set[Instruction]()
    waiting = list(chain)
    while waiting:
        for operand in waiting.pop().operands:
            is_own = operand in moved and operand not in chain and chain.issuperset(operand.users)
            if is_own and operand.shape.size == factor.shape.size and _is_computed(operand):
                chain.add(operand)
                waiting.append(operand)
    return chain


def _spread(operand: Instruction) -> Instruction:
    """What is read of an operand that others may read too: what a broadcast repeats."""
    while has_trait(operand, Trait.REPEATS):
        (operand,) = operand.operands
    return operand


def _is_computed(member: Instruction) -> bool:
    return is_elementwise(member) or has_trait(member, Trait.REPEATS | Trait.REGROUPS)


def _cut(moved: dict[Instruction, None]) -> set[Instruction]:
    """What the loop reads, so that no work on which its other values rest is left in it."""
    behind = _resting_on_work(moved)
    costs: dict[Instruction, float] = {}  # the fewest bytes to read
    for i, operands in behind.items():
        own = i.shape.size_bytes if i.shape.is_array else math.inf
        costs[i] = own if _is_work(i) else min(own, sum(costs[o] for o in operands))
    readable = {i for i, cost in costs.items() if cost == i.shape.size_bytes and i.shape.is_array}
    waiting = [i for i in behind if any(u not in moved for u in i.users)]
    found = {i for i in waiting if i in readable and _is_work(i)}
    seen = set(waiting)
    while waiting:
        top = waiting.pop()
        is_free = not _is_work(top) and found.issuperset(behind[top])
        if top in readable and not is_free:
            found.add(top)
            continue
        fresh = [o for o in behind[top] if o not in seen]
        seen.update(fresh)
        waiting += fresh
    return found


def _resting_on_work(moved: dict[Instruction, None]) -> dict[Instruction, list[Instruction]]:
    """Work, and what is computed from work, with the operands of which that is true."""
    found: dict[Instruction, list[Instruction]] = {}
    for i in moved:
        operands = [o for o in dict.fromkeys(i.operands) if o in found]
        if operands or _is_work(i):
            found[i] = operands
    return found


def _is_pure(instruction: Instruction) -> bool:
    if has_trait(instruction, Trait.RANDOM | Trait.COLLECTIVE) or has_effect(instruction):
        return False
    if "control-predecessors" in instruction.attributes:
        return False
    stays = instruction.opcode in ("parameter", "opt-barrier", "while")
    return not stays and instruction.opcode != "custom-call"


def _is_work(instruction: Instruction) -> bool:
    """Not what costs nothing, a fusion of such too, and not what reads little and writes much."""
    if instruction.opcode in _MADE and _is_made(instruction) and _is_for_products(instruction):
        return True
    if _is_free(instruction):
        return False
    if instruction.opcode == "fusion":
        (fused,) = instruction.called_computations()
        if all(map(_is_free, fused.instructions)):
            return False
    return instruction.shape.size_bytes <= max(64, 4 * _bytes_read(instruction))


def _is_free(instruction: Instruction) -> bool:
    return instruction.opcode in FOLLOWING or _is_counted_mask(instruction)


def _is_made(factor: Instruction) -> bool:
    """Whether products would have a factor made again in each trip, and mostly through memory.

    They read what is behind it as it lies where it is cut out in one run, or widened: that array
    has fewer bytes, and products of its type may have instructions of their own.
    """
    (source, *_) = (operand.shape for operand in factor.operands)
    if factor.opcode == "transpose":
        return _is_turned_for_products(factor)
    if factor.opcode != "convert":
        return sliced_from(factor) is None
    if factor.shape.dtype in (dt.F64, dt.C128) and factor.shape.size_bytes <= NEAR_BYTES:
        return True
    return factor.shape.dtype.bits < source.dtype.bits


def _is_turned_for_products(factor: Instruction) -> bool:
    """Whether matrices that lie across each other are put one after the other for a product."""
    at = ints(factor, "dimensions").index(factor.shape.rank - 1)
    dots = [user for user in factor.users if user.opcode == "dot"]
    sides = [(dot, n, f"{s}_batch_dims") for dot in dots for n, s in enumerate(("lhs", "rhs"))]
    return any(
        dot.operands[n] is factor and name in dot.attributes and at in ints(dot, name)
        for dot, n, name in sides
    )


def _is_for_products(value: Instruction) -> bool:
    """Whether a product reads a value, or what it is of it after ops that cost nothing."""
    found, waiting = {value}, [value]
    while waiting:
        users = waiting.pop().users
        if any(user.opcode in CONTRACTIONS for user in users):
            return True
        fresh = [u for u in users if u.opcode in _PASSING and u not in found]
        found.update(fresh)
        waiting += fresh
    return False


def _is_counted_mask(instruction: Instruction) -> bool:
    """Whether counted positions are compared with one number: a reduction in the loop sees from
    that which part of what it masks is left (analysis/masked_ranges.py).
    """
    if instruction.opcode != "compare" or not instruction.shape.rank:
        return False
    sources = {_spread(o) for o in instruction.operands}
    return all(s.opcode == "iota" or s.shape.is_scalar for s in sources)


def _bytes_read(instruction: Instruction) -> int:
    return sum(o.shape.size_bytes for o in instruction.operands)


def _with_operands(
    roots: Iterable[Instruction], allowed: dict[Instruction, None]
) -> set[Instruction]:
    found: set[Instruction] = set()
    stack = list(roots)
    while stack:
        instruction = stack.pop()
        if instruction in allowed and instruction not in found:
            found.add(instruction)
            stack += instruction.operands
    return found


def _hoist(loop: Instruction, computation: Computation, hoisting: Hoisting) -> Instruction:
    """Values of body or condition as elements of the state: the loop in this one's place."""
    outer = _copied_before(loop, hoisting)
    loop, elements = extend(loop, [outer[i] for i in hoisting.read])
    (state,) = computation.parameters
    for instruction, element in zip(hoisting.read, elements, strict=True):
        if element.computation is not computation:
            element = make(state, "get-tuple-element", state, index=element_index(element))
        computation.replace_uses(instruction, element)
    return loop


def _copied_before(loop: Instruction, hoisting: Hoisting) -> dict[Instruction, Instruction]:
    """The moved values, computed from the loop's start state."""
    computation = loop.computation
    assert computation is not None, "a loop stands in a computation"
    outer: dict[Instruction, Instruction] = {}
    for instruction in hoisting.moved:
        operands = []
        for operand in instruction.operands:
            if operand not in outer:
                outer[operand] = start_of(loop, element_index(operand))
            operands.append(outer[operand])
        outer[instruction] = computation.adopt(clone_instruction(instruction, tuple(operands)))
    return outer
