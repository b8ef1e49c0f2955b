"""Guarded memory: bytes that end where a forbidden page begins, for tests of stray accesses."""

from __future__ import annotations

import ctypes
import mmap

NO_ACCESS = 0


class GuardedMemory:
    """size bytes between two forbidden pages; the last byte touches the second."""

    __slots__ = ("_map", "address", "size")

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        inner = -(-size // page) * page
        self._map = mmap.mmap(-1, inner + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for guard in (start, start + page + inner):
            if protect(guard, page, NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.size = size
        self.address = start + page + inner - size

    def fill(self, byte: int) -> None:
        ctypes.memset(self.address, byte, self.size)

    def put(self, data: bytes) -> None:
        ctypes.memmove(self.address, data, len(data))

    def get(self) -> bytes:
        return ctypes.string_at(self.address, self.size)
