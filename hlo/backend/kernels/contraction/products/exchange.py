"""Exchange: a product of few columns whose rows lie across memory, its factors exchanged.

    Contraction --is_exchanged--> whether its rows had better be the columns

A tile of rows that lie across memory (lhs[k, m] with m innermost) takes a part of a line at every
depth. Lines that a power of two is between share few sets of the caches: when the next tile reads
on in them, they have gone, and each is fetched again. As columns the same factor is packed in long
stretches of a depth (a depth-first plan), and the few columns are rows of tiles. The result is then
written across memory: it is small beside what is read. Zen 3, two threads, f32, of the time
without: 2048x64x2048 and 2048x128x2048 0.4 to 0.6, 2048x4x2048 0.45, 3072x100x768 0.6 to 0.75.
"""

from __future__ import annotations

from hlo.backend.kernels.contraction.problem.axes import Contraction, reach
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain
from hlo.backend.kernels.contraction.products.cache_sets import SPREAD
from hlo.backend.kernels.contraction.products.planning import DEPTH_FIRST_ROWS, LARGE_BYTES
from hlo.machine import COMMON

LEAST_READ = 4  # Numbers of lhs that are read for each of the result's.


def is_exchanged(c: Contraction, ring: Ring) -> bool:
    """Whether the product is made with lhs and rhs exchanged: the same for machines of all caches,
    as it says how depth is cut. Integers multiply so slowly that lines arrive meanwhile.
    """
    if not ring.rounds or c.is_diagonal or len(c.rows) != 1 or len(c.depth) != 1:
        return False
    factors = (c.lhs, c.rhs)
    is_in_place = all(is_plain(f.dtype, ring) and f.prologue is None for f in factors)
    if not is_in_place or c.rows[0].lhs != 1:
        return False
    is_narrow = c.n <= DEPTH_FIRST_ROWS and c.n < c.m and LEAST_READ * c.n <= c.k
    is_large = reach(c, "lhs") * c.lhs.dtype.item_bytes >= LARGE_BYTES
    return is_narrow and is_large and _drives_out(c)


def _drives_out(c: Contraction) -> bool:
    """Whether the lines of a tile's depths drive each other out of both caches."""
    first, second = COMMON.first_cache, COMMON.second_cache
    step_bytes = abs(c.depth[0].lhs) * c.lhs.dtype.item_bytes
    return first.sets_of(step_bytes) < SPREAD and second.sets_of(step_bytes) * second.ways < c.k
