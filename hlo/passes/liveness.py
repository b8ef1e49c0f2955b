"""Which instructions may be taken out: no user, not the root, no side effect, no parameter."""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ops.effects import has_effect


def is_removable(instruction: Instruction) -> bool:
    """Whether nothing would notice that the instruction is gone."""
    if instruction.users or instruction.is_root or instruction.opcode == "parameter":
        return False
    return not has_effect(instruction)
