"""Fusions too deep or too wide for one kernel, as calls.

    fusion(x), calls=c  =>  call(x), to_apply=c

where a path through c, and through fusions in it, is long, or where c joins very many arrays: a
table copies them (kernels/concatenate_table.py), where one kernel would be a nest of loops for
each.

A kernel's expression is evaluated from its results on, each op asking for its operands' elements
(emitters/elemental.py): how deep that goes is bounded here, once for all that evaluates so. Calls
may be as deep as the module: what a call runs is planned for itself, and no copy is made.
Does not know: kernels, LLVM.
"""

from __future__ import annotations

from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.fusibility import is_elementwise, is_wide_concatenate
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, calls, clone_module, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module

# The most steps from an op to an operand that is evaluated inside it. The pass `fusion` makes no
# fusion so deep: its fusions have fewer members.
DEEPEST_PATH = 100

# Ops that a kernel looks through, without a step of their own.
_LOOKED_THROUGH = frozenset({
    "get-tuple-element", "tuple", "opt-barrier", "domain", "add-dependency",
    "fusion", "call",
})  # fmt: skip


def without_deep_fusions(module: Module) -> Module:
    """The module itself where all fusions are shallow; else one with calls for the others.

    O(instructions).
    """
    deep = _deep(module)
    if not deep:
        return module
    changed = clone_module(module)
    for computation in changed.computations:
        for fusion in calls(computation):
            if fusion.opcode == "fusion" and _callee(fusion).name in deep:
                said = {k: v for k, v in fusion.attributes.items() if k not in ("kind", "calls")}
                fusion.opcode = "call"
                computation.set_attributes(fusion, {**said, "to_apply": _callee(fusion)})
    return changed


def _deep(module: Module) -> set[str]:
    """The names of computations that are too deep or too wide for a kernel."""
    depths: dict[Computation, int] = {}
    fused = [f for c in module.computations for f in calls(c) if f.opcode == "fusion"]
    bodies = {_callee(f) for f in fused if not is_blocked(f)}
    is_nested = any(f.computation in bodies for f in fused)
    wide = {c for c in bodies if any(map(is_wide_concatenate, c.instructions))}
    if not is_nested and not wide and all(len(c) <= DEEPEST_PATH for c in bodies):
        return set()  # No path is longer than its computation.
    for computation in callees_first(module):
        if computation in wide:
            depths[computation] = DEEPEST_PATH + 1  # What holds it is too deep as well.
        elif computation in bodies:
            depths[computation] = _depth(computation, depths)
    return {c.name for c, depth in depths.items() if depth > DEEPEST_PATH}


def _callee(fusion: Instruction) -> Computation:
    (callee,) = fusion.called_computations()
    return callee


def _depth(computation: Computation, known: dict[Computation, int]) -> int:
    """The most steps on a path to the root. Trees of elementwise ops are evaluated from a list."""
    reached: dict[Instruction, int] = {}
    for instruction in post_order(computation):
        below = max((reached[o] + _step(instruction, o) for o in instruction.operands), default=0)
        if instruction.opcode == "fusion":
            below += known.get(_callee(instruction), 0)
        reached[instruction] = below
    return max(reached.values(), default=0)


def _step(instruction: Instruction, operand: Instruction) -> int:
    """Whether evaluating the operand goes a step deeper."""
    if instruction.opcode in _LOOKED_THROUGH:
        return 0
    is_tree = is_elementwise(instruction) and is_elementwise(operand)
    return int(not (is_tree and instruction.shape.dims == operand.shape.dims))
