"""Target: what the machine's vectors are, as far as kernels need to know.

Chosen by features, never by the CPU's name (a hypervisor may mask it: BACKEND_FACTS.md 1).
"""

from __future__ import annotations

from msgspec import Struct

from hlo.ir.dtype import DType


class Target(Struct, frozen=True):
    """vector_bytes: 64 with AVX-512, 32 with AVX2, 16 otherwise. features:
    LLVM's names that are on. marks: lines of IR say which instruction they come from.
    """

    triple: str
    features: frozenset[str]
    vector_bytes: int
    mode: str = "strict"  # or "fast": HLO's numerics modes (ARCHITECTURE 9)
    marks: bool = False

    def has(self, feature: str) -> bool:
        return feature in self.features

    def lanes(self, dtype: DType) -> int:
        """Elements of one full vector of the type; small types are counted as f32 (they compute
        so).
        """
        return self.vector_bytes // max(4, dtype.component.item_bytes)
