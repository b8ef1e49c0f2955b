"""Shares: arrays of which the thread that runs some of a kernel's units meets that part alone.

Threads claim the units of what is met again (lowering.is_met_again) at a loop's two ends, so that
a thread gets about the same share of every such loop. Where units go along an array from its begin
to its end, what an earlier loop wrote of it is in the cache of the thread that reads it, or near
its edge.
"""

from __future__ import annotations

from math import prod

from hlo.backend.kernels.outputs import Output
from hlo.backend.kernels.part import Part
from hlo.backend.loops.expression import Expression
from hlo.indexing import affine
from hlo.indexing.affine import Expr

_ALL = 0.9  # of an array, from which it is walked along, but for an edge


def own_leaves(
    expression: Expression, outputs: list[Output], parts: list[Part], operand_leaves: int
) -> frozenset[int]:
    """Places in the table of operands and results that every part walks along, unit by unit."""
    leaves = expression.leaves.values()
    sizes = {leaf.number: leaf.size for leaf in leaves if 0 <= leaf.number < operand_leaves}
    found = {*range(operand_leaves), *(operand_leaves + o.leaf for o in outputs)}
    for part in parts:
        index = part.index([affine.of(v) for v in part.variables])
        walks = [(r.leaf, r.position, sizes[r.leaf]) for r in part.trace.reads if r.leaf in sizes]
        walks += [(operand_leaves + o.leaf, o.place(index), prod(o.dims)) for o in part.outputs]
        found -= {leaf for leaf, place, size in walks if not _is_walked(part, place, size)}
        found -= {operand_leaves + o.leaf for o in part.outer}
    return frozenset(found)


def _is_walked(part: Part, place: Expr, size: int) -> bool:
    """Whether the units' outermost variable goes through the part's share of an array."""
    share = size * part.size / prod(part.outputs[0].dims)
    if not part.variables:
        return share <= 1  # a corner
    if part.tile is not None or (part.strip and part.block):
        return False
    if part.prefix == 0 and len(part.variables) > 1:
        return False
    step = place.coefficient(part.variables[0])
    return step is not None and step * part.extents[0] >= _ALL * share
