"""32-bit Arm: ARMv7-A, with VFP's scalars and NEON's vectors of 16 bytes.

NEON has no subnormal numbers, so that strict code has VFP alone (Machine.in_mode): its vectors fall
apart into scalars. Nothing rounds to integers before ARMv8, divides or takes roots of vectors; f64
is scalar. Source: ARM Architecture Reference Manual, ARMv7-A and ARMv7-R edition (DDI 0406: A2.7
for NEON and flush-to-zero, B4.1.58 for FPSCR).
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.generic import FloatMode, Isa

_INTEGERS = {"float": "i32", "double": "i64"}


class _Status:
    """FPSCR. FZ is bit 24: VFP's subnormal operands and results are zeros, as NEON's always are."""

    usual = 0
    flushing = 1 << 24
    met = 0

    def save(self, w: Writer, slot: Value) -> None:
        w.store(w.call_declared("llvm.arm.get.fpscr", type="i32"), slot, 4)

    def set(self, w: Writer, slot: Value) -> None:
        w.call_declared("llvm.arm.set.fpscr", w.load(slot, "i32", 4))


_STATUS = _Status()


class Arm32(Isa):
    """VFPv3 and NEON; VFPv4 where it is there."""

    @property
    def fuses(self) -> bool:
        """vfma, of scalars and of f32's vectors."""
        return self._has("vfp4")

    def extreme_number(self, w: Writer, x: Value, y: Value, *, is_maximum: bool) -> Value | None:
        """A comparison and a choice, and of equal numbers the bits of both, which decide between
        zeros. LLVM 22 has no code for its own maximum of f64 without NEON: it fails an assertion.
        """
        bits = vector_of(_INTEGERS[x.scalar_type], x.lanes)
        both = (w.cast("bitcast", number, bits) for number in (x, y))
        same = w.cast("bitcast", w.binary("and" if is_maximum else "or", *both), x.type)
        further = w.compare("fcmp ogt" if is_maximum else "fcmp olt", x, y)
        return w.select(w.compare("fcmp oeq", x, y), same, w.select(further, x, y))

    @property
    def converts_halves(self) -> bool:
        """vcvtb, vcvtt."""
        return self._has("fp16")

    def fence_streams(self, w: Writer) -> None:
        """Stores are hints at most; the order of memory is what others rely on."""
        w.emit("fence release")

    @property
    def float_mode(self) -> FloatMode | None:
        return _STATUS
