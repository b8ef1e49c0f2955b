"""Cache sets: over which sets of the first-level cache the rows of a tile lie, read in place.

Packing of an lhs --is_spread--> whether they are far apart there    --rows_that_fit--> how many fit
                  --stays--> whether a tile's rows stay in a machine's own cache

Rows whose distance is a multiple of a cache's way share a set: more of them than it has ways drive
each other out, so that every element comes from the second level. A few more are waited for less
long than they take to be copied. Emerald Rapids, 14 rows of one set of 12 ways, of the time of
copies: f32 of 512 to 1,024 cubed 0.97 to 0.99, 1,576 x 768 x 3,072 0.95, 3,152 x 1,280 x 5,120
0.95 (f64 of 1,024 cubed 1.03: a line has half as many numbers); 6 rows (AVX2) 0.89 to 0.97.
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.microkernels.tile_shape import MOST_ROWS
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.machine import COMMON, Machine

SPREAD = 4  # The fewest sets over which rows of a tile lie without driving each other out.
LEAST_DEPTH = 256  # From so many depths on a tile comes to the same sets again and again.


def is_spread(packing: Packing) -> bool:
    """Whether the rows of a tile lie along depth and in different sets of the first-level cache."""
    source = packing.source
    if not packing.by_rows or len(source.depth) != 1 or len(source.free) != 1:
        return False
    return _sets(packing, COMMON) >= SPREAD


def stays(packing: Packing, machine: Machine) -> bool:
    """Whether the rows of a tile lie along depth and stay in the first cache, in which they wait
    for the next columns, but for some that products hide: those of a line, fewer for wider numbers.
    """
    if not packing.by_rows or not packing.source.free:
        return False
    missed = machine.cycles.missed * 4 // packing.source.number_bytes
    return packing.panels.step <= _fitting(packing, machine) + missed


def rows_that_fit(packing: Packing) -> int:
    """The most rows of a tile that stay in their sets; for rows that lie along depth."""
    if is_spread(packing) or not packing.source.free or packing.source.depth_size < LEAST_DEPTH:
        return MOST_ROWS
    return max(1, _fitting(packing, COMMON))


def _fitting(packing: Packing, machine: Machine) -> int:
    """Rows that stay in their sets, of which columns take a quarter."""
    return _sets(packing, machine) * machine.first_cache.ways * 3 // 4


def _sets(packing: Packing, machine: Machine) -> int:
    """The sets over which rows are spread; those of less than a line lie in all."""
    lines = packing.source.free[-1][1] * packing.source.number_bytes // COMMON.line_bytes
    return machine.first_cache.sets_of(max(lines, 1) * COMMON.line_bytes)
