"""Which instructions may be taken out, and which have to stay themselves.

Out: without user, side effect or parameter number, and not the root. Themselves: those that a
control dependence names.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.graph import calls, control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.effects import has_effect
from hlo.ops.making import make


def is_removable(instruction: Instruction) -> bool:
    """Whether nothing would notice that the instruction is gone."""
    if instruction.users or instruction.is_root or instruction.opcode == "parameter":
        return False
    return not has_effect(instruction)


def fused_computations(module: Module) -> set[Computation]:
    """What fusions hold, and the one operation that an async-start wraps. Rewrites leave them
    alone: each value of a fusion, parameters too, has a user; a wrapped operation stays alone.
    """
    fused = {callee for computation in module.computations for callee in computation.fact(_fused)}
    return fused | wrapped_operations(module)


def _fused(computation: Computation) -> tuple[Computation, ...]:
    fusions = [i for i in calls(computation) if i.opcode == "fusion"]
    return tuple(callee for fusion in fusions for callee in fusion.called_computations())


def wrapped_operations(module: Module) -> set[Computation]:
    """Computations of one operation, which async-starts call on the main thread."""
    return {
        callee
        for computation in module.computations
        for instruction in calls(computation)
        if instruction.opcode == "async-start"
        for callee in instruction.called_computations()
        if callee.execution_thread == "main"
    }


def awaited(computation: Computation) -> frozenset[Instruction]:
    """Instructions that others wait for by a control dependence. O(instructions)."""
    return computation.fact(_awaited)


def _awaited(computation: Computation) -> frozenset[Instruction]:
    waiting = [i for i in computation.instructions if "control-predecessors" in i.attributes]
    return frozenset([before for i in waiting for before in control_predecessors(i)])


def outside_fusions(
    module: Module,
) -> Iterator[tuple[Computation, Instruction, frozenset[Instruction]]]:
    """The instructions that stand in no fusion, with their computations and what is awaited there;
    those that are added meanwhile aside.
    """
    fused = fused_computations(module)
    for computation in tuple(module.computations):
        if computation not in fused:
            kept = awaited(computation)
            for instruction in tuple(computation.instructions):
                yield computation, instruction, kept


def replaceable(module: Module, opcode: str) -> list[Instruction]:
    """Instructions of an opcode that others may stand for: neither fused nor bound by control
    dependences. O(instructions), and quick where there are none.
    """
    found = [i for c in module.computations for i in c.instructions if i.opcode == opcode]
    if not found:
        return []
    fused = fused_computations(module)
    kept = {c: awaited(c) for c in dict.fromkeys(i.computation for i in found) if c is not None}
    return [
        i
        for i in found
        if i.computation is not None
        and i.computation not in fused
        and i not in kept[i.computation]
        and "control-predecessors" not in i.attributes
    ]


def replace(old: Instruction, new: Instruction) -> None:
    """Let a new value, in the old one's layout, stand for it everywhere, and take it out."""
    computation = old.computation
    assert computation is not None, "an instruction in a computation"
    if new.shape != old.shape:
        new = make(old, "copy", new, shape=old.shape)
    computation.replace_uses(old, new)
    computation.remove(old)
