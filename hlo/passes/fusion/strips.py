"""Strips: columns of what a group's reductions reduce, as many side by side as lanes run over.

    group, reduction, reduced dimensions --fits_strips--> whether its kernel's loops run over strips

The stages of a strip share what the cache holds of it, so columns may not be long; and there have
to be strips enough for all cores. Does not know: what a kernel of strips would compute again.
"""

from __future__ import annotations

from math import prod

from hlo.analysis.fusibility import MOST_SEARCHED, is_fusible, op_cost
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON, COMMON_LANES
from hlo.passes.fusion.axes import Group
from hlo.passes.fusion.repeats import COSTLY

# The longest columns of a strip: its stages share what the cache holds.
_MOST_REDUCED = COMMON.second_cache.bytes // 2048
_FEW_REDUCED = 256  # Columns up to this length may lie wherever they are.
# The longest columns of a strip that keeps what would else be computed again or written out.
_MOST_COSTLY = 4096
_MOST_ALONE = 1 << 17  # Elements that a core or two may have to reduce.
_LEAST_STRIPS = 8  # For more elements there have to be so many strips, enough for all cores.


def fits_strips(group: Group, producer: Instruction, reduced: list[int], columns: int) -> bool:
    """Whether columns of a strip stay in the cache, and strips are enough for all cores."""
    length = prod(group.dims[d] for d in reduced)
    if length > _most_reduced(group, reduced) and not (
        length <= _MOST_COSTLY and _reduces_costly(producer)
    ):
        return False
    return length * columns <= _MOST_ALONE or columns >= _LEAST_STRIPS * COMMON_LANES


def _most_reduced(group: Group, reduced: list[int]) -> int:
    """How long the columns of a strip may be, so that their lines stay in the cache together.

    Reductions that share a kernel add in another order than alone: no one machine's caches decide.
    """
    row = prod(group.dims[max(reduced) + 1 :]) if reduced else 1
    stride = max(1, row * group.root.shape.dtype.item_bytes)
    cache = COMMON.second_cache
    lines = cache.ways * cache.sets_of(stride)
    return max(_FEW_REDUCED, min(_MOST_REDUCED, lines))


def _reduces_costly(producer: Instruction) -> bool:
    """Whether the reduction behind a producer is of elements that cost much, of use elsewhere
    too."""
    stack, seen, reduction = [producer], 0, None
    while stack and seen < MOST_SEARCHED:
        top = stack.pop()
        seen += 1
        if reduction is None and top.opcode == "reduce":
            stack, reduction = list(top.operands[:1]), top
            continue
        if reduction is not None and top.shape.size < reduction.operands[0].shape.size:
            continue
        if reduction is not None and len(top.users) > 1 and op_cost(top) >= COSTLY:
            return True
        stack += [o for o in top.operands if is_fusible(o)]
    return False
