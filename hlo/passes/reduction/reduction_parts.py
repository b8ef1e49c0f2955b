"""Reduction parts: how many a long reduction with few results is cut into; which rows are short.

Asked of every reduction and every broadcast; what cuts them (reduction_splitting.py) is for those
that are long, and what puts rows side by side (broadcast_tiling.py) for those that are short.
"""

from __future__ import annotations

from math import prod

from hlo.indexing.reductions import reduction_dims
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON_LANES
from hlo.ops.table import attribute

_PART = 16 * 1024  # Elements that one part reduces at least.
_PARTS = 64  # So many parts are enough.
_RESULTS = 2 * 1024  # With so many results there is parallelism without parts.
_TALL_BYTES = 1 << 22  # A reduction over columns that reads so much is worth parts of its rows.
_TALL_PARTS = 16
_TALL_ROWS = 128  # The fewest rows of such a part.
_FEW_COLUMNS = 4  # So few are put together in registers.
_MANY_ELEMENTS = 4096  # Of rows that copies are worth making for.
_MANY_ROWS = 256  # The fewest of these that are worth a second reduction.
_NARROW = 64  # So few columns are one unit, whatever is made of their reductions.
_NARROW_SIZE = 1 << 18  # Elements from which a second thread gains more than waking it takes.
_LEADING = 16  # With so many indices kept before the rows there is parallelism without parts.
MOST_SEARCHED = 64  # Instructions before and after a reduction that are looked at.


def wanted_parts(reduce: Instruction) -> int:
    """How many parts there should be; 1: the reduction stays whole."""
    x, reduced = reduce.operands[0], reduction_dims(reduce).reduced
    results = reduce.shape.elements[0].size if reduce.shape.is_tuple else reduce.shape.size
    length = prod(x.shape.dims[d] for d in reduced)
    if results < _RESULTS and length >= 2 * _PART:
        return min(_PARTS, length * results // _PART)
    is_tall = bool(reduced) and x.shape.rank - 1 not in reduced
    is_leading = is_tall and prod(x.shape.dims[: reduced[0]]) == 1  # else rows are read otherwise
    columns = prod(x.shape.dims[max(reduced) + 1 :]) if is_leading else 1
    if _is_wasteful(columns, COMMON_LANES) and length >= _MANY_ROWS:
        return narrow_parts(x.shape.size)
    if is_tall and results <= _NARROW and x.shape.size >= _NARROW_SIZE:
        return min(_TALL_PARTS, length // _TALL_ROWS)
    if x.shape.size * x.shape.dtype.item_bytes < _TALL_BYTES:
        return 1
    if not is_tall or prod(x.shape.dims[: reduced[0]]) >= _LEADING or _meets_reductions(reduce):
        return 1
    return min(_TALL_PARTS, length // _TALL_ROWS)


def narrow_parts(size: int) -> int:
    """How many parts there should be of so many elements in rows of few columns."""
    return max(2, min(_TALL_PARTS, size // _PART))


def _is_wasteful(columns: int, lanes: int) -> bool:
    """Whether rows are shorter than a vector, or a third of two vectors is empty."""
    return 1 < columns < lanes or lanes < columns <= lanes + lanes // 3


def spreads_short_row(instruction: Instruction) -> bool:
    """Whether it spreads a row that fills no vector over many rows, and no short vector either."""
    if instruction.opcode != "broadcast" or instruction.operands[0].shape.rank != 1:
        return False
    shape, (columns,) = instruction.shape, instruction.operands[0].shape.dims
    lanes = COMMON_LANES * 4 // max(4, shape.dtype.item_bytes)
    return (
        columns > _FEW_COLUMNS
        and columns.bit_count() > 1
        and _is_wasteful(columns, lanes)
        and shape.dtype.is_float
        and shape.size >= _MANY_ELEMENTS
        and attribute(instruction, "dimensions") == (shape.rank - 1,)
    )


def _meets_reductions(reduce: Instruction) -> bool:
    """Whether what it reduces was made with another reduction's results, or its own are used beside
    elements of such a number: one kernel reads them once for both, or in its cache.
    """
    size = reduce.operands[0].shape.size
    stack, seen = [*reduce.operands], set(reduce.operands)
    while stack:
        top = stack.pop()
        if top.opcode == "reduce" or len(seen) > MOST_SEARCHED:
            return True
        stack += [o for o in top.operands if o not in seen]
        seen.update(top.operands)
    stack, seen = [reduce], {reduce}
    while stack:
        top = stack.pop()
        if (top.shape.is_array and top.shape.size >= size) or len(seen) > MOST_SEARCHED:
            return True
        stack += [u for u in top.users if u not in seen]
        seen.update(top.users)
    return False
