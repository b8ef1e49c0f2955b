"""simplify-conditional: a conditional whose choice is known becomes the branch that it takes."""

from __future__ import annotations

from hlo.analysis.call_budget import budget
from hlo.ir.graph import calls
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.making import make
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.patterns.matching import splat_literal
from hlo.passes.simplify.call_inliner import inline_call


def simplify_conditional(module: Module) -> bool:
    """Replace conditionals on constants by the branch that runs.

    conditional(true, x, y)  =>  the true computation's instructions, of x. O(size of the result).
    Beyond the call budget it becomes a call of that computation.
    """
    changed = False
    room = budget(module.computations)
    wrapped = wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in wrapped:
            continue
        chosen = [i for i in calls(computation) if i.opcode == "conditional"]
        for instruction in chosen:
            taken = _taken(instruction)
            if taken is None or instruction in awaited(computation):
                continue
            branch = tuple(instruction.called_computations())[taken]
            if branch.execution_thread != computation.execution_thread:
                continue
            operand, shape = instruction.operands[1 + taken], instruction.shape
            call = make(instruction, "call", operand, shape=shape, to_apply=branch)
            computation.replace_uses(instruction, call)
            computation.remove(instruction)
            room -= len(branch)
            if room >= 0:
                inline_call(call)
            changed = True
    return changed


def _taken(conditional: Instruction) -> int | None:
    """The number of the branch that always runs; None where that is not known."""
    selector = conditional.operands[0]
    value = splat_literal(selector) if selector.shape.is_scalar else None
    if value is None or "control-predecessors" in conditional.attributes:
        return None
    if selector.shape.dtype.is_pred:
        return 0 if value else 1
    last = len(conditional.operands) - 2
    return int(value) if 0 <= int(value) <= last else last
