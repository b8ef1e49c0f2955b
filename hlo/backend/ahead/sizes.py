"""Sizes: what an object file takes in a program's memory, symbol by symbol.

object file of ELF --size_table--> SizeTable --str--> a table, the largest first
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hlo.backend.linking.elf import ALLOC, NOBITS, WRITE, ObjectFile

_RUNS = 4  # a section's flag: instructions
_FUNCTION, _DATA = 2, 1  # kinds of symbols


class SymbolSize(Struct, frozen=True):
    """kind: code, constants or variables."""

    name: str
    kind: str
    bytes: int


class SizeTable(Struct, frozen=True):
    """Bytes of all allocated sections by kind, and of the symbols in them."""

    code: int
    constants: int
    variables: int
    symbols: tuple[SymbolSize, ...]

    @property
    def total(self) -> int:
        return self.code + self.constants + self.variables

    def __str__(self) -> str:
        head = (
            f"{self.total} bytes: code {self.code}, constants {self.constants}, variables "
            f"{self.variables}"
        )
        rows = [f"{s.bytes:>10}  {s.kind:<9}  {s.name}" for s in self.symbols]
        return "\n".join([head, *rows])


def size_table(body: bytes) -> SizeTable | None:
    """The table of an object file; None where it is not of ELF with 64 bits."""
    if body[:6] != b"\x7fELF\x02\x01":
        return None
    file = ObjectFile(body)
    totals = dict.fromkeys(("code", "constants", "variables"), 0)
    for section in file.sections:
        if section.flags & ALLOC:
            totals[_kind(section.flags, section.type)] += section.size
    return SizeTable(**totals, symbols=tuple(sorted(_symbols(file), key=_largest_first)))


def _kind(flags: int, type: int) -> str:
    if flags & _RUNS:
        return "code"
    return "variables" if flags & WRITE or type == NOBITS else "constants"


def _largest_first(symbol: SymbolSize) -> tuple[int, str]:
    return -symbol.bytes, symbol.name


def _symbols(file: ObjectFile) -> Iterator[SymbolSize]:
    for name, info, _, number, _, size in file.symbols.tolist():
        if not 0 < number < len(file.sections) or info & 15 not in (_FUNCTION, _DATA):
            continue
        section = file.sections[number]
        if section.flags & ALLOC and size:
            yield SymbolSize(file.name(name), _kind(section.flags, section.type), size)
