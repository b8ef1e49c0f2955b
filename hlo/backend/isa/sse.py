"""SSE: what every x86-64 has, and what its vector extensions build on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.dot_products import DotProduct, pairs_of_s16
from hlo.backend.isa.generic import FloatMode, Isa
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

if TYPE_CHECKING:
    from hlo.backend.isa.amx import TileProduct


class _ControlStatus:
    """MXCSR. Masked exceptions are 0x1f80; flush to zero is bit 15, denormals are zeros bit 6; what
    was met is a denormal operand (bit 1) or an underflow (bit 4).
    """

    usual = 0x1F80
    flushing = 0x8040
    met = 0x0012

    def save(self, w: Writer, slot: Value) -> None:
        w.call_declared("llvm.x86.sse.stmxcsr", slot)

    def set(self, w: Writer, slot: Value) -> None:
        w.call_declared("llvm.x86.sse.ldmxcsr", slot)


_CONTROL_STATUS = _ControlStatus()


class Sse(Isa):
    """x86-64's own instructions."""

    @property
    def rounds(self) -> bool:
        """roundps, vrndscaleps; round half away from zero is a few instructions of LLVM's."""
        return self._has("sse4.1") or self._has("avx")

    @property
    def keeps_second(self) -> bool:
        return True

    def fence_streams(self, w: Writer) -> None:
        if self._has("sse2"):
            w.call_declared("llvm.x86.sse.sfence")

    def pause(self, w: Writer) -> None:
        w.call_declared("llvm.x86.sse2.pause")

    @property
    def float_mode(self) -> FloatMode | None:
        return _CONTROL_STATUS

    def tile_product(self, lhs: DType, rhs: DType) -> TileProduct | None:
        """AMX stands beside the vectors, whatever these are."""
        from hlo.backend.isa.amx import tile_product  # for products

        return tile_product(self.machine, lhs, rhs)

    def dot_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        is_known = (lhs, rhs) == (dt.S16, dt.S16)
        serves = is_known and self.machine.vector_bytes == 16 and self._has("sse2")
        return pairs_of_s16(16, "llvm.x86.sse2.pmadd.wd") if serves else None
