"""The report: errors so far, and how a broken rule becomes one with a place in the text."""

from __future__ import annotations

from collections.abc import Callable

from hlo.errors import HloError, Note, Violation
from hlo.ir.instruction import Instruction
from hlo.source import Span

Locator = Callable[[Instruction, str], Span | None]


def whole_instruction(instruction: Instruction, role: str) -> Span | None:  # a Locator
    """The instruction's own span, whatever the role."""
    return instruction.span


class Report:
    """Collects errors in the order in which they are found."""

    def __init__(self, place: Locator) -> None:
        self.errors: list[HloError] = []
        self._place = place

    def add(self, instruction: Instruction, violation: Violation) -> None:
        """A rule that an instruction breaks."""
        subject = f"{violation.at} is " if violation.at else ""
        label = f" ({violation.constraint})" if violation.constraint else ""
        self.errors.append(
            HloError(
                violation.code,
                f"{instruction.opcode}: {subject}{violation.found}, "
                f"expected {violation.expected}{label}",
                self._place(instruction, violation.at) or instruction.span,
                label=violation.found,
                notes=_notes(instruction, violation.at),
                help=violation.help,
            )
        )

    def broken(  # an instruction beside a Violation's fields
        self, instruction: Instruction, code: str, at: str, found: str, expected: str, label: str
    ) -> None:
        """The same, said in words."""
        self.add(instruction, Violation(code, at, found, expected, label))

    def module(self, code: str, message: str, label: str, span: Span | None = None) -> None:
        """A rule that the module as a whole, or its header, breaks."""
        self.errors.append(HloError(code, f"{message} ({label})", span))


def _notes(instruction: Instruction, at: str) -> tuple[Note, ...]:
    """Where the operand that the role names is defined."""
    number = at.removeprefix("operand ")
    if number == at or not number.isdigit() or int(number) >= len(instruction.operands):
        return ()
    operand = instruction.operands[int(number)]
    return (Note(f"'{operand.name}' is defined here", operand.span),) if operand.span else ()
