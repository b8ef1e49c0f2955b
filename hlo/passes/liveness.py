"""Which instructions may be taken out: no user, not the root, no side effect, no parameter."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, has_trait


def is_removable(instruction: Instruction) -> bool:
    """Whether nothing would notice that the instruction is gone."""
    if instruction.users or instruction.is_root or instruction.opcode == "parameter":
        return False
    return not has_effect(instruction)


def has_effect(instruction: Instruction) -> bool:
    """Whether it, or a computation that it calls, has a side effect or ordered communication."""
    stack = [instruction]
    seen: set[Computation] = set()
    while stack:
        top = stack.pop()
        if has_trait(top, Trait.SIDE_EFFECT) or top.get("custom_call_has_side_effect"):
            return True
        for callee in top.called_computations():
            if callee not in seen:
                seen.add(callee)
                stack += callee.instructions
    return False


def reachable_computations(module: Module) -> set[Computation]:
    """The entry and all that it calls, directly or not."""
    found = {module.entry}
    stack = [module.entry]
    while stack:
        for instruction in stack.pop().instructions:
            for callee in instruction.called_computations():
                if callee not in found:
                    found.add(callee)
                    stack.append(callee)
    return found
