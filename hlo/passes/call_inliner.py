"""call-inliner: put the bodies of called computations in place of `call`."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import (
    callees_first,
    calls,
    clone_computation,
    clone_instruction,
    control_predecessors,
    post_order,
    redirect_calls,
)
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import awaited, wrapped_operations


def call_inliner(module: Module) -> bool:
    """Replace each `call` by its body.

    Callees first, so that one round inlines all levels. Calls on another execution thread and
    those with control dependences stay. O(size of the result).
    """
    changed = False
    wrapped = wrapped_operations(module)
    for computation in callees_first(module):
        if computation in wrapped:
            continue
        kept = awaited(computation)
        for instruction in calls(computation):
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
        if new.opcode == "async-start":
            _own_copies(new)
    result = twins[callee.root]
    computation.replace_uses(call, result)
    computation.remove(call)
    return result


def _own_copies(start: Instruction) -> None:
    """Copies of what an async-start calls, since no two may call the same computation."""
    assert start.computation is not None, "an instruction in a computation"
    module = start.computation.module
    assert module is not None, "a computation in a module"
    copies: dict[Computation, Computation] = {}
    for callee in start.called_computations():
        copies[callee] = clone_computation(callee)
        module.adopt(copies[callee], before=callee)
    start.computation.set_attributes(start, redirect_calls(start.attributes, copies))
