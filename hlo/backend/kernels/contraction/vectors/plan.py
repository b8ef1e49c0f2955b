"""Vector plan: which contractions of few rows stream the other factor, and how their sums are cut.

    Contraction, Ring --streams--> whether it is one;  --is_dots, streams_columns--> which form;
    --at_once, chains, dots_cut--> its sums

Everything follows from shapes and COMMON, so that bits are the same for machines of all caches.
"""

from __future__ import annotations

from math import prod

from hlo.analysis.factors import ROWS_AT_ONCE, STREAMED_ROWS
from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.problem.axes import Contraction, extent, merged, only
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain
from hlo.backend.kernels.contraction.problem.sum_blocks import (
    BLOCK,
    FEW,
    Cut,
    block_sizes,
    chain_of,
    cut_of,
)
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
from hlo.backend.kernels.contraction.words.words import has_words
from hlo.machine import CHOICES, COMMON

# From so many rows on columns of another type, or along depth, are best packed once, where they
# can.
TILED_ROWS = 2
TILED_COLUMNS = 8  # From so many on matrix units serve, where no words do.
WORDS_ROWS = 8  # More are served better by words of dot products, or by tiles.
# More than so many meet columns of their own type as tiles of long vectors, which pack as they
# multiply. Zen 5, two threads, 14 and 16 rows of f32 and f64: 0.72 to 0.9 of the time; on AVX2, 16
# rows of f32, 1.05.
PACKED_ROWS = 12
PACKED_VECTOR = 64  # Bytes.
# A larger matrix comes from memory. It decides in which order terms are added, and so do the next
# two, so that all ask COMMON's caches.
STREAMED_BYTES = COMMON.last_cache.bytes
# Panels of a larger matrix along depth are read no faster than it is. In a loop, two matrices of
# 32 x 32 to 256 x 256 numbers and 2 to 16 rows take 0.36 to 0.92 of the time, of 512 x 512 0.8 to
# 1.1.
PANELS_BYTES = COMMON.second_cache.bytes // 2
# Panels of columns that a loop keeps, which lie in rows: Zen 5, two threads, in a loop, 1024 x 1024
# numbers of f32 and one row 0.84, four rows 0.75 of the time, 1500 x 1500 0.96, 2048 x 2048 1.05.
LARGE_PANELS_BYTES = 2 * COMMON.last_cache.bytes
CHUNK_BYTES = COMMON.first_cache.bytes // 2  # Of sums that stay in the first cache.
DEPTHS = COMMON.first_cache.ways  # Rows of the matrix that are added to these at a time.
LEAST_UNITS = 4
ACROSS = 3  # About how many products as many lanes take as the sum over a vector's lanes.
# Rows for each vector of depth from which on columns are turned for tiles, less one; where these
# are of other types; where registers hold fewer sums of dots. A matrix is no larger.
TURNED_ROWS, OTHER_ROWS, CROWDED_ROWS = 5, 3, 2
TURNED_BYTES = COMMON.second_cache.bytes
SPARE = 4  # Registers of a complex number of the matrix, as it lies and taken apart.
DOTS_BLOCK = 32  # Vectors along depth that are added one after the other.


def most_rows(c: Contraction, ring: Ring) -> int:
    """The most rows for which the other factor is streamed."""
    is_served = has_words(c, ring) or tiles_of(c, ring) is not None
    return WORDS_ROWS if is_served else STREAMED_ROWS


def most_columns(c: Contraction, ring: Ring) -> int:
    """The most columns that are turned to be such rows: tiles pack rows along depth as they meet
    them. Emerald Rapids, two threads, eight columns of bf16: tiles take 0.5 to 0.8 of the time.
    """
    is_tiled = not has_words(c, ring) and tiles_of(c, ring) is not None
    return TILED_COLUMNS - 1 if is_tiled else most_rows(c, ring)


def streams(c: Contraction, ring: Ring) -> bool:
    """Whether few rows are met by the other factor as it is read; else the blocked product is
    better.
    """
    if c.m > most_rows(c, ring) or c.k < ring.lanes or c.is_diagonal or ring.rows > 1:
        return False
    if c.rhs.joined is not None:  # words of it stand in no memory
        return False
    if c.lhs.apart:  # dots alone read such a copy, which is made for them
        return True
    is_run = len(merged(only(c.columns, "out"))) <= 1
    is_across = is_dots(c, ring) and not _is_short(c, ring)
    return is_run and (is_across or streams_columns(c, ring))


def _is_short(c: Contraction, ring: Ring) -> bool:
    """Whether so many rows meet each vector of depth that their sums over lanes take longer than
    turning columns, which tiles meet then. Vectors of rows and columns of another type, and of
    complex numbers, cost each sum more.

    Zen 4, one thread, thousands of matrices of 16 and 64 columns, of the time of dots: f32, 16
    depths by 4 to 16 rows 0.73 to 0.49, 32 by 16 0.77; f64, 8 by 4 to 16 0.9 to 0.62; 16 depths by
    3 to 8 rows f16 0.88 to 0.48, bf16 0.58 to 0.32, bytes 0.59 to 0.35, c64 0.57 to 0.45; with
    AVX2, f32, 8 by 4 to 16 0.59 to 0.43, 16 by 4 to 16 0.85 to 0.5, 32 and 64 by 16 0.6, c64 0.73
    to 0.86, with SSE 0.5 to 0.92.
    """
    vectors = -(-c.k // ring.lanes)
    is_own = ring.parts == 1 and all(is_plain(f.dtype, ring) for f in (c.lhs, c.rhs))
    least = TURNED_ROWS * vectors - 1 if is_own else OTHER_ROWS * vectors
    if ring.registers == min(CHOICES["registers"]):
        least = max(TURNED_ROWS - 1 if is_own else OTHER_ROWS, CROWDED_ROWS * vectors)
    is_read = len(c.depth) == 1 and c.lhs.prologue is None and c.rhs.prologue is None
    return is_read and c.m >= least and c.n * c.k * c.rhs.dtype.item_bytes <= TURNED_BYTES


def streams_columns(c: Contraction, ring: Ring) -> bool:
    """Whether few rows meet a matrix whose rows are the columns' runs, and that is large or of
    another type, or computed."""
    if c.m > most_rows(c, ring) or c.is_diagonal or len(c.columns) != 1 or len(c.depth) != 1:
        return False
    (columns,) = c.columns
    if c.m > PACKED_ROWS and _is_packed(c, ring):
        return False
    is_large = _elements(c) * c.rhs.dtype.item_bytes >= STREAMED_BYTES
    # Tiles read numbers of their own type where they lie; others would be packed, to be read once.
    return (
        (is_large or _is_converted(c, ring))
        and columns.rhs == 1
        and is_result_run(c)
        and c.n >= (4 if c.rhs.prologue is not None else 8) * ring.lanes
    )


def _is_packed(c: Contraction, ring: Ring) -> bool:
    """Whether tiles of long vectors pack columns, which lie in rows, as they multiply."""
    is_long = ring.lanes * ring.scalar_bytes >= PACKED_VECTOR and ring.parts == 1
    is_read = is_plain(c.rhs.dtype, ring) and c.rhs.prologue is None
    return is_long and is_read and ring.target.isa.assembly(ring.scalar) is not None


def streams_panels(c: Contraction, ring: Ring) -> bool:
    """Whether panels of columns that would be streamed, made once and in the ring's numbers, are
    better: of columns of another type, along depth, or large.
    """
    return not c.lhs.apart and (
        _is_converted_alone(c, ring) or _is_along_depth_alone(c, ring) or _is_large_alone(c, ring)
    )


def _is_converted_alone(c: Contraction, ring: Ring) -> bool:
    """Whether columns are streamed for their type alone: panels of them, if they are made once, are
    better, as every group of rows converts what it meets again. One row reads less so, but of
    panels of words.
    """
    is_near = _elements(c) * ring.scalar_bytes < STREAMED_BYTES
    is_many = (c.m >= TILED_ROWS or has_words(c, ring)) and c.rhs.prologue is None
    return is_near and is_many and _is_converted(c, ring) and streams_columns(c, ring)


def _is_along_depth_alone(c: Contraction, ring: Ring) -> bool:
    """Whether columns are streamed for lying along depth alone: panels of them, if they are made
    once, have a sum in each lane, where several rows would add many lanes up.
    """
    is_near = _elements(c) * ring.scalar_bytes <= PANELS_BYTES
    return is_near and c.m >= TILED_ROWS and is_dots(c, ring)


def _is_large_alone(c: Contraction, ring: Ring) -> bool:
    """Whether columns are streamed for being large alone: panels of them, if they are made once,
    are runs of memory that a thread reads from end to end.
    """
    is_other = _is_converted(c, ring) or is_dots(c, ring)
    is_near = _elements(c) * ring.scalar_bytes < LARGE_PANELS_BYTES
    return is_near and not is_other and streams_columns(c, ring)


def _is_converted(c: Contraction, ring: Ring) -> bool:
    """Whether the columns are computed, or numbers of another type, of which no words are made: not
    for one row, which does with a column what making words of it would take.
    """
    is_other = not is_plain(c.rhs.dtype, ring) and (c.m == 1 or not has_words(c, ring))
    return is_other or c.rhs.prologue is not None


def _elements(c: Contraction) -> int:
    """Of the columns."""
    return extent(tuple(a for a in c.batch if a.rhs)) * c.k * c.n


def column_blocks(c: Contraction, ring: Ring) -> int:
    """Blocks of columns whose sums, of all rows, stay in the first cache."""
    return -(-c.m * c.n * ring.parts * ring.scalar_bytes // CHUNK_BYTES)


def is_turned(c: Contraction, ring: Ring) -> bool:
    """Whether few columns meet many rows that run along depth: with the factors exchanged these are
    dots, after a copy of the columns along depth. Tiles of them would leave most lanes empty.
    """
    if not 0 < c.n <= min(most_columns(c, ring), c.m) or c.is_diagonal:
        return False
    if len(merged(only(c.rows, "out"))) != 1 or not c.depth:
        return False
    inner = c.depth[-1]
    if inner.lhs != 1 or inner.size < ring.lanes or at_once(c.swapped, ring) == 0:
        return False
    vectors = c.k // inner.size * -(-inner.size // ring.lanes)
    return c.n * (vectors + ACROSS) <= c.k


def is_result_run(c: Contraction) -> bool:
    """Whether results of a row follow each other, or are so few beside the matrix that each may be
    written alone.
    """
    return c.columns[0].out == 1 or c.m <= ROWS_AT_ONCE


def writes_apart(c: Contraction, ring: Ring) -> bool:
    """Whether columns that are streamed in runs are written apart."""
    is_apart = bool(c.columns) and c.columns[-1].out != 1 and bool(c.depth)
    return is_apart and not is_dots(c, ring)


def lies_across(c: Contraction, ring: Ring) -> bool:
    """Whether few columns meet many rows that lie across depth: with the factors exchanged these
    are columns in runs, which may be streamed, and the result is written across. Tiles would leave
    most lanes empty. Zen 5, two threads, 2 to 6 columns, in turns: f32 0.73 to 0.87 of the time,
    f64 0.55, c64 0.41, bf16, f16 and bytes 0.17 to 0.41 (two columns of bf16 of 1000 x 1000 0.99).
    """
    if not 1 < c.n <= min(ROWS_AT_ONCE, c.m) or len(c.rows) != 1 or c.rhs.prologue is not None:
        return False
    (rows,) = c.rows
    return rows.lhs == 1 and c.m >= 8 * ring.lanes and c.lhs.prologue is None


def dots_rows(c: Contraction, ring: Ring) -> list[range]:
    """Rows that columns along depth meet together, the rest while these are in the first cache: of
    complex numbers so many that registers hold both parts of them and of two columns' sums.

    Zen 4, two threads, c64, 2048 x 1024 numbers: 6, 8 and 12 rows 0.93, 0.83, 0.87 of the time with
    six at once and one column, four rows 0.91, of c128 0.79.
    """
    if ring.parts == 1:
        return row_groups(c.m)
    return row_groups(c.m, (ring.registers - SPARE) // (3 * ring.parts))


def row_groups(rows: int, most: int = ROWS_AT_ONCE) -> list[range]:
    """So many rows in groups of as many, most at most."""
    groups = max(1, -(-rows // most))
    size = -(-rows // groups)
    return [range(first, min(first + size, rows)) for first in range(0, rows, size)] or [range(0)]


def at_once(c: Contraction, ring: Ring) -> int:
    """Columns of one step of `dots`: a power of two whose sums fit the registers, those of complex
    numbers beside both parts of all rows, unless it is one; 0 if none.
    """
    rows, registers = len(dots_rows(c, ring)[0]) * ring.parts, ring.registers
    limit = (24 if registers == 32 else 12) // rows
    if ring.parts > 1:
        limit = min(limit, max(1, (registers - SPARE) // rows - 1))
    if limit == 0:
        return 0
    fitting = 1 << (limit.bit_length() - 1)
    return min(8, ring.lanes, fitting, 1 << (c.n - 1).bit_length())


def chains(c: Contraction, ring: Ring) -> int:
    """Sums that one result is made of, which take vectors turn by turn: few results would wait for
    their own additions.
    """
    sums = len(dots_rows(c, ring)[0]) * at_once(c, ring) * ring.parts
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
    """Whether both factors run along depth, of which a product of single numbers has none."""
    if not c.depth:
        return False
    inner = c.depth[-1]
    along = inner.lhs == 1 and inner.rhs == 1 and inner.size >= ring.lanes
    return along and at_once(c, ring) > 0


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
