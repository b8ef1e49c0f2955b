"""Which matrix units' product a contraction is.

Contraction, Ring --tiles_of--> TileProduct, whose elements hold the factors' numbers
"""

from __future__ import annotations

from hlo.backend.isa.amx import TileProduct
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.elements import holds
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.ir import dtype as dt

# Elements of lhs and rhs, in the order in which they are tried.
_BYTES = (dt.S8, dt.U8)
_KINDS = (*((a, b) for a in _BYTES for b in _BYTES), (dt.BF16, dt.BF16), (dt.F16, dt.F16))


def tiles_of(c: Contraction, ring: Ring) -> TileProduct | None:
    """The product of elements that hold the operands' numbers, whose sums are the ring's."""
    if ring.parts > 1 or ring.result.is_pred:
        return None
    for lhs, rhs in _KINDS:
        found = ring.target.isa.tile_product(lhs, rhs)
        is_held = holds(lhs, c.lhs.dtype) and holds(rhs, c.rhs.dtype)
        if found and found.sums == ring.scalar and is_held:
            return found
    return None
