"""Remarks: what passes did to an instruction and why not more, for whoever listens.

    with heard_remarks() as remarks:        a pass calls remark(code, instruction, message)
        optimize(module)

Without a listener a remark costs a look at a variable; messages of several words are functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from msgspec import Struct

from hlo.ir.instruction import Instruction

Message = str | Callable[[], str]
FUSED, NOT_FUSED = "fused", "not-fused"
CODES = (FUSED, NOT_FUSED)


class Remark(Struct, frozen=True):
    """What was done to an instruction, or why it was not.

    code: one of CODES. source: the instruction's line, of the text or of the program.
    """

    code: str
    instruction: str
    source: str
    message: str

    def __str__(self) -> str:
        where = f" {self.source}" if self.source else ""
        return f"remark[{self.code}]{where}: %{self.instruction}: {self.message}"


_heard: ContextVar[list[Remark] | None] = ContextVar("_heard", default=None)


@contextmanager
def heard_remarks() -> Iterator[list[Remark]]:
    """The remarks of all passes that run within this, in order."""
    found: list[Remark] = []
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


def are_heard() -> bool:
    """Whether somebody listens."""
    return _heard.get() is not None


def remark(code: str, instruction: Instruction, message: Message) -> Literal[False]:
    """Tell a listener, if there is one. False, so that a test that fails can say why."""
    heard = _heard.get()
    if heard is not None:
        from hlo.analysis.sources import source_of

        text = message if isinstance(message, str) else message()
        heard.append(Remark(code, instruction.name, source_of(instruction), text))
    return False
