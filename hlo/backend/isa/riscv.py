"""RISC-V: 64 bits, vectors of 16 bytes out of those of the V extension.

Vectors of a fixed length are what LLVM makes of the extension's, whose registers have 16 bytes at
least (Zvl128b); what longer ones could do is left. Nothing here gathers quickly, permutes by tables
or flushes subnormal numbers: fcsr has no such mode. Source: The RISC-V Instruction Set Manual,
Volume I: 20.6 and 21.6 (fmadd, fmin), 14 (fence), 30 (V).
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import Isa


class RiscV(Isa):
    """RV64GC and V."""

    @property
    def fuses(self) -> bool:
        """vfmadd, and fmadd with it."""
        return self._has("zve64d")

    @property
    def rounds(self) -> bool:
        """LLVM makes a few instructions of vfcvt with a rounding mode."""
        return self._has("zve64d")

    @property
    def converts_long_integers(self) -> bool:
        return self._has("zve64d")

    @property
    def has_long_extremes(self) -> bool:
        return self._has("zve64d")

    def extreme_number(self, w: Writer, x: Value, y: Value, *, is_maximum: bool) -> Value | None:
        """fmax, vfmax: +0 above -0, the number where one is a NaN."""
        if not self._has("zve64d"):
            return None
        name = "llvm.maximumnum" if is_maximum else "llvm.minimumnum"
        return w.intrinsic(name, x.type, x, y)

    def fence_streams(self, w: Writer) -> None:
        """Non-temporal stores are hints; the order of memory is what others rely on."""
        w.emit("fence release")
