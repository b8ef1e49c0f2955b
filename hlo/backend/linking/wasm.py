"""WebAssembly: what stands in a relocatable object file of it.

Sources: the WebAssembly core specification, section 5.5 (modules), and the tool conventions'
Linking.md (the custom section "linking").
"""

from __future__ import annotations

from collections.abc import Iterator

MAGIC = b"\0asm"
_CUSTOM, _IMPORTS, _CODE = 0, 2, 10  # numbers of sections
_SEGMENTS, _SYMBOLS = 5, 8  # parts of "linking"
_FUNCTION, _DATA, _SECTION = 0, 1, 3  # kinds of symbols
_UNDEFINED, _NAMED = 0x10, 0x40  # flags of symbols
_TABLE_OR_MEMORY = (1, 2)  # kinds of imports with limits


class _Reader:
    """Numbers and names one after the other."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def number(self) -> int:
        """An unsigned number of any length, seven bits in a byte."""
        result = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    def bytes(self) -> bytes:
        """So many bytes as the number before them says."""
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        return self.bytes().decode("utf-8", "replace")

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.data)


def symbol_sizes(body: bytes) -> Iterator[tuple[str, str, int]]:
    """(name, kind, bytes) of the functions and data that an object file defines. kind: as an object
    of ELF says it: code, constants or variables.
    """
    imported, code, linking = 0, list[int](), b""
    reader = _Reader(body, 8)
    while not reader.is_at_end:
        number = reader.number()
        section = _Reader(reader.bytes())
        if number == _IMPORTS:
            imported = sum(kind == _FUNCTION for kind in _imports(section))
        elif number == _CODE:
            code = [len(section.bytes()) for _ in range(section.number())]
        elif number == _CUSTOM and section.name() == "linking":
            linking = section.data[section.at :]
    parts = dict(_parts(linking))
    segments = list(_segments(_Reader(parts.get(_SEGMENTS, b"\0"))))
    for name, kind, place, size in _symbols(_Reader(parts.get(_SYMBOLS, b"\0"))):
        if kind == _FUNCTION:
            yield name, "code", code[place - imported]
        elif size:
            is_constant = segments[place].startswith(".rodata")
            yield name, "constants" if is_constant else "variables", size


def _imports(section: _Reader) -> Iterator[int]:
    """The kinds of imports."""
    for _ in range(section.number()):
        section.name(), section.name()
        kind = section.number()
        yield kind
        if kind == 1:
            section.number()  # the type of what a table holds
        if kind in _TABLE_OR_MEMORY:
            for _ in range(1 + (section.number() & 1)):
                section.number()
        else:
            section.number()
            if kind == _SECTION:  # a global: its type, and whether it changes
                section.number()


def _parts(linking: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(linking)
    if not reader.is_at_end:
        reader.number()  # the version
    while not reader.is_at_end:
        number = reader.number()
        yield number, reader.bytes()


def _segments(reader: _Reader) -> Iterator[str]:
    """The names of segments of data."""
    for _ in range(reader.number()):
        yield reader.name()
        reader.number(), reader.number()


def _symbols(reader: _Reader) -> Iterator[tuple[str, int, int, int]]:
    """(name, kind, number of the function or segment, bytes) of the symbols that are defined."""
    for _ in range(reader.number()):
        kind, flags = reader.number(), reader.number()
        is_defined = not flags & _UNDEFINED
        if kind == _DATA:
            name = reader.name()
            if is_defined:
                place, _, size = reader.number(), reader.number(), reader.number()
                yield name, kind, place, size
        elif kind == _SECTION:
            reader.number()
        else:
            place = reader.number()
            name = reader.name() if is_defined or flags & _NAMED else ""
            if kind == _FUNCTION and is_defined:
                yield name, kind, place, 0
