"""Computed columns: whether a blocked product computes a factor while it packs it.

Contraction, Ring --packs_computed--> yes, or a kernel before the product stores the factor
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.matrix_units.amx import tile_plan
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.backend.kernels.contraction.words.words import has_words


def packs_computed(c: Contraction, ring: Ring) -> bool:
    """Whether columns are packed as numbers of the ring, by reading neighbours in memory: along the
    free set, or along depth in squares.
    """
    if c.is_diagonal or c.k == 0 or has_words(c, ring) or tile_plan(c, ring) is not None:
        return False
    packing = planned(c, ring).rhs_packing
    is_turned = packing.is_turned and not packing.is_in_vectors
    return packing.source.is_free_contiguous or is_turned
