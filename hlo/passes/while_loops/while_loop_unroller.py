"""while-loop-unroller: short loops of elementwise ops as straight lines.

    while(i < 3) { x = f(x, i) }   =>   f(f(f(x, 0), 1), 2)

In a loop the arrays go through memory in every iteration; in a line fusion makes one pass of all,
and what the counter chooses (the rotations of a random number generator) becomes constant. Over
small arrays, which stay in the first level of cache, a line is also less code than a loop of
several kernels, as long as its arithmetic is little; a loop that elements go through by themselves
is one kernel as it is (while-loop-interchange). A loop of one iteration (a border, as programs for
any number of planes write it) is its body, whatever it does.
"""

from __future__ import annotations

from hlo.analysis.fusibility import SCALAR_STRUCTURE, op_cost
from hlo.analysis.while_loops.lane_loops import lane_loop
from hlo.analysis.while_loops.loop_state import counter
from hlo.ir.graph import callees_first, calls, clone_instruction, post_order, reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.making import make
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited

MOST_TRIPS = 8
MOST_OPS = 512  # The most ops of all iterations together.
# The most arithmetic of all iterations together on an element of small arrays, in additions: it is
# code, which runs seldom.
MOST_SMALL_COST = 512
_SMALL = 64  # Elements of arrays that may be taken apart and put together.

_MOVES = opcodes(Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS | Trait.JOINS) | {"copy"}
_PLAIN = opcodes(Trait.ELEMENTWISE | Trait.REPEATS) | {"iota"}


def while_loop_unroller(module: Module) -> bool:
    """Unroll short loops of elementwise ops, over large arrays or with little arithmetic.

    Inner loops first; bodies that nobody calls any more go at once, for those of nested loops
    together are as many times the result as there are levels. O(size of all bodies, unrolled).
    """
    changed = False
    for computation in callees_first(module):
        kept = awaited(computation)
        for loop in calls(computation):
            trips = _trips(loop) if loop.opcode == "while" and loop not in kept else None
            if trips is not None:
                _unroll(loop, trips)
                changed = True
    if changed:
        called = reachable_computations(module)
        module.remove_all([c for c in module.computations if c not in called])
    return changed


def _trips(loop: Instruction) -> int | None:
    """The number of iterations of a loop that is to be unrolled."""
    if "control-predecessors" in loop.attributes or not loop.shape.is_tuple:
        return None
    body, _ = loop.called_computations()
    known = counter(loop) if body.root.opcode == "tuple" else None
    if known is None:
        return None
    trips = max(0, known.limit - known.first)
    if trips <= 1:
        return None if any(map(_is_bound, body.instructions)) else trips
    if trips > MOST_TRIPS or trips * len(body.instructions) > MOST_OPS:
        return None
    if not all(_is_line(i) for i in body.instructions):
        return None
    return trips if _is_large(loop) or _is_little(loop, trips) else None


def _is_large(loop: Instruction) -> bool:
    """Whether an array of the state is no less than the first level of cache."""
    least = COMMON.first_cache.bytes
    return any(e.is_array and e.size_bytes >= least for e in loop.shape.elements)


def _is_little(loop: Instruction, trips: int) -> bool:
    """Whether a line is less code than the loop."""
    body, _ = loop.called_computations()
    cost = trips * sum(map(op_cost, body.instructions))
    return cost <= MOST_SMALL_COST and lane_loop(loop) is None


def _is_bound(instruction: Instruction) -> bool:
    """Whether it waits for another one."""
    return "control-predecessors" in instruction.attributes


def _is_line(instruction: Instruction) -> bool:
    """Whether an op of the body fuses with its like over many iterations."""
    if _is_bound(instruction) or instruction.shape.is_dynamic:
        return False
    if instruction.opcode in _MOVES:
        return all(s.size <= _SMALL for s in (instruction.shape, *_shapes(instruction)))
    return instruction.opcode in _PLAIN or instruction.opcode in SCALAR_STRUCTURE


def _shapes(instruction: Instruction) -> list[Shape]:
    return [o.shape for o in instruction.operands]


def _unroll(loop: Instruction, trips: int) -> None:
    """One copy of the body after the other in the loop's place."""
    computation = loop.computation
    assert computation is not None, "a loop stands in a computation"
    body, _ = loop.called_computations()
    order = post_order(body)
    (state,) = loop.operands
    for _ in range(trips):
        twins: dict[Instruction, Instruction] = {}
        for old in order:
            if old.opcode == "parameter":
                twins[old] = state
            elif old.opcode == "get-tuple-element" and twins[old.operands[0]].opcode == "tuple":
                index = old["index"]
                assert isinstance(index, int), "an element has an integer index"
                twins[old] = twins[old.operands[0]].operands[index]
            else:
                operands = tuple(twins[o] for o in old.operands)
                twins[old] = computation.adopt(clone_instruction(old, operands))
        state = twins[body.root]
    if trips == 0:
        parts = [
            make(loop, "get-tuple-element", state, index=k) for k in range(len(loop.shape.elements))
        ]
        state = make(loop, "tuple", *parts, shape=loop.shape)
    computation.replace_uses(loop, state)
    computation.remove(loop)
