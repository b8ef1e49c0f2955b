"""Reduction parts: into how many parts a long reduction with few results is cut.

Asked of every reduction; what cuts them (reduction_splitting.py) is for those that are long.
"""

from __future__ import annotations

from math import prod

from hlo.indexing.reductions import reduction_dims
from hlo.ir.instruction import Instruction

_PART = 16 * 1024  # Elements that one part reduces at least.
_PARTS = 64  # So many parts are enough.
_RESULTS = 2 * 1024  # With so many results there is parallelism without parts.
_TALL_BYTES = 1 << 22  # A reduction over columns that reads so much is worth parts of its rows.
_TALL_PARTS = 16
_TALL_ROWS = 128  # The fewest rows of such a part.
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
    if is_tall and results <= _NARROW and x.shape.size >= _NARROW_SIZE:
        return min(_TALL_PARTS, length // _TALL_ROWS)
    if x.shape.size * x.shape.dtype.item_bytes < _TALL_BYTES:
        return 1
    if not is_tall or prod(x.shape.dims[: reduced[0]]) >= _LEADING or _meets_reductions(reduce):
        return 1
    return min(_TALL_PARTS, length // _TALL_ROWS)


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
