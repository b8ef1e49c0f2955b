"""Placing: a broken rule, which knows no program, as an error at an instruction."""

from __future__ import annotations

from hlo.errors import HloError, Violation
from hlo.ir.instruction import Instruction


def located(violation: Violation, instruction: Instruction) -> HloError:
    """A broken rule, placed at its instruction."""
    message = f"{instruction.opcode}: {violation}" if violation.at else (
        f"{instruction.opcode}: {violation.found}, expected {violation.expected}"
    )  # fmt: skip
    return HloError(violation.code, message, instruction.span, help=violation.help)
