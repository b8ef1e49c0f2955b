"""Scatters that compute their updates where they combine them: which fusions are such ones.

    fusion(x, indices, ..), kind=kInput, whose root is scatter(x, indices, updates of ..)

One array of real numbers of which nothing is rounded in between; x and the indices are parameters,
and nobody else in there reads x, for it is written meanwhile. Updates are made of cheap elements.
"""

from __future__ import annotations

from hlo.analysis.fusibility import MOVEMENT, is_elementwise, is_fusible
from hlo.indexing.queries import written_dims
from hlo.ir.dtype import F32
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS

LEAST_ROW = 4  # Elements of a row that are worth lanes.


def computed_scatter(fusion: Instruction) -> Instruction | None:
    """The scatter that is the root of a fusion of this form."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kInput":
        return None
    (callee,) = fusion.called_computations()
    return callee.root if is_computing(callee.root) else None


def is_computing(scatter: Instruction) -> bool:
    """Whether a scatter of a fusion's parameters, and of updates of them, has a kernel with all
    that the updates are computed from.
    """
    if scatter.opcode != "scatter" or len(scatter.operands) != 3:
        return False
    x, indices, updates = scatter.operands
    dtype = x.shape.dtype
    if x.opcode != "parameter" or indices.opcode != "parameter" or updates.opcode == "parameter":
        return False
    if dtype.is_complex or (dtype.is_float and dtype.bits < F32.bits) or scatter.shape.is_dynamic:
        return False
    if set(x.users) != {scatter} or updates.shape.dtype is not dtype:
        return False
    return all(map(_is_cheap, computed_from(updates)))


def has_rows(scatter: Instruction) -> bool:
    """Whether neighbours in the updates are neighbours in the operand, enough of them for lanes."""
    if len(scatter.operands) != 3 or not scatter.shape.rank:
        return False
    updates = scatter.operands[2].shape
    return written_dims(scatter)[-1] == updates.rank - 1 and updates.dims[-1] >= LEAST_ROW


def _is_cheap(member: Instruction) -> bool:
    """Whether its elements are moved, or computed in a few cycles."""
    if member.opcode in ("parameter", "constant"):
        return member.shape.is_array
    if member.shape.dtype.is_complex or not is_fusible(member):
        return False
    if is_elementwise(member):
        cost = OPS[member.opcode].cost
        return not cost.is_high or cost.divides
    return member.opcode in MOVEMENT
