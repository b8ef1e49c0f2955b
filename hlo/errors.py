"""Errors that a user can mend: HloError, HloErrors, the codes; Violation for code without text.

Here, too: the check that all counts have in common.

Violation(code, at, found, expected) --verifier turns the role into a place--> HloError with a caret
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex, cast

from msgspec import Struct

from hlo.source import Span, caret_picture, shown


class Note(Struct, frozen=True):
    """A further place or sentence that explains an error."""

    message: str
    span: Span | None = None

    def __str__(self) -> str:
        picture = "" if self.span is None else "\n" + caret_picture(self.span)
        return f"note: {shown(self.message)}{picture}"


class HloError(Exception):
    """A fault in the user's program or input.

    `message` reads `<opcode>: <what is>, expected <what should be>`; `label` stands beside the
    caret; `help` says how to mend it. `str()` draws all of it, with control characters escaped; the
    fields hold them as they are.

    >>> try:
    ...     hlo.parse_shape("f33[2]")
    ... except hlo.HloError as error:
    ...     error.code, error.line, error.column
    ('syntax', 1, 1)
    """

    def __init__(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        label: str = "",
        notes: Sequence[Note] = (),
        help: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.span = span
        self.label = label
        self.notes = tuple(notes)
        self.help = help

    @property
    def line(self) -> int | None:
        return self.span.line if self.span else None

    @property
    def column(self) -> int | None:
        return self.span.column if self.span else None

    def __str__(self) -> str:
        rows = [f"error[{self.code}]: {shown(self.message)}"]
        if self.span is not None:
            rows.append(caret_picture(self.span, self.label))
        rows += [str(note) for note in self.notes]
        if self.help:
            rows.append(f"help: {shown(self.help)}")
        return "\n".join(rows)


class HloErrors(HloError):
    """All errors found at once; its code, message and span are those of the first.

    >>> try:
    ...     hlo.verify(hlo.parse("HloModule m ENTRY e { ROOT x = f32[2]{1} parameter(0) }"))
    ... except hlo.HloErrors as errors:
    ...     len(errors.errors)
    1
    """

    def __init__(self, errors: Sequence[HloError]) -> None:
        assert errors, "HloErrors holds at least one error"
        first = errors[0]
        super().__init__(
            first.code,
            first.message,
            first.span,
            label=first.label,
            notes=first.notes,
            help=first.help,
        )
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors)


class Violation(Exception):
    """A broken rule, said by code that knows no source text.

    at: the role of what is wrong: "operand 1", "result", an attribute's name such as "dimensions",
    or "" for the instruction as a whole. constraint: the label in the op's docstring, e.g. "C2".
    """

    def __init__(
        self, code: str, at: str, found: str, expected: str, constraint: str = "", help: str = ""
    ) -> None:
        super().__init__(code, at, found, expected, constraint, help)
        self.code = code
        self.at = at
        self.found = found
        self.expected = expected
        self.constraint = constraint
        self.help = help

    def __str__(self) -> str:
        label = f" ({self.constraint})" if self.constraint else ""
        return f"{self.at} is {self.found}, expected {self.expected}{label}"


def checked_count(what: str, given: object, least: int = 1) -> int:
    """A number that a caller gives, of Python's type or another one of integers; HloError for
    anything else, and for less than `least`.
    """
    try:
        number = None if isinstance(given, bool) else index(cast(SupportsIndex, given))
    except TypeError:
        number = None
    if number is None or number < least:
        raise HloError("arguments", f"{what} is {given!r}, expected an integer from {least}")
    return number
