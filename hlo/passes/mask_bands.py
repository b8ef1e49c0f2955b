"""Mask bands: the part of scores that a band of rows sees, as a copy of the region on slices.

Region, band --Band--> copies of its members with the band's rows and the columns that it sees
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo.analysis.column_facts import FAR, ORDINARY, Guard, What
from hlo.analysis.score_region import Region, Roles, operand_roles
from hlo.analysis.skipped_columns import Span, parts
from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, PRED, DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant, number_of, spread
from hlo.ops.movement import IotaAttributes
from hlo.passes.patterns.matching import literal_of

MOST_MOVES = 4  # Through which a band sees what is spread out.
LEAST_DIVISOR, LEAST_LOGARITHM = 2.0**-ORDINARY, -512.0


class Band:
    """Copies of a region's members; `seen`: rows, and the columns that they see."""

    def __init__(self, region: Region, seen: Span) -> None:
        self.region, self.seen = region, seen
        self.copies: dict[Instruction, Instruction] = {}
        self._parts: dict[tuple[Instruction, Roles], Instruction] = {}

    def copy(self, member: Instruction) -> Instruction:
        """The copy of a member whose operands in the region are copied."""
        roles = self.region.members[member]
        operands = [self._operand(member, n) for n in range(len(member.operands))]
        shape = self._cut(member.shape, roles)
        is_sum = roles.row is None and member.opcode == "dot" and shape.dtype.is_float
        if is_sum and shape.dtype.bits < F32.bits:
            shape = shape.with_dtype(F32)  # parts of a sum are rounded together
        if member.opcode == "iota":
            copy = self._iota(member, roles)
        else:
            assert member.computation is not None, "in a computation"
            copy = member.computation.new(
                member.opcode, shape, operands, member.attributes, like=member, name=member.name
            )
        self.copies[member] = copy
        return copy

    def _operand(self, member: Instruction, number: int) -> Instruction:
        operand, members = member.operands[number], self.region.members
        if operand in members:
            return self.copies[operand]
        roles = self.region.operand_roles(member, number)
        assert roles is not None, "a region's operands have roles"
        if (operand, roles) not in self._parts:
            self._parts[operand, roles] = self._part(operand, roles)
        return self._parts[operand, roles]

    def _cut(self, shape: Shape, roles: Roles) -> Shape:
        dims = list(shape.dims)
        if roles.row is not None:
            dims[roles.row] = self.seen.last - self.seen.first
        if roles.column is not None:
            dims[roles.column] = self.seen.end - self.seen.start
        return shape.with_dims(dims)

    def _part(self, operand: Instruction, roles: Roles) -> Instruction:
        """A slice; of an iota or of what is spread out a shorter one, so that what is made of it
        for the band's rows needs nothing of others.
        """
        if roles.has_none or self._cut(operand.shape, roles).dims == operand.shape.dims:
            return operand
        if operand.opcode == "iota":
            return self._iota(operand, roles)
        if (literal := literal_of(operand)) is not None:
            array = literal.array[parts(literal.array.ndim, roles, self.seen)]
            return make_constant(operand, Literal(self._cut(operand.shape, roles), array))
        return self._spread_out(operand, roles)

    def _spread_out(self, operand: Instruction, roles: Roles) -> Instruction:
        """broadcast(slice(x)) for slice(broadcast(x)), with reshapes between."""
        moves: list[tuple[Instruction, Shape]] = []
        value, at = operand, roles
        while value.opcode in ("broadcast", "reshape") and len(moves) < MOST_MOVES:
            there = operand_roles(value, 0, at)
            if there is None:
                break
            moves.append((value, self._cut(value.shape, at)))
            (value,), at = value.operands, there
        if not any(move.opcode == "broadcast" for move, _ in moves):
            return self.slice(operand, roles)
        is_cut = self._cut(value.shape, at).dims != value.shape.dims
        part = self.slice(value, at) if is_cut else value
        for move, shape in reversed(moves):
            dims = {k: v for k, v in move.attributes.items() if k == "dimensions"}
            part = make(move, move.opcode, part, shape=shape, **dims)
        return part

    def slice(self, operand: Instruction, roles: Roles) -> Instruction:
        """What a band's rows, and its columns, are of a value."""
        ranges = [SliceDim(0, n, 1) for n in operand.shape.dims]
        if roles.row is not None:
            ranges[roles.row] = SliceDim(self.seen.first, self.seen.last, 1)
        if roles.column is not None:
            ranges[roles.column] = SliceDim(self.seen.start, self.seen.end, 1)
        return make(operand, "slice", operand, slice=tuple(ranges))

    def _iota(self, iota: Instruction, roles: Roles) -> Instruction:
        """iota + where it begins"""
        along, shape = IotaAttributes.of(iota.attributes).iota_dimension, iota.shape
        begins = {roles.row: self.seen.first, roles.column: self.seen.start}.get(along, 0)
        count = make(iota, "iota", shape=self._cut(shape, roles), iota_dimension=along)
        if not begins:
            return count
        first = spread(iota, number_of(iota, begins, shape.dtype), count.shape)
        return make(iota, "add", count, first)

    def widened(self, member: Instruction, value: Instruction) -> Instruction:
        """A sum over the band's rows among zeros for the columns that it does not see."""
        column = self.region.members[member].column
        assert column is not None, "a sum over rows"
        pads = [PaddingDim(0, 0, 0) for _ in value.shape.dims]
        pads[column] = PaddingDim(self.seen.start, self.region.columns - self.seen.end, 0)
        zero = number_of(value, 0, value.shape.dtype)
        return make(value, "pad", value, zero, padding=tuple(pads))


def held(guard: Guard, value: Instruction, all_of: Computation) -> Instruction:
    """pred[]: whether a guard holds of a value, in the place of its own."""
    most = {What.BOUNDED: 2.0**guard.number, What.FAR: -FAR}.get(guard.what, 2.0**ORDINARY)
    compared = [_compared(value, "LE", most, is_size=guard.what in _OF_SIZE)]
    if guard.what is What.DIVISOR:
        compared.append(_compared(value, "GE", LEAST_DIVISOR, is_size=True))
    if guard.what is What.NOT_BELOW:
        compared.append(_compared(value, "GE", LEAST_LOGARITHM))
    if guard.what is What.ABOVE:
        compared.append(_compared(value, "GE", _far_above(guard.number, value.shape.dtype)))
    every = compared[0] if len(compared) == 1 else make(value, "and", *compared)
    if not every.shape.dims:
        return every
    true = make_constant(value, Literal(Shape.array(PRED, ()), np.array(True)))
    dims = tuple(range(every.shape.rank))
    return make(value, "reduce", every, true, dimensions=dims, to_apply=all_of)


_OF_SIZE = frozenset({What.BOUNDED, What.DIVISOR})


def _compared(
    value: Instruction, direction: str, number: float, *, is_size: bool = False
) -> Instruction:
    left = make(value, "abs", value) if is_size else value
    right = spread(value, number_of(value, number, value.shape.dtype), value.shape)
    return make(value, "compare", left, right, direction=direction)


def _far_above(number: float, dtype: DType) -> float:
    """A number of a type that is 2048 above another one, or the next above that."""
    if number == -np.inf:
        return -(2.0**ORDINARY)
    kind = np.dtype(dtype.numpy)
    wanted = number + 2048.0
    found = np.array(wanted).astype(kind)
    while float(found) < wanted or float(found) <= number:
        wide = abs(float(found)) * 2.0**-6
        found = np.array(float(found) + max(wide, 1.0)).astype(kind)
    return float(found)


def joined(parts: Sequence[Instruction], dimension: int) -> Instruction:
    """Bands of rows, one after the other."""
    return make(parts[0], "concatenate", *parts, dimensions=(dimension,))


def summed(parts: Sequence[Instruction], dtype: DType) -> Instruction:
    """Sums over bands of rows, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = make(part, "add", total, part)
    if total.shape.dtype is dtype:
        return total
    return make(total, "convert", total, shape=total.shape.with_dtype(dtype))
