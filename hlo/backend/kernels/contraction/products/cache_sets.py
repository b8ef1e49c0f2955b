"""Cache sets: over which sets of the first-level cache the rows of a tile lie, read in place.

Packing of an lhs --is_spread--> whether they stay there    --rows_that_fit--> how many do

Rows whose distance is a multiple of a cache's way share a set: more of them than it has ways drive
each other out, so that every element comes from the second level.
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.microkernels.tile_shape import MOST_ROWS
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.machine import COMMON

SPREAD = 4  # The fewest sets over which rows of a tile lie without driving each other out.
LEAST_DEPTH = 256  # From so many depths on a tile comes to the same sets again and again.


def is_spread(packing: Packing) -> bool:
    """Whether the rows of a tile lie along depth and in different sets of the first-level cache."""
    source = packing.source
    if not packing.by_rows or len(source.depth) != 1 or len(source.free) != 1:
        return False
    return _sets(packing) >= SPREAD


def rows_that_fit(packing: Packing) -> int:
    """The most rows of a tile that stay in their sets, of which columns take a quarter; for rows
    that lie along depth.
    """
    if is_spread(packing) or not packing.source.free or packing.source.depth_size < LEAST_DEPTH:
        return MOST_ROWS
    return max(1, _sets(packing) * COMMON.first_cache.ways * 3 // 4)


def _sets(packing: Packing) -> int:
    """The sets over which rows are spread; those of less than a line lie in all."""
    lines = packing.source.free[0][1] * packing.source.number_bytes // COMMON.line_bytes
    return COMMON.first_cache.sets_of(max(lines, 1) * COMMON.line_bytes)
