"""Lying rows: which rows of lhs tiles read where they lie in memory.

ProductPlan --rows_lie, rows_stay, windows_stay--> whether they need not be copied

A tile's rows are then equally far apart, and each is numbers of the ring, one after the other along
depth; the first cache has them again for each panel of columns (cache_sets.py).
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.problem.ring import is_plain
from hlo.backend.kernels.contraction.products.cache_sets import stays
from hlo.backend.kernels.contraction.products.depth_blocks import WINDOWS_WHOLE
from hlo.backend.kernels.contraction.products.plan import ProductPlan
from hlo.machine import COMMON, Machine

MOST_AXES = 3  # Of depth: each is a loop.
LEAST_WINDOW = 64  # Depths of a row of a window, each of which is a loop of its own.


def rows_lie(plan: ProductPlan) -> bool:
    """Whether the rows of a matrix are numbers of the ring, one after the other."""
    return _is_along(plan) and is_plain(plan.lhs_packing.source.dtype, plan.ring.factors)


def pairs_lie(plan: ProductPlan) -> bool:
    """The same of complex numbers, whose parts the ring has. Zen 4, c64, by 64 columns: rows of 512
    and of 1024 numbers 0.79 of the time with as many as stay in their sets.
    """
    return _is_along(plan) and plan.contraction.lhs.dtype.is_complex and plan.ring.parts == 2


def _is_along(plan: ProductPlan) -> bool:
    source = plan.lhs_packing.source
    return len(source.depth) == 1 and source.is_depth_contiguous and len(source.free) <= 1


def rows_stay(plan: ProductPlan, machine: Machine) -> bool:
    """Whether the rows of a matrix lie so, and stay in a machine's first cache."""
    return rows_lie(plan) and stays(plan.lhs_packing, machine)


def windows_stay(plan: ProductPlan) -> bool:
    """Whether windows of long rows do, for machines of all caches: they share memory, of which a
    copy has most several times. Tiles end with the rows of positions.

    Emerald Rapids, one thread, of the time with copies: 3 x 3 of 256 features, 14 x 14 positions
    0.86, dilated ones 0.87 to 0.94, 128 to 512 features by two places 0.93; what Zen 5's plan has
    of these 0.86, 0.87, 0.99.
    """
    c, packing = plan.contraction, plan.lhs_packing
    free, depth = packing.source.free, packing.source.depth
    is_even = len(free) <= 1 or free[-1][0] % plan.rows.step == 0
    return (
        1 < len(depth) <= MOST_AXES
        and depth[-1][0] >= LEAST_WINDOW
        and c.k <= WINDOWS_WHOLE
        and is_even
        and plan.ring.rows == 1
        and is_plain(c.lhs.dtype, plan.ring.factors)
        and stays(packing, COMMON)
    )
