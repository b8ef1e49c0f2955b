"""Counted rows: what a loop reads of an array that counts is computed of the loop's counter.

    x = f(iota); while(.., x, i) { x[i] .. }  =>  while(.., x, i) { f(i) .. }

A scan over `arange(n)` reads its numbers from memory, one a trip. As the counter itself they need
none, and other passes see what they are: that a row which they choose is taken in turn, that a
number is never below zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.analysis.while_loops.loop_state import element_index, integer_constant, unchanged_elements
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.table import OPS
from hlo.passes.patterns.matching import ints, splat_literal

Range = tuple[int, int]
MOST_COST = 4  # Additions that take as long as to find a row's address and to read it.
_MOST_MEMBERS = 8
_MOST_STEPS = 8  # Of the arithmetic on a counter that says which row is read.
_SCALAR = ()


def counted_rows(body: Computation, loop: Instruction, ranges: Mapping[int, Range]) -> bool:
    """Compute in a loop's body the rows that it reads of counting arrays.

    ranges: of the state's elements that are counted, the least and the greatest value.
    """
    changed = False
    for element in unchanged_elements(body):
        start = loop.operands[0].operands[element_index(element)]
        if start.shape.rank != 1 or not _is_counting(start):
            continue
        for read in tuple(element.users):
            if _is_row(read, element, start.shape.dims[0], ranges):
                value = _value(read, start, read.operands[1])
                row = make(read, "reshape", value, shape=read.shape)
                body.replace_uses(read, row)
                changed = True
    return changed


def _is_row(
    read: Instruction, element: Instruction, size: int, ranges: Mapping[int, Range]
) -> bool:
    """Whether a user takes one number of an element, at a place that is known to be inside."""
    if read.opcode != "dynamic-slice" or read.operands[0] is not element or not read.users:
        return False
    found = _range(read.operands[1], ranges, _MOST_STEPS)
    is_one = ints(read, "dynamic_slice_sizes") == (1,)
    return is_one and found is not None and found[0] >= 0 and found[1] < size


def _range(place: Instruction, ranges: Mapping[int, Range], steps: int) -> Range | None:
    """Between which numbers a sum of counters and constants stays."""
    number = integer_constant(place)
    if number is not None:
        return number, number
    if place.opcode == "get-tuple-element" and not place.operands[0].operands:
        return ranges.get(element_index(place))
    if place.opcode not in ("add", "subtract") or not steps:
        return None
    a, b = (_range(o, ranges, steps // 2) for o in place.operands)
    if a is None or b is None:
        return None
    low, high = (b[0], b[1]) if place.opcode == "add" else (-b[1], -b[0])
    return _within(place.shape.dtype, (a[0] + low, a[1] + high))


def _within(dtype: DType, found: Range) -> Range | None:
    """A range, where the type has all numbers of it."""
    bits = dtype.bits - dtype.is_signed
    is_held = -(found[0]) <= (1 << bits if dtype.is_signed else 0) and found[1] < 1 << bits
    return found if is_held else None


def _is_counting(start: Instruction) -> bool:
    """Whether an array is a few cheap ops on an iota's numbers."""
    members, waiting, has_iota = dict[Instruction, None](), [start], False
    while waiting:
        value = waiting.pop()
        if value in members or splat_literal(value) is not None:
            continue
        members[value] = None
        has_iota |= value.opcode == "iota"
        is_made = value.opcode == "iota" and _counts_exactly(value.shape)
        is_made |= is_elementwise(value) and value.shape.dims == start.shape.dims
        if (
            not is_made
            or len(members) > _MOST_MEMBERS
            or "control-predecessors" in value.attributes
        ):
            return False
        waiting += value.operands
    return has_iota and sum(map(op_cost, members)) <= MOST_COST


def _counts_exactly(shape: Shape) -> bool:
    """Whether the iota's type holds each number that it counts."""
    dtype, size = shape.dtype, shape.dims[0]
    if dtype.is_float:
        return dtype.item_bytes >= 4 and size <= 1 << 24
    return dtype.is_integral and size <= 1 << (dtype.bits - dtype.is_signed)


def _value(read: Instruction, value: Instruction, place: Instruction) -> Instruction:
    """An array's number at a place, computed in the body in which it is read."""
    shape = Shape.array(value.shape.dtype, _SCALAR)
    literal = splat_literal(value)
    if literal is not None:
        return make_constant(read, Literal.of(literal, shape))
    if value.opcode == "iota":
        return place if place.shape == shape else make(read, "convert", place, shape=shape)
    operands = [_value(read, operand, place) for operand in value.operands]
    own = {k: v for k, v in value.attributes.items() if k in OPS[value.opcode].attrs}
    return make(read, value.opcode, *operands, shape=shape, **own)
