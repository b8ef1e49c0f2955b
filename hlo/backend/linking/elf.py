"""ELF: object files of x86-64 Linux, placed in this process's memory.

    object files, addresses of outside symbols --Image--> addresses of the symbols they define

What LLVM's own linker does in a millisecond of set-up, for what our objects hold: position
independent code of the small model, read-only constants, a few variables. Everything of one
program lies in one mapping, so 32-bit distances always reach; outside functions are called through
stubs. Code and constants are never writable and executable at once. Unwind tables are left out:
nothing is thrown through our code. Source: the System V ABI, x86-64 supplement, section 4.4.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from hlo.process.once import once

PAGE = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
HEADER_SHOFF, HEADER_SHNUM = 0x28, 0x3C
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
# The same with addresses of 32 bits.
HEADER_SHOFF_32, HEADER_SHNUM_32 = 0x20, 0x30
SECTION_32 = struct.Struct("<10I")
SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"),
     ("section", "<u2")]
)  # fmt: skip
RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
SYMTAB, RELA, NOBITS, UNWIND = 2, 4, 8, 0x70000001  # Types of sections.
WRITE, ALLOC = 1, 2  # Flags of sections.
NOWHERE, FIXED, VARIABLE, ZERO = range(4)  # Kinds of sections: ZERO has variables without bytes.
ABSOLUTE_64, PC_32, PLT_32, PC_64 = 1, 2, 4, 24  # Types of relocations.
# Relocations that are a distance to a slot which holds the symbol's address.
FROM_GOT = (9, 41, 42)
# Bytes of what a relocation fills in.
_BYTES = {ABSOLUTE_64: 8, PC_64: 8} | dict.fromkeys((PC_32, PLT_32, *FROM_GOT), 4)
# The code is jmp [rip + 2]; what follows is the address.
STUB = b"\xff\x25\x02\x00\x00\x00\xcc\xcc"
STUB_BYTES = 16
# Flags of Linux's mmap and mprotect. Importing Python's module that has them takes as long as
# linking.
MAY_READ, MAY_WRITE, MAY_RUN, PRIVATE, ANONYMOUS = 1, 2, 4, 2, 0x20

OFFSET = ctypes.c_long

Outside = Callable[[str], int]


def processor() -> str:
    """The processor's architecture, as the system calls it; empty where it has no such call."""
    return os.uname().machine if hasattr(os, "uname") else ""


def is_supported() -> bool:
    """Whether this process's objects are of the form that is read here."""
    return sys.platform == "linux" and processor() == "x86_64" and sys.maxsize > 2**32


class Image:
    """Objects in memory; the mapping lives as long as this does, or for ever once it is kept."""

    def __init__(self, objects: Sequence[bytes], outside: Outside) -> None:
        parts = [_Object(data) for data in objects]
        size = _at_offsets(parts, 0, FIXED)
        stubs = -(-size // STUB_BYTES) * STUB_BYTES
        size = stubs + STUB_BYTES * sum(len(part.globals) for part in parts)
        fixed = -(-size // PAGE) * PAGE  # variables begin on a page of their own
        used = _at_offsets(parts, fixed, VARIABLE)
        size = _at_offsets(parts, used, ZERO)  # Fresh memory is zero.
        self._whole = bytearray(used)
        self.base = _mapped(size)
        self._end = weakref.finalize(self, _system().munmap, self.base, size)
        self._end.atexit = False  # threads may be inside to the very end
        self._variables = self.base + fixed, size - fixed
        self.symbols: dict[str, int] = {}
        for part in parts:
            part.copy(self._whole)
            self.symbols.update(part.defined(self.base))
        self._stubs: dict[str, int] = {}
        for part in parts:
            part.relocate(self._whole, self.base, lambda name: self._slot(name, stubs, outside))
        ctypes.memmove(self.base, bytes(self._whole), used)
        _protect(self.base, fixed, MAY_READ | MAY_RUN)
        del self._whole

    def address(self, symbol: str) -> int:
        """Where a symbol that an object defines lies."""
        return self.symbols[symbol]

    def find(self, symbol: str) -> int:
        """Where a symbol lies; 0 where no object defines it."""
        return self.symbols.get(symbol, 0)

    def seal(self) -> None:
        """From now on no variable changes."""
        if self._variables[1]:
            _protect(*self._variables, MAY_READ)

    def keep_forever(self) -> None:
        """Never unmap: threads of the process may be inside."""
        self._end.detach()

    def _slot(self, name: str, stubs: int, outside: Outside) -> tuple[int, int]:
        """A symbol's address, and where its stub is, made at first use."""
        address = self.symbols.get(name)
        if address is None:
            address = outside(name)
        at = self._stubs.get(name)
        if at is None:
            at = self._stubs[name] = stubs + STUB_BYTES * len(self._stubs)
            self._whole[at : at + STUB_BYTES] = STUB + address.to_bytes(8, "little")
        return address, self.base + at


def _at_offsets(parts: Sequence[_Object], size: int, kind: int) -> int:
    """Lay the sections of one kind behind the first `size` bytes; gives the new size."""
    for part in parts:
        size = part.place(size, kind)
    return size


class Section:
    """A row of an object file's table of sections (SECTION), as far as it is read here."""

    __slots__ = ("align", "flags", "info", "link", "offset", "size", "type")

    def __init__(self, row: tuple[int, ...]) -> None:
        _, self.type, self.flags, _, self.offset, self.size, self.link, self.info, *rest = row
        self.align = rest[0]

    @property
    def kind(self) -> int:
        """What memory it wants; NOWHERE: none."""
        if not self.flags & ALLOC or self.type == UNWIND:
            return NOWHERE
        if not self.flags & WRITE:
            return FIXED
        return ZERO if self.type == NOBITS else VARIABLE


class ObjectFile:
    """One little-endian object file: its sections and symbols."""

    def __init__(self, data: bytes) -> None:
        assert data[:4] == b"\x7fELF", "an object file"
        if data[4] == 1:
            at, counted, row, symbol = HEADER_SHOFF_32, HEADER_SHNUM_32, SECTION_32, SYMBOL_32
        else:
            at, counted, row, symbol = HEADER_SHOFF, HEADER_SHNUM, SECTION, SYMBOL
        start = int.from_bytes(data[at : at + 4 * data[4]], "little")
        count = int.from_bytes(data[counted : counted + 2], "little")
        self.data = data
        end = start + count * row.size
        self.sections = [Section(fields) for fields in row.iter_unpack(data[start:end])]
        (table,) = (s for s in self.sections if s.type == SYMTAB)
        self.symbols = np.frombuffer(data, symbol, table.size // symbol.itemsize, table.offset)
        self.names_at = self.sections[table.link].offset

    def name(self, start: int) -> str:
        """The symbol's name that begins here."""
        start += self.names_at
        return self.data[start : self.data.index(b"\0", start)].decode()


class _Object(ObjectFile):
    """One object file, and where its sections lie in the image."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.offsets = [-1] * len(self.sections)
        self.globals = np.flatnonzero(self.symbols["info"] >> 4)

    def place(self, size: int, kind: int) -> int:
        """Lay the sections of one kind behind the first `size` bytes; gives the new size."""
        for number, section in enumerate(self.sections):
            if section.kind != kind:
                continue
            align = max(1, section.align)
            size = -(-size // align) * align
            self.offsets[number] = size
            size += section.size
        return size

    def copy(self, whole: bytearray) -> None:
        """Put the sections' bytes into the image."""
        for section, place in zip(self.sections, self.offsets, strict=True):
            if place >= 0 and section.type != NOBITS:
                start, size = section.offset, section.size
                whole[place : place + size] = self.data[start : start + size]

    def defined(self, base: int) -> dict[str, int]:
        """Addresses of the global symbols that stand in a placed section."""
        return {
            self.name(name): base + self.offsets[section] + value
            for name, _, _, section, value, _ in self.symbols[self.globals].tolist()
            if 0 < section < len(self.offsets)
        }

    def relocate(self, whole: bytearray, base: int, slot: Callable[[str], tuple[int, int]]) -> None:
        """Fill in addresses and distances: an object has a dozen, for which arrays would take
        several times as long as numbers.
        """
        symbols, last = self.symbols.tolist(), len(self.offsets) - 1
        for section in self.sections:
            place = self.offsets[section.info] if section.type == RELA else -1
            if place < 0:
                continue
            count = section.size // RELOCATION.itemsize
            rows = np.frombuffer(self.data, RELOCATION, count, section.offset)
            for offset, kind, number, addend in rows.tolist():
                name, _, _, within, value, _ = symbols[number]
                if kind in FROM_GOT or within == 0:
                    target = _outside(kind, base, *slot(self.name(name)))
                else:
                    target = base + self.offsets[min(within, last)] + value
                at = place + offset
                size = _BYTES.get(kind)
                if size is None:
                    raise ValueError(f"object file: relocation {kind}")
                word = target + addend - (0 if kind == ABSOLUTE_64 else base + at)
                if size == 4 and abs(word) >= 2**31:
                    raise ValueError("object file: a distance beyond 32 bits")
                whole[at : at + size] = word.to_bytes(size, "little", signed=True)


def _outside(kind: int, base: int, address: int, stub: int) -> int:
    """What a relocation means that needs a symbol's slot or is of a symbol of another object: the
    symbol, where it is near enough for a call or all of its address is asked for; else its stub, or
    the slot in that.
    """
    if kind in FROM_GOT:
        return stub + len(STUB)
    is_near = kind == PLT_32 and abs(address - base) < 2**30
    return address if is_near or kind in (ABSOLUTE_64, PC_64) else stub


@once
def _system() -> ctypes.CDLL:
    """The C library's memory calls."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (*(ctypes.c_void_p, ctypes.c_size_t), *(ctypes.c_int,) * 3, OFFSET)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _mapped(size: int) -> int:
    """Fresh memory of our own (a forked child gets a copy)."""
    base = _system().mmap(None, size, MAY_READ | MAY_WRITE, PRIVATE | ANONYMOUS, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError(f"{size} bytes of memory for code")
    return int(base)


def _protect(base: int, size: int, allowed: int) -> None:
    """From now on the memory may be used in these ways only."""
    if _system().mprotect(base, size, allowed):
        raise OSError(ctypes.get_errno(), "the protection of memory for code cannot be changed")
