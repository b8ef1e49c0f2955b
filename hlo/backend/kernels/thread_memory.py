"""Memory of a kernel's own for the thread that runs it: on its stack, or in its scratch memory.

A thread's stack may be small (256 KiB where a program asks for that, 128 KiB in some C libraries),
and what a kernel keeps grows with the user's program: all that a function has on the stack is
bounded, and the rest lies in the scratch memory, which stays in the core's cache as well.
"""

from __future__ import annotations

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.loops.schedule import Place

STACK_BYTES = 64 * 1024  # of one function
_ALIGNMENT = 64


def thread_memory(elemental: Elemental, size_bytes: int) -> Value:
    """The address of so many bytes, known from the function's entry on."""
    nest, aligned = elemental.nest, -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
    with nest.at(0):
        w = nest.w
        is_on_stack = elemental.stack_bytes + aligned <= STACK_BYTES
        if nest.record is not None:
            nest.record.memories.append(Place.STACK if is_on_stack else Place.SCRATCH)
        if is_on_stack:
            elemental.stack_bytes += aligned
            return w.alloca(f"[{size_bytes} x i8]", _ALIGNMENT)
        slot = w.address(Value("%buffers", "ptr"), w.int(elemental.scratch_slot), "ptr")
        base = w.load_constant(slot, "ptr", 8)
        offset, elemental.scratch_used = elemental.scratch_used, elemental.scratch_used + aligned
        elemental.scratch_bytes = max(elemental.scratch_bytes, elemental.scratch_used)
        return w.address(base, w.int(offset), "i8") if offset else base
