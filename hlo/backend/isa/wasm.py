"""WebAssembly: vectors of 16 bytes (SIMD128), on whatever processor the engine runs.

Nothing fuses a product and a sum, flushes subnormal numbers, gathers or masks memory. f32x4.min and
max are IEEE's minimum and maximum; f32x4.nearest rounds to even; i8x16.swizzle takes bytes of one
vector, which is too little for tables. Source: WebAssembly Core Specification 2.0, 4.3.3.
"""

from __future__ import annotations

from hlo.backend.isa.generic import Isa


class Wasm(Isa):
    """SIMD128 and saturating conversions."""

    @property
    def rounds(self) -> bool:
        """f32x4.nearest, ceil, floor, trunc, and the scalar ones that are in every engine."""
        return True

    @property
    def has_extremes(self) -> bool:
        """f32x4.min, f32x4.max: a NaN where either is one, +0 above -0."""
        return True

    @property
    def saturates(self) -> bool:
        """i32x4.trunc_sat_f32x4_s and _u."""
        return self._has("nontrapping-fptoint")
