"""Side effects: what must run though nothing uses it, by itself or by what it calls."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.graph import callees
from hlo.ir.instruction import Instruction, may_call
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
    return may_call(instruction) and any(c.fact(_acts_inside) for c in _reached(instruction))


def _acts_inside(computation: Computation) -> bool:
    return any(map(acts, computation.instructions))


def _reached(instruction: Instruction) -> Iterator[Computation]:
    """All that an instruction calls, however deep, each once."""
    pending = list(instruction.called_computations())
    seen = set(pending)
    while pending:
        top = pending.pop()
        yield top
        fresh = [c for c in callees(top) if c not in seen]
        seen.update(fresh)
        pending += fresh


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
