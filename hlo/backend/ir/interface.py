"""What native code and its callers know of each other: functions by prototypes, memory by fields.

Writes nothing, so that a process that finds its objects kept needs no writer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ir.values import Value

NULL = Value("null", "ptr")


class Field(Struct, frozen=True):
    """A part of a memory layout that is known on both sides: where it is, in bytes, and its type in
    LLVM.
    """

    offset: int
    type: str = "i64"
    place: Value | None = None  # the offset, where only the target knows it

    @staticmethod
    def of(types: Sequence[str], number: int) -> Field:
        """A member of a structure of C, of these types: where it is, the target's layout says."""
        member = f"ptr getelementptr ({{ {', '.join(types)} }}, ptr null, i32 0, i32 {number})"
        return Field(0, types[number], Value(f"ptrtoint ({member} to i64)", "i64"))

    @property
    def word(self) -> int:
        """The same place, counted in words of 8 bytes."""
        return self.offset // 8


class Prototype(Struct, frozen=True):
    """A function as its callers know it."""

    result: str
    symbol: str
    parameters: tuple[str, ...]

    @property
    def declaration(self) -> str:
        return f"declare {self.result} @{self.symbol}({', '.join(self.parameters)})"


def prototype(result: str, symbol: str, *parameters: str) -> Prototype:
    """A prototype in the order of C."""
    return Prototype(result, symbol, parameters)


MEMCPY = prototype("void", "llvm.memcpy.p0.p0.i64", "ptr", "ptr", "i64", "i1")
