"""Vector plan: which contractions of few rows stream the other factor, and how their sums are cut.

    Contraction, Ring --is_dots, streams_columns--> which form;  --at_once, chains, dots_cut--> its

Everything follows from shapes and COMMON, so that bits are the same for machines of all caches.
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.axes import Contraction, merged, only
from hlo.backend.kernels.contraction.ring import Ring, is_plain
from hlo.backend.kernels.contraction.sum_blocks import (
    BLOCK,
    FEW,
    Cut,
    block_sizes,
    chain_of,
    cut_of,
)
from hlo.machine import COMMON

MOST_ROWS = 8
# A larger matrix comes from memory. It decides in which order terms are added, and so does CHUNK,
# so that both ask COMMON's caches.
STREAMED_BYTES = COMMON.last_cache.bytes
LEAST_UNITS = 4
CHUNK = COMMON.first_cache.bytes // 8  # Columns whose sums stay in the first cache.
FILLED = 4  # Columns that take no more than this part of a vector's lanes leave tiles mostly empty.
LEAST_VECTORS = 4  # Vectors of depth from which sums across lanes cost little.
DOTS_BLOCK = 32  # Vectors along depth that are added one after the other.


def streams_columns(c: Contraction, ring: Ring) -> bool:
    """Whether few rows meet a large matrix whose rows are the columns' runs."""
    if c.m > MOST_ROWS or c.is_diagonal or len(c.columns) != 1 or len(c.depth) != 1:
        return False
    (columns,) = c.columns
    large = c.k * c.n * c.rhs.dtype.item_bytes >= STREAMED_BYTES
    return large and (columns.out, columns.rhs) == (1, 1) and c.n >= 8 * ring.lanes


def at_once(c: Contraction, ring: Ring) -> int:
    """Columns of one step of `dots`: a power of two whose sums fit the registers; 0 if none."""
    limit = (24 if ring.registers == 32 else 12) // (c.m * ring.parts * ring.parts)
    if limit == 0:
        return 0
    fitting = 1 << (limit.bit_length() - 1)
    return min(8, ring.lanes, fitting, 1 << (c.n - 1).bit_length())


def chains(c: Contraction, ring: Ring) -> int:
    """Sums that one result is made of, which take vectors turn by turn: few results would wait for
    their own additions.
    """
    sums = c.m * at_once(c, ring) * ring.parts
    most = min(4, max(1, 8 // sums), c.depth[-1].size // ring.lanes)
    return 1 << (most.bit_length() - 1)


def vector_sums(c: Contraction, ring: Ring) -> Sums:
    """How long chains of additions are in gemv.py's sums."""
    if is_dots(c, ring):
        across_lanes = ring.lanes.bit_length() - 1
        chain = ring.parts * _dots_chain(c, ring)
        joined = chains(c, ring).bit_length() - 1
        return Sums("dots", chain + joined + across_lanes)
    return Sums("axpys", ring.parts * min(c.k, BLOCK) + c.k // BLOCK + 2)


def is_dots(c: Contraction, ring: Ring) -> bool:
    """Whether both factors run along depth."""
    inner = c.depth[-1]
    along = inner.lhs == 1 and inner.rhs == 1 and inner.size >= ring.lanes
    return along and at_once(c, ring) > 0


def turned(c: Contraction, ring: Ring) -> Contraction | None:
    """The contraction with its few columns as rows, where dots serve it better than tiles: the
    columns that it then has lie at one distance in the result.
    """
    if not 1 < c.n <= ring.lanes // FILLED or c.m <= MOST_ROWS or c.is_diagonal:
        return None
    plain = is_plain(c.lhs.dtype, ring) and is_plain(c.rhs.dtype, ring)
    if not plain or c.k < LEAST_VECTORS * ring.lanes or len(merged(only(c.rows, "out"))) != 1:
        return None
    return c.swapped if is_dots(c.swapped, ring) else None


def _dots_counts(c: Contraction, ring: Ring) -> list[int]:
    """Rounds of the loops over depth: the innermost one runs over some vectors."""
    *outer, inner = [a.size for a in c.depth]
    return [*outer, -(-inner // (ring.lanes * chains(c, ring)))]


def _dots_chain(c: Contraction, ring: Ring) -> int:
    """The most additions that a lane's term goes through."""
    counts, cut = _dots_counts(c, ring), dots_cut(c, ring)
    if cut is None or cut.level < len(counts) - 1:
        return chain_of(counts, cut)
    sizes = block_sizes(cut.rounds, counts[-1])
    return cut.rounds + FEW * len(sizes) + prod(counts[:-1])


def dots_cut(c: Contraction, ring: Ring) -> Cut | None:
    """The first level of blocks."""
    counts = _dots_counts(c, ring)
    return cut_of(counts, DOTS_BLOCK) if ring.rounds else None
