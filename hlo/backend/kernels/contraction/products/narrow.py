"""Narrow products: few columns by many rows that run along depth, with a row in each lane.

    Contraction --is_narrow--> whether it is one;  of exchanged factors --planned_narrow--> its plan

A vector of few columns leaves lanes empty, and a sum over lanes for each result takes as long as
several products. With the factors exchanged a tile has all columns, and vectors of rows: a panel of
these is packed, squares of it turned in registers, just before it is met, and sums are turned back
as they are stored, so that both large arrays pass once from end to end. Two threads, of the time of
what serves else: Zen 5, 65,536 rows of f32, 3 to 8 columns and depths of 4 to 20, 0.43 to 0.88;
f16, bf16 and s32 0.23 to 0.5; AVX2 there, 3 to 6 columns, 0.41 to 1.0.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import is_cheap, of_tiles
from hlo.backend.kernels.contraction.vectors.plan import ACROSS, STREAMED_BYTES, is_turned
from hlo.backend.kernels.contraction.words.words import has_words
from hlo.backend.loops.vectors import MOST_INTERLEAVED, MOST_TURNS
from hlo.machine import COMMON

LEAST_VECTORS = 16  # Of rows.
MOST_VECTORS = 3  # Of rows in a tile.
LEAST_DEPTH = 4  # Fewer are picked out of stretches of memory by machines that do so at once.
PANEL_BYTES = COMMON.first_cache.bytes * 3 // 4  # Of more, a panel leaves no room beside it.
MOST_WORDS_DEPTH = 16  # More are faster as dot products of words, which some types have.
MOST_BYTES = 4  # Of a number: wider ones fill vectors sooner, and are turned two at a time.
# Instructions of a vector that a row takes beside its products, for each depth and each result.
TURNED_DEPTH, TURNED_RESULT = 5, 4


def is_narrow(c: Contraction, ring: Ring, epilogue: Epilogue | None) -> bool:
    """Whether rows had better be lanes. c: of factors that are not exchanged."""
    if not 1 < c.n <= min(MOST_TURNS, ring.lanes - 2) or c.m < LEAST_VECTORS * ring.lanes:
        return False
    if ring.parts * ring.scalar_bytes > MOST_BYTES or not _is_plain(c):
        return False
    least = 2 if ring.target.isa.picks(ring.vector) else LEAST_DEPTH
    most = PANEL_BYTES // (MOST_VECTORS * ring.lanes * ring.scalar_bytes)
    most = MOST_WORDS_DEPTH if has_words(c, ring) else most
    if not least <= c.k <= most or (epilogue is not None and _reads_rows(c, epilogue)):
        return False
    return not is_turned(c, ring) or _is_faster(c, ring)


def _is_plain(c: Contraction) -> bool:
    """Whether it is all of a product of two matrices, of which the first one's rows run along depth
    and the result's follow each other.
    """
    if c.is_diagonal or c.adds or c.bounded_side or not c.bands.is_all or c.zeros.has_depths:
        return False
    if len(c.rows) != 1 or len(c.columns) != 1 or len(c.depth) != 1:
        return False
    (rows,), (columns,), (depth,) = c.rows, c.columns, c.depth
    return rows.out == c.n and columns.out == 1 and depth.lhs == 1


def _reads_rows(c: Contraction, epilogue: Epilogue) -> bool:
    """Whether arrays like the result are read or written beside it, of which lanes would gather
    what is in rows of some length.
    """
    return bool(epilogue.further) or (bool(epilogue.in_place) and c.n > MOST_INTERLEAVED)


def _is_faster(c: Contraction, ring: Ring) -> bool:
    """Whether that is faster than sums over lanes, which read a matrix that comes from memory as
    fast as it does.
    """
    is_near = c.m * c.k * c.lhs.dtype.item_bytes < STREAMED_BYTES
    dots = c.n * (-(-c.k // ring.lanes) + ACROSS)
    return is_near and c.k * (c.n + TURNED_DEPTH) + c.n * TURNED_RESULT <= dots * ring.lanes


def planned_narrow(c: Contraction, ring: Ring) -> ProductPlan:
    """The plan of the exchanged factors: each unit packs a panel, and meets it with all columns.
    While it does the next one comes: with several panels a unit, products of a matrix that comes
    from memory take 1.1 to 1.5 times as long (Zen 5).
    """
    vectors = (ring.registers - 2) // (c.m + 1)
    plan = of_tiles(c, ring, c.m, max(1, min(MOST_VECTORS, vectors)))
    lhs = Reading.IN_PLACE if is_cheap(c.lhs.dtype) else Reading.IN_UNIT
    blocks = plan.columns.count
    return replace(plan, lhs=lhs, rhs=Reading.IN_UNIT, column_blocks=blocks, turns=True)
