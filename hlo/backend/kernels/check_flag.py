"""Check flag: by it kernels that check what they read tell those that run after them."""

from __future__ import annotations

from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Writer

CHECKED_AT_ONCE = 1 << 14  # Numbers that a unit checks.
FLAG_BYTES = 1  # Of what a check answers: 0 unless it found what it looks for.


def cleared_flag_kernel() -> Kernel:
    """buffers: the byte, which becomes 0."""
    w = Writer()
    w.store(w.int(0, "i8"), w.buffer_address(0), 1)
    return Kernel(w.kernel_function(), 1)


def other_flag_kernel() -> Kernel:
    """buffers: a byte, and the one that says the opposite."""
    w = Writer()
    before = w.load(w.buffer_address(0), "i8", 1)
    other = w.cast("zext", w.compare("icmp eq", before, w.int(0, "i8")), "i8")
    w.store(other, w.buffer_address(1), 1)
    return Kernel(w.kernel_function(), 1)


def copied_flag_kernel() -> Kernel:
    """buffers: a byte, and the one that becomes it."""
    w = Writer()
    before = w.load(w.buffer_address(0), "i8", 1)
    w.store(before, w.buffer_address(1), 1)
    return Kernel(w.kernel_function(), 1)
