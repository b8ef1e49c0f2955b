"""Bounded powers: factors of products that no number of is beyond 2, by how they are computed."""

from __future__ import annotations

from hlo.analysis.blocks.sums import is_spread_number
from hlo.analysis.flow import origin
from hlo.analysis.fusibility import is_zero
from hlo.analysis.reducers import reducer_of
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import BroadcastAttributes
from hlo.ops.reduction import ReduceAttributes
from hlo.ops.table import INDEX_MAPS, opcodes

_MOVED = opcodes(INDEX_MAPS)
_MOST_BETWEEN = 12  # Instructions on the way to a square.


def is_at_most_two(value: Instruction) -> bool:
    """Whether no number is beyond 2: powers of what is not positive, or of differences from a
    greatest number, or the shares that powers have of their sum, which rounding may take beyond 1.
    """
    value = origin(value)
    while value.opcode in _MOVED and len(value.operands) == 1:
        value = origin(value.operands[0])
    match value.opcode:
        case "divide":
            power, total = value.operands
            return power.opcode == "exponential" and _is_reduced(total, power, "add")
        case "exponential":
            (power,) = value.operands
            if power.opcode == "subtract":
                return _is_reduced(power.operands[1], power.operands[0], "maximum")
            return _is_at_most_zero(power)
    return False


def _is_at_most_zero(value: Instruction) -> bool:
    """Whether no number is positive: squares and the like, their sums and multiples, by the signs
    on the way to them.
    """
    is_turned = False  # Whether what is looked at has to be at least 0.
    for _ in range(_MOST_BETWEEN):
        value = origin(value)
        operands = value.operands
        match value.opcode:
            case "abs" | "exponential" | "sqrt":
                return is_turned
            case "multiply" if operands[0] is operands[1]:
                return is_turned
            case "multiply" | "divide":
                at = 1 if value.opcode == "divide" or is_spread_number(operands[1]) else 0
                if not is_spread_number(operands[at]):
                    return False
                is_turned ^= _number(operands[at]) < 0.0
                value = operands[1 - at]
            case "negate":
                is_turned, (value,) = not is_turned, operands
            case "reduce" if reducer_of(value).opcodes == ("add",) and is_zero(operands[1]):
                value = operands[0]
            case opcode if opcode in _MOVED and len(operands) == 1:
                (value,) = operands
            case _:
                return False
    return False


def _number(value: Instruction) -> float:
    """The number that a constant is everywhere."""
    constant = value.operands[0] if value.opcode == "broadcast" else value
    literal = constant["literal"]
    assert isinstance(literal, Literal), "a scalar constant's"
    return float(literal.array)


def _is_reduced(value: Instruction, elements: Instruction, opcode: str) -> bool:
    """Whether each element is a reduction of others, among them the element at its place."""
    if value.opcode != "broadcast" or value.operands[0].opcode != "reduce":
        return False
    (reduce,) = value.operands
    if reduce.operands[0] is not elements or reducer_of(reduce).opcodes != (opcode,):
        return False
    if opcode == "add" and not is_zero(reduce.operands[1]):
        return False
    reduced = ReduceAttributes.of(reduce.attributes).dimensions
    kept = tuple(d for d in range(len(elements.shape.dims)) if d not in reduced)
    return BroadcastAttributes.of(value.attributes).dimensions == kept
