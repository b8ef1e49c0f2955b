"""Side effects: what must run though nothing uses it, by itself or by what it calls."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.graph import callees
from hlo.ir.instruction import Instruction, may_call
from hlo.ops.table import Trait, opcodes

_ACTING = opcodes(Trait.SIDE_EFFECT).holds


def acts(instruction: Instruction) -> bool:
    """Whether the instruction itself, its callees aside, has a side effect."""
    if instruction.opcode == "custom-call" and instruction.get("custom_call_has_side_effect"):
        return True
    return _ACTING[instruction.opcode]


def has_effect(instruction: Instruction) -> bool:
    """Whether the instruction, or anything that it calls, has a side effect."""
    if acts(instruction):
        return True
    return may_call(instruction) and any(map(_runs_effects, instruction.called_computations()))


def _runs_effects(computation: Computation) -> bool:
    """Whether anything in a computation, or in what it calls, has a side effect.

    Known of each computation until its own next edit: rewrites give what is called no effects that
    it did not have. What is called is asked first, since calls may be as deep as the module.
    """
    stack = [computation]
    while stack:
        facts = stack[-1].facts
        if _runs_effects not in facts:
            waiting = [c for c in callees(stack[-1]) if _runs_effects not in c.facts]
            if waiting:
                stack += waiting
                continue
            facts[_runs_effects] = stack[-1].fact(_acts_inside) or any(
                c.facts[_runs_effects] for c in callees(stack[-1])
            )
        stack.pop()
    return bool(computation.facts[_runs_effects])


def _acts_inside(computation: Computation) -> bool:
    return any(map(acts, computation.instructions))


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
