"""Storage: where the memory lies that a kernel keeps for itself: its thread's stack, or scratch.

A thread's stack may be small (256 KiB where a program asks for that, 128 KiB in some C libraries),
and what a kernel keeps grows with the user's program: all that a function has on the stack is
bounded, and the rest lies in the scratch memory, which stays in the core's cache as well.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.loops.schedule import Storage
from hlo.machine import aligned

STACK_BYTES = 64 * 1024  # The most that one function keeps on its stack.


class StorageUse(Struct):
    """The memories of one function, in order: bytes on its stack until now."""

    stack_bytes: int = 0

    def next(self, size_bytes: int) -> Storage:
        """Where the next memory lies, of so many bytes."""
        stack_bytes = self.stack_bytes + aligned(size_bytes)
        if stack_bytes > STACK_BYTES:
            return Storage.SCRATCH
        self.stack_bytes = stack_bytes
        return Storage.STACK
