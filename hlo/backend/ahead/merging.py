"""Merging: object files of ELF as one, in which they know each other and others know little.

    objects, exported names --merged--> the object file

Sections stay as they are, each by itself; those that nothing exported leads to are left out.
Symbols that are not exported become the object's own. For 64-bit little-endian files whose
relocations hold their addends: x86-64, aarch64, riscv64. Source: the System V ABI, chapter 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field

from hlo.backend.linking.elf import (
    ALLOC,
    HEADER_SHNUM,
    HEADER_SHOFF,
    NOBITS,
    RELA,
    RELOCATION,
    SECTION,
    SYMBOL,
    SYMTAB,
    ObjectFile,
)

HEADER_BYTES = 64
STRINGS = 3  # a section's type: names
IS_TABLE = 0x40  # a section's flag: its info is a section's number
RESERVED = 0xFF00  # numbers from here on are of no section
OWN, GLOBAL, TYPES = 0, 1, 15  # how far a symbol is known, beside weakly; the mask of its type
FILE_SYMBOL = 4
NOTES = (".note.GNU-stack", ".riscv.attributes")  # sections that say something of the whole


class _Row(NamedTuple):
    """A section's row."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_bytes: int


class _Place(NamedTuple):
    """A section, or a symbol, by its number in an object by its number."""

    part: int
    number: int


class _Part(ObjectFile):
    """One of the objects."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        start = int.from_bytes(data[HEADER_SHOFF : HEADER_SHOFF + 8], "little")
        end = start + len(self.sections) * SECTION.size
        self.rows = [_Row(*row) for row in SECTION.iter_unpack(data[start:end])]
        names = int.from_bytes(data[HEADER_SHNUM + 2 : HEADER_SHNUM + 4], "little")
        self.section_names_at = self.rows[names].offset
        self.relocations = {row.info: self._table(row) for row in self.rows if row.type == RELA}
        self.own: list[tuple[int, ...]] = [tuple(row) for row in self.symbols.tolist()]

    def _table(self, row: _Row) -> np.ndarray:
        count = row.size // RELOCATION.itemsize
        return np.frombuffer(self.data, RELOCATION, count, row.offset)

    def section_name(self, number: int) -> str:
        start = self.section_names_at + self.rows[number].name
        return self.data[start : self.data.index(b"\0", start)].decode()

    def bytes_of(self, number: int) -> bytes:
        row = self.rows[number]
        return b"" if row.type == NOBITS else self.data[row.offset : row.offset + row.size]


def merged(objects: Sequence[bytes], exported: Collection[str]) -> bytes:
    """The object. exported: names by which others may know what it defines."""
    parts = [_Part(data) for data in objects]
    defined = {
        part.name(symbol[0]): _Place(number, n)
        for number, part in enumerate(parts)
        for n, symbol in enumerate(part.own)
        if symbol[1] >> 4 != OWN and symbol[3]
    }
    kept = _reached(parts, defined, exported)
    kept += _notes(parts)
    return _Writer(parts, kept, defined, exported).written()


def _reached(
    parts: Sequence[_Part], defined: dict[str, _Place], exported: Collection[str]
) -> list[_Place]:
    """The sections that exported symbols lead to, in the objects' order."""
    stack = [_section(parts, defined[name]) for name in exported if name in defined]
    seen = set(stack)
    while stack:
        place = stack.pop()
        part = parts[place.part]
        rows = part.relocations.get(place.number)
        for n in set(rows["symbol"].tolist()) if rows is not None else ():
            symbol = _Place(place.part, n)
            if not part.own[n][3]:
                symbol = defined.get(part.name(part.own[n][0]), symbol)
            found = _section(parts, symbol)
            if 0 < found.number < RESERVED and found not in seen:
                seen.add(found)
                stack.append(found)
    return sorted(seen)


def _section(parts: Sequence[_Part], symbol: _Place) -> _Place:
    """Where a symbol is defined; number 0: nowhere."""
    return _Place(symbol.part, parts[symbol.part].own[symbol.number][3])


def _notes(parts: Sequence[_Part]) -> list[_Place]:
    """Sections that say something of the whole, once."""
    found: dict[str, _Place] = {}
    for number, part in enumerate(parts):
        for n, row in enumerate(part.rows):
            if not row.flags & ALLOC and (name := part.section_name(n)) in NOTES:
                found.setdefault(name, _Place(number, n))
    return list(found.values())


class _Names(Struct):
    """A table of names."""

    data: bytearray = field(default_factory=lambda: bytearray(b"\0"))
    known: dict[str, int] = field(default_factory=dict)

    def at(self, name: str) -> int:
        if name not in self.known:
            self.known[name] = len(self.data)
            self.data += name.encode() + b"\0"
        return self.known[name]


class _Writer:
    """Writes what was kept."""

    def __init__(
        self,
        parts: Sequence[_Part],
        kept: Sequence[_Place],
        defined: dict[str, _Place],
        exported: Collection[str],
    ) -> None:
        self.parts, self.kept, self.defined, self.exported = parts, kept, defined, exported
        self.numbers = {place: n for n, place in enumerate(kept, 1)}
        self.names, self.section_names = _Names(), _Names()
        self.data = bytearray(parts[0].data[:HEADER_BYTES])
        self.rows = [_Row(*[0] * len(_Row._fields))]

    def written(self) -> bytes:
        """The file."""
        for place in self.kept:
            part = self.parts[place.part]
            self._section(
                part.section_name(place.number), part.rows[place.number],
                part.bytes_of(place.number),
            )  # fmt: skip
        own, others, numbers = self._symbols()
        tables = [p for p in self.kept if p.number in self.parts[p.part].relocations]
        table = len(self.rows) + len(tables)
        empty = self.rows[0]
        for place in tables:
            rows = self.parts[place.part].relocations[place.number].copy()
            rows["symbol"] = [numbers[_Place(place.part, n)] for n in rows["symbol"].tolist()]
            name = f".rela{self.parts[place.part].section_name(place.number)}"
            info = self.numbers[place]
            self._section(name, empty._replace(
                type=RELA, flags=IS_TABLE, link=table, info=info, align=8,
                entry_bytes=RELOCATION.itemsize,
            ), rows.tobytes())  # fmt: skip
        symbols = np.array([(0,) * 6, *own, *others], SYMBOL)
        self._section(".symtab", empty._replace(
            type=SYMTAB, link=table + 1, info=len(own) + 1, align=8, entry_bytes=SYMBOL.itemsize
        ), symbols.tobytes())  # fmt: skip
        names = empty._replace(type=STRINGS, align=1)
        self._section(".strtab", names, bytes(self.names.data))
        self.section_names.at(".shstrtab")
        self._section(".shstrtab", names, bytes(self.section_names.data))
        return self._ended()

    def _section(self, name: str, row: _Row, data: bytes) -> None:
        self.data += b"\0" * (-len(self.data) % max(1, row.align))
        size = row.size if row.type == NOBITS else len(data)
        at = self.section_names.at(name)
        self.rows.append(row._replace(name=at, address=0, offset=len(self.data), size=size))
        self.data += data

    def _ended(self) -> bytes:
        """With the table of sections, and where it is."""
        self.data += b"\0" * (-len(self.data) % 8)
        start, count = len(self.data), len(self.rows)
        for row in self.rows:
            self.data += SECTION.pack(*row)
        self.data[HEADER_SHOFF : HEADER_SHOFF + 8] = start.to_bytes(8, "little")
        self.data[HEADER_SHNUM : HEADER_SHNUM + 2] = count.to_bytes(2, "little")
        self.data[HEADER_SHNUM + 2 : HEADER_SHNUM + 4] = (count - 1).to_bytes(2, "little")
        return bytes(self.data)

    def _symbols(self) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]], dict[_Place, int]]:
        """The object's own symbols, those that others know, and the number of each old one."""
        own: dict[_Place, tuple[int, ...]] = {}
        others: dict[_Place, tuple[int, ...]] = {}
        for place, symbol in self._defined():
            start, info, other, _, value, size = symbol
            name = self.parts[place.part].name(start)
            is_own = info >> 4 == OWN or (info >> 4 == GLOBAL and name not in self.exported)
            if is_own:
                info, other = info & TYPES, 0
            section = self.numbers.get(_section(self.parts, place), symbol[3])
            row = (self.names.at(name) if name else 0, info, other, section, value, size)
            (own if is_own else others)[place] = row
        first = {}
        for place in self._asked():
            start, info, other, *rest = self.parts[place.part].own[place.number]
            name = self.parts[place.part].name(start)
            if name not in first:
                first[name] = place
                others[place] = (self.names.at(name), info, other, *rest)
        numbers = {place: n for n, place in enumerate((*own, *others), 1)}
        for number, part in enumerate(self.parts):
            for n, symbol in enumerate(part.own):
                place = _Place(number, n)
                if n and not symbol[3] and place not in numbers:
                    name = part.name(symbol[0])
                    found = self.defined.get(name, first.get(name))
                    if found in numbers:
                        numbers[place] = numbers[found]
        return list(own.values()), list(others.values()), numbers

    def _defined(self) -> Iterator[tuple[_Place, tuple[int, ...]]]:
        """The symbols of what was kept, and the first object's of its file."""
        for number, part in enumerate(self.parts):
            for n, symbol in enumerate(part.own):
                is_file = symbol[1] & TYPES == FILE_SYMBOL and not number
                if n and (is_file or _Place(number, symbol[3]) in self.numbers):
                    yield _Place(number, n), symbol

    def _asked(self) -> Iterator[_Place]:
        """Symbols that what was kept asks for and nobody here defines."""
        for place in self.kept:
            part = self.parts[place.part]
            rows = part.relocations.get(place.number)
            numbers: Iterable[int] = rows["symbol"].tolist() if rows is not None else ()
            for n in dict.fromkeys(numbers):
                if n and not part.own[n][3] and part.name(part.own[n][0]) not in self.defined:
                    yield _Place(place.part, n)
