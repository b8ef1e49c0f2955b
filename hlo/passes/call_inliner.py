"""call-inliner: put the bodies of called computations in place of `call`."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, clone_instruction, control_predecessors, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import awaited


def call_inliner(module: Module) -> bool:
    """Replace each `call` by its body.

    Callees first, so that one round inlines all levels. Calls on another execution thread and
    those with control dependences stay. O(size of the result).
    """
    changed = False
    for computation in callees_first(module):
        kept = awaited(computation)
        for instruction in computation.instructions:
            if instruction not in kept and _may_inline(instruction, computation):
                inline_call(instruction)
                changed = True
    return changed


def _may_inline(instruction: Instruction, computation: Computation) -> bool:
    if instruction.opcode != "call" or "control-predecessors" in instruction.attributes:
        return False
    (callee,) = instruction.called_computations()
    return callee.execution_thread == computation.execution_thread


def inline_call(call: Instruction) -> Instruction:
    """Copy the callee's instructions into the caller and remove the call;
    the value that replaces it.
    """
    computation = call.computation
    assert computation is not None, f"{call.name} stands in no computation"
    (callee,) = call.called_computations()
    twins: dict[Instruction, Instruction] = {}
    for old in post_order(callee):
        if old.opcode == "parameter":
            number = old["parameter_number"]
            assert isinstance(number, int), "a parameter has a number"
            twins[old] = call.operands[number]
            continue
        new = clone_instruction(old, tuple(twins[o] for o in old.operands))
        if "control-predecessors" in new.attributes:
            before = tuple(twins[p] for p in control_predecessors(old))
            new.attributes = {**new.attributes, "control-predecessors": before}
        twins[old] = computation.adopt(new)
    result = twins[callee.root]
    computation.replace_uses(call, result)
    computation.remove(call)
    return result
