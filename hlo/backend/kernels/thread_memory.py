"""Memory of a kernel's own for the thread that runs it: on its stack, or in its scratch memory."""

from __future__ import annotations

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.loops.schedule import Storage
from hlo.machine import ALIGNMENT, aligned


def thread_memory(elemental: Elemental, size_bytes: int) -> Value:
    """The address of so many bytes, known from the function's entry on."""
    nest = elemental.nest
    with nest.at(0):
        w = nest.w
        if elemental.storage_use.next(size_bytes) is Storage.STACK:
            return w.alloca(f"[{size_bytes} x i8]", ALIGNMENT)
        slot = w.address(Value("%buffers", "ptr"), w.int(elemental.scratch_slot), "ptr")
        base = w.load_constant_address(slot)
        offset = elemental.scratch_used
        elemental.scratch_used = offset + aligned(size_bytes)
        elemental.scratch_bytes = max(elemental.scratch_bytes, elemental.scratch_used)
        return w.address(base, w.int(offset), "i8") if offset else base
