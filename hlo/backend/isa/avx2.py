"""AVX2, and what came with it: FMA, F16C."""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.assembly import Assembly
from hlo.backend.isa.dot_products import (
    VEX,
    DotProduct,
    pairs_of_s16,
    quads_of_8_bits,
    words_of_kinds,
)
from hlo.backend.isa.sse import Sse
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

_REGISTER = "<8 x float>"
_KINDS = {"float": "s", "double": "d"}
# What multiplies words of elements that AVX-VNNI does not.
_KINDS_OF_WORDS = {
    (dt.S8, dt.S8): "avxvnniint8",
    (dt.U8, dt.U8): "avxvnniint8",
    (dt.U16, dt.S16): "avxvnniint16",
    (dt.U16, dt.U16): "avxvnniint16",
}


class Avx2(Sse):
    """Vectors of 32 bytes."""

    @property
    def lookup_lanes(self) -> int:
        return 8 if self._has("avx2") else 0

    @property
    def picked_at_once(self) -> int:
        return 1 if self.lookup_lanes else 0

    def looks_up(self, rows: int, entries: int) -> bool:
        """A row of two registers takes two permutations and a blend; of four it takes as long as
        the logarithm's formula, twice as long with the other row.
        """
        return 0 < entries <= 2 * self.lookup_lanes

    def picked(self, w: Writer, source: tuple[Value, ...], index: Value) -> Value | None:
        if len(source) > 1 or source[0].type != _REGISTER or not self._has("avx2"):
            return None
        (table,) = source
        return w.intrinsic("llvm.x86.avx2.permps", table.type, table, index, suffix="-")

    @property
    def masks_loads(self) -> bool:
        return self._has("avx2")

    @property
    def fuses(self) -> bool:
        return self._has("fma")

    @property
    def divides_slowly(self) -> bool:
        """10 cycles, of f64 16 (hlo/backend/emitters/exact_division.py)."""
        return self.fuses

    @property
    def converts_halves(self) -> bool:
        return self._has("f16c")

    def dot_product(self, lhs: DType, rhs: DType) -> DotProduct | None:
        if self.machine.vector_bytes != 32 or not self._has("avx2"):
            return super().dot_product(lhs, rhs)
        if (lhs, rhs) not in ((dt.S16, dt.S16), (dt.U8, dt.S8)):
            needed = _KINDS_OF_WORDS.get((lhs, rhs))
            return words_of_kinds(lhs, rhs) if needed and self._has(needed) else None
        is_wide = self._has("avx512vnni", "avx512vl")
        adds, prefix = is_wide or self._has("avxvnni"), "" if is_wide else VEX
        if lhs is dt.U8:
            return quads_of_8_bits(32, prefix) if adds else None
        accumulate = "llvm.x86.avx512.vpdpwssd.256" if adds else ""
        return pairs_of_s16(32, "llvm.x86.avx2.pmadd.wd", accumulate, prefix)

    def assembly(self, scalar: str) -> Assembly | None:
        return self._assembly("ymm", 32, scalar)

    def _assembly(self, wide: str, size: int, scalar: str) -> Assembly | None:
        """Tiles that multiply and add at once, in vectors of the size that kernels use."""
        serves = self.fuses and self.machine.vector_bytes == size and scalar in _KINDS
        return Assembly(wide, _KINDS[scalar]) if serves else None
