"""while-loop-fusible-sinking: what is cheap to compute is not handed to a loop as a large array.

    m = rows >= columns; while(.., m[t,t], ..) { select(m, s, c) }
      =>  while(..) { select(rows >= columns, s, c) }

JAX hands masks, biases and broadcast numbers to the body of a scan as state that no trip changes.
In the body they need no memory, where kernels count them, and other passes see what they are: that
a mask is causal (mask-skipping), that a number is the same everywhere. Sunk are arrays beyond the
first cache that the body reads element by element for values that no cache holds, as scores are
(smaller ones are read again faster than they are computed), and that come by moves, lookups and a
few additions an element from counts, constants, and arrays of at most a LEAST_GAIN-th of their
bytes, which the loop is handed instead: a bias of all heads from a table, by distance. Each trip
computes the same bits. The name is XLA's, which does so for others.
"""

from __future__ import annotations

from collections.abc import Collection

from hlo.analysis.fusibility import op_cost
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.lookups import lookup_of
from hlo.analysis.while_loops.loop_state import (
    element_index,
    extend,
    is_extensible,
    unchanged_elements,
)
from hlo.analysis.while_loops.residuals import STEADY_ELEMENTWISE
from hlo.analysis.while_loops.row_updates import reads_of
from hlo.ir.graph import callees_first, callers, clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import COMMON
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.simplify.dce import drop_unread
from hlo.passes.while_loops.loop_shrinking import shrink

LEAST_BYTES = COMMON.first_cache.bytes
LEAST_GAIN = 8  # An array's bytes beside those of each that it is computed from.
MOST_COST = 8  # Additions for an element, which take as long as to read it from memory.
MOST_MEMBERS = 32

_MOVES = opcodes(Trait.REGROUPS | Trait.PERMUTES | Trait.REPEATS) - opcodes(Trait.FREE)


def while_loop_fusible_sinking(module: Module) -> bool:
    """Compute in a loop what is handed to it as a large array and costs little.

    Outer loops first, so that a value goes down to where it is read. O(edges) for each loop.
    """
    changed = False
    calls, fused = callers(module), fused_computations(module)
    for computation in reversed(callees_first(module)):
        if computation in fused:
            continue
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
            if loop not in awaited(computation) and is_extensible(loop, calls):
                changed |= _sink_all(loop)
    return changed


def _sink_all(loop: Instruction) -> bool:
    """Sink what can be; whether there was any."""
    body, condition = loop.called_computations()
    (state,) = loop.operands
    if state.opcode != "tuple" or any(u.opcode != "get-tuple-element" for u in loop.users):
        return False
    sunk = dict[int, tuple[list[Instruction], list[Instruction]]]()
    for element in unchanged_elements(body):
        number = element_index(element)
        start = state.operands[number]
        is_single = reads_of(body, number) == [element] and not reads_of(condition, number)
        if _is_worth(start) and is_single and _is_read_by_elements(element):
            cone = _cone(start) or _cone(start, is_shallow=True)
            if cone is not None:
                sunk[number] = cone
    for number, (members, leaves) in sunk.items():
        loop = _sink(loop, number, members, leaves)
    if sunk:
        shrink(loop, sunk.keys())
    return bool(sunk)


def _is_worth(start: Instruction) -> bool:
    is_plain = start.shape.is_array and not start.shape.is_dynamic
    return is_plain and start.shape.size_bytes > LEAST_BYTES


def _is_read_by_elements(element: Instruction) -> bool:
    """Whether what reads an element of the state takes one number of it for one of its own, so that
    it can be computed there, and is large; of a loop inside, whether its body does.
    """
    waiting, seen, is_large = [element], set[Instruction](), False
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.users:
            is_large |= user.shape.is_array and user.shape.size_bytes >= LEAST_SCORES_BYTES
            if user.opcode in _MOVES:
                waiting.append(user)
            elif user.opcode == "tuple" and not user.is_root:
                inner = _handed_on(value, user)
                if inner is None:
                    return False
                waiting += inner
            elif (
                user.opcode not in STEADY_ELEMENTWISE
                and user.opcode != "reduce"
                and not user.is_root
            ):
                return False
    return is_large


def _handed_on(value: Instruction, state: Instruction) -> list[Instruction] | None:
    """A value in the body of a loop that is handed it and never changes it; None: it is not so."""
    (loop, *others) = state.users
    if loop.opcode != "while" or others or state.operands.count(value) != 1:
        return None
    number = state.operands.index(value)
    body = loop.called_computations()[0]
    found = [e for e in unchanged_elements(body) if element_index(e) == number]
    return found or None


def _cone(
    start: Instruction, *, is_shallow: bool = False
) -> tuple[list[Instruction], list[Instruction]] | None:
    """What computes an array, operands first, and the small arrays that this reads; None: it is not
    cheap. is_shallow: small arrays are read, though they could be computed (a table's places, which
    a logarithm says).
    """
    members, leaves = dict[Instruction, None](), dict[Instruction, None]()
    waiting = [start]
    while waiting and len(members) <= MOST_MEMBERS:
        value = waiting.pop()
        if value in members or value in leaves:
            continue
        is_small = LEAST_GAIN * value.shape.size_bytes <= start.shape.size_bytes
        if _may_sink(value) and not (is_shallow and is_small and value.shape.rank):
            members[value] = None
            waiting += value.operands
        elif is_small and value.shape.is_array and not value.shape.is_dynamic:
            leaves[value] = None
        else:
            return None
    cost = sum(op_cost(m) * m.shape.size for m in members)
    if cost > MOST_COST * start.shape.size or len(members) > MOST_MEMBERS:
        return None
    return _ordered(members), list(leaves)


def _may_sink(value: Instruction) -> bool:
    is_made = value.opcode in ("constant", "iota")
    is_made |= value.opcode == "gather" and lookup_of(value) is not None
    is_plain = "control-predecessors" not in value.attributes
    return is_plain and (is_made or value.opcode in _MOVES or value.opcode in STEADY_ELEMENTWISE)


def _ordered(members: Collection[Instruction]) -> list[Instruction]:
    """A few instructions, operands first."""
    placed = dict[Instruction, None]()
    while len(placed) < len(members):
        for member in members:
            if all(o in placed for o in member.operands if o in members):
                placed[member] = None
    return list(placed)


def _sink(
    loop: Instruction, number: int, members: list[Instruction], leaves: list[Instruction]
) -> Instruction:
    """Compute an element in the body; the loop, which is another one where it is handed leaves."""
    elements = list[Instruction]()
    (element,) = reads_of(loop.called_computations()[0], number)
    assert element is not None, "an element is read as such"
    (state,) = loop.operands
    start = state.operands[number]
    if leaves:
        loop, elements = extend(loop, leaves)
        drop_unread(state)
    body = loop.called_computations()[0]
    twins = dict(zip(leaves, elements, strict=True))
    for member in members:
        operands = tuple(twins[o] for o in member.operands)
        twins[member] = body.adopt(clone_instruction(member, operands))
    body.replace_uses(element, twins[start])
    body.set_operand(body.root, number, element)
    for end in [u for u in loop.users if element_index(u) == number]:
        owner = end.computation
        assert owner is not None, "it stands beside the loop"
        owner.replace_uses(end, start)
    return loop
