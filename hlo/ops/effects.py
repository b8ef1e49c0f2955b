"""Side effects: what must run though nothing uses it, by itself or by what it calls."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS, Trait


def acts(instruction: Instruction) -> bool:
    """Whether the instruction itself, its callees aside, has a side effect."""
    declared = instruction.attributes.get("custom_call_has_side_effect")
    return bool(declared or OPS[instruction.opcode].traits & Trait.SIDE_EFFECT)


def has_effect(instruction: Instruction) -> bool:
    """Whether the instruction, or anything that it calls, has a side effect."""
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
