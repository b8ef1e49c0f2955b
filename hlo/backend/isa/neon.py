"""NEON: 64-bit Arm's vectors. Most questions are answered as LLVM's own instructions are.

Sources: Arm's Architecture Reference Manual for A-profile (FPCR, ISB) and Programmer's Guide for
ARMv8-A (DEN0024A 13.2.4, non-temporal pairs).
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode, Isa


class _Control:
    """FPCR, of whose 64 bits the upper half is not used. FZ is bit 24: subnormal operands and
    results of f32 and f64 are zeros.
    """

    usual = 0
    flushing = 1 << 24

    def save(self, w: Writer, slot: Value) -> None:
        bits = w.call_declared("llvm.aarch64.get.fpcr", type="i64")
        w.store(w.cast("trunc", bits, "i32"), slot, 4)

    def set(self, w: Writer, slot: Value) -> None:
        bits = w.cast("zext", w.load(slot, "i32", 4), "i64")
        w.call_declared("llvm.aarch64.set.fpcr", bits)


_CONTROL = _Control()


class Neon(Isa):
    """Vectors of 16 bytes."""

    def fence_streams(self, w: Writer) -> None:
        """Non-temporal pairs relax the order of memory: a barrier, before others are told."""
        w.emit("fence release")

    def pause(self, w: Writer) -> None:
        """isb sy: as long as x86's pause on Neoverse cores, where `yield` takes no time at all
        (github.com/rust-lang/rust/pull/84725).
        """
        w.call_declared("llvm.aarch64.isb", w.int(15, "i32"))

    @property
    def float_mode(self) -> FloatMode | None:
        return _CONTROL
