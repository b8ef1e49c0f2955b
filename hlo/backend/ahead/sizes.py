"""Sizes: what an object file takes in a program's memory, symbol by symbol.

object file --size_table--> SizeTable --str--> a table, the largest first

Of ELF and WebAssembly symbols are told; of Mach-O and COFF, whose symbols have no sizes, sections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from hlo.backend.linking import toolchain, wasm
from hlo.backend.linking.elf import ALLOC, NOBITS, WRITE, ObjectFile

_RUNS = 4  # a section's flag: instructions
_FUNCTION, _DATA = 2, 1  # kinds of symbols


class SymbolSize(Struct, frozen=True):
    """What one symbol of an object file takes.

    kind: code, constants or variables.
    """

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


def size_table(body: bytes) -> SizeTable:
    """The table of an object file."""
    if body[:4] == b"\x7fELF":
        file = ObjectFile(body)
        parts = [
            SymbolSize("", _kind(s.flags, s.type), s.size) for s in file.sections if s.flags & ALLOC
        ]
        return _table(parts, _symbols(file))
    if body[:4] == wasm.MAGIC:
        parts = [SymbolSize(*row) for row in wasm.symbol_sizes(body)]
        return _table(parts, parts)
    sums: dict[tuple[str, str], int] = {}
    for name, size, is_text in toolchain.sections(body):
        key = name, _kind_of_section(name, is_text=is_text)
        sums[key] = sums.get(key, 0) + size
    parts = [SymbolSize(*key, size) for key, size in sums.items()]
    return _table(parts, parts)


def _table(parts: Iterable[SymbolSize], symbols: Iterable[SymbolSize]) -> SizeTable:
    """The sums of parts by kind, and symbols."""
    totals = dict.fromkeys(("code", "constants", "variables"), 0)
    for part in parts:
        totals[part.kind] += part.bytes
    return SizeTable(**totals, symbols=tuple(sorted(symbols, key=_largest_first)))


def _kind_of_section(name: str, *, is_text: bool) -> str:
    """Of Mach-O or COFF, where variables are in sections of these names."""
    if is_text:
        return "code"
    is_variable = name.lstrip("._").startswith(("data", "bss", "common", "thread_"))
    return "variables" if is_variable else "constants"


def _kind(flags: int, type: int) -> str:
    if flags & _RUNS:
        return "code"
    return "variables" if flags & WRITE or type == NOBITS else "constants"


def _largest_first(symbol: SymbolSize) -> tuple[int, str]:
    return -symbol.bytes, symbol.name


def _symbols(file: ObjectFile) -> Iterator[SymbolSize]:
    columns = file.symbols[["name", "info", "section", "size"]]
    for name, info, number, size in columns.tolist():
        if not 0 < number < len(file.sections) or info & 15 not in (_FUNCTION, _DATA):
            continue
        section = file.sections[number]
        if section.flags & ALLOC and size:
            yield SymbolSize(file.name(name), _kind(section.flags, section.type), size)
