"""Side effects: what must run though nothing uses it, by itself or by what it calls."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, has_trait


def acts(instruction: Instruction) -> bool:
    """Whether the instruction itself, its callees aside, has a side effect."""
    if instruction.opcode == "custom-call" and instruction.get("custom_call_has_side_effect"):
        return True
    return has_trait(instruction, Trait.SIDE_EFFECT)


def has_effect(instruction: Instruction) -> bool:
    """Whether the instruction, or anything that it calls, has a side effect."""
    if acts(instruction):
        return True
    if next(instruction.called_computations(), None) is None:
        return False
    return any(acts(i) for i in with_callees(instruction))


def with_callees(instruction: Instruction) -> Iterator[Instruction]:
    """The instruction and all that it calls, however deep, each computation once."""
    seen: set[Computation] = set()
    pending = [instruction]
    while pending:
        top = pending.pop()
        yield top
        for callee in top.called_computations():
            if callee not in seen:
                seen.add(callee)
                pending += callee.instructions
