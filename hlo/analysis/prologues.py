"""Prologues: factors that a product computes where it reads them, of arrays that lie in memory.

    dot(x, multiply(convert(w), broadcast(scale)))  --prologue_of-->  w, scale

An element of such a factor is arithmetic on elements of arrays (weights and their scales), at
places that index maps name; rows that a gather picks are one too.
"""

from __future__ import annotations

from itertools import islice

from hlo.analysis.factors import factor_of
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.table import Trait, opcodes

MOST_MEMBERS = 40  # What a factor may be computed by: the code stands in each place that reads it.
_ELEMENTWISE = opcodes(Trait.ELEMENTWISE)
MOST_JOINED = 4  # Arrays of which each is looked at where a seam between them is not seen.
_JOINS = opcodes(Trait.JOINS)
MOVES = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.CUTS | Trait.CUTS_AT | Trait.PICKS) | _JOINS


def prologue_of(operand: Instruction) -> tuple[Instruction, ...] | None:
    """The parameters that a product's factor is computed from; None where it is one itself, or a
    run of one, or computed by what no product can hold.
    """
    if factor_of(operand) is not None or not _is_plain(operand.shape):
        return None
    members = list(islice(computed_from(operand), MOST_MEMBERS + 1))
    if len(members) > MOST_MEMBERS or not all(map(_is_held, members)):
        return None
    arrays = [m for m in members if m.opcode == "parameter"]
    return tuple(sorted(arrays, key=_number)) or None


def _number(parameter: Instruction) -> int:
    number = parameter["parameter_number"]
    assert isinstance(number, int), "an INT64"
    return number


def _is_held(member: Instruction) -> bool:
    if not member.shape.is_array or member.shape.is_dynamic or member.shape.dtype.is_complex:
        return False
    if "control-predecessors" in member.attributes:
        return False
    if member.opcode == "constant":
        return member.shape.is_scalar
    if member.opcode in MOVES:
        (source, *_) = (o.shape for o in member.operands)
        is_same = source.size == member.shape.size or member.opcode != "bitcast"
        is_few = member.opcode not in _JOINS or len(member.operands) <= MOST_JOINED
        return bool(source.size) and is_same and is_few
    return member.opcode in ("parameter", "iota") or member.opcode in _ELEMENTWISE


def _is_plain(shape: Shape) -> bool:
    """Whether elements of whole bytes lie in the default order."""
    if not shape.is_array or not shape.rank or not shape.size or shape.is_dynamic:
        return False
    return shape == shape.without_layout() and shape.dtype.bits >= 8  # a byte
