"""Word plan: which contractions of few rows meet the other factor as words, as it is read.

Contraction, Ring --words_streamed--> StreamedWords (word_stream.py)
Contraction, Ring --dots_of_words--> Worded (word_dots.py)
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.factors import STREAMED_ROWS
from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK
from hlo.backend.kernels.contraction.vectors.plan import (
    WORDS_ROWS,
    is_dots,
    is_result_run,
)
from hlo.backend.kernels.contraction.words.words import (
    LEAST_DEPTH,
    LEAST_FLOPS,
    Worded,
    Words,
    beside_words,
    dot_product,
    in_words,
    product_of_rows,
)
from hlo.ir import dtype as dt

DOTS_ROWS = 2  # One takes no less time than to be read from memory.
LEAST_VECTORS = 4  # Of columns.
# One row of floats takes as long from memory without words, and two as long as with them, whose
# factors nobody checks; products of integers without words are two instructions of which one
# takes two slots.
LEAST_ROWS = {True: 3, False: 2}
# From so many rows on squares of words, of two rows by two columns, save more than it takes to copy
# the matrix for them: a vector of words is half a cycle a row here and a quarter there, by the
# rates of Cycles, and some two cycles to copy.
SQUARES_ROWS = 8


class StreamedWords(Struct, frozen=True):
    """A contraction of few rows that meets the other factor as words.

    contraction: lhs of words, of which each is as many depths of rhs as it has elements, rhs of
    elements as they lie; lhs: what makes its words.
    """

    contraction: Contraction
    ring: Ring
    lhs: Words


def words_streamed(c: Contraction, ring: Ring) -> StreamedWords | None:
    """The contraction for this kernel; None where another one is better."""
    if not LEAST_ROWS[ring.rounds] <= c.m <= STREAMED_ROWS or c.is_diagonal:
        return None
    if len(c.columns) != 1 or len(c.depth) != 1 or c.k < LEAST_DEPTH or c.flops < LEAST_FLOPS:
        return None
    (columns,) = c.columns
    is_run = columns.rhs == 1 and is_result_run(c) and c.n >= LEAST_VECTORS * ring.lanes
    if not is_run or not all(_is_read_fast(f.dtype) for f in (c.lhs, c.rhs)):
        return None
    blocked, _ = dot_product(c, ring)
    if blocked is not None and blocked.rows > 1 and c.m >= SQUARES_ROWS:
        return None
    dot, is_moved = product_of_rows(c, ring)
    found = beside_words(c, dot, is_moved=is_moved) if dot is not None else None
    if found is None:
        return None
    return StreamedWords(found[0], replace(ring, dot=dot), found[1])


def _is_read_fast(dtype: dt.DType) -> bool:
    """Whether elements of 16 bits are a load and at most a conversion of integers away."""
    return dtype is dt.BF16 or (dtype.is_integral and dtype.bits in (8, 16))


def word_stream_sums(c: Contraction) -> Sums:
    """How long chains of additions are."""
    return Sums("words of rows", min(c.k, BLOCK) + c.k // BLOCK + 2)


def dots_of_words(c: Contraction, ring: Ring) -> Worded | None:
    """The contraction on words for this kernel; None where another one is better."""
    if not DOTS_ROWS <= c.m <= WORDS_ROWS or not (c.lhs.dtype.bits == c.rhs.dtype.bits == 8):
        return None
    if not (c.lhs.dtype.is_integral and c.rhs.dtype.is_integral) or c.rhs.prologue is not None:
        return None
    worded = in_words(c, ring)
    if worded is None or worded.rhs.is_copied or worded.ring.rows > 1:
        return None
    if worded.contraction.m != c.m:  # exchanged, for results that lie along the rows
        worded = replace(worded, contraction=worded.contraction.swapped)
    return worded if is_dots(worded.contraction, worded.ring) else None
