"""Underflow: which values are likely to have subnormal elements, so that processors wait for them.

The tail of e^x runs through all of them, and what multiplies or moves such a number hands it on.
Other functions, sums and the numbers that programs are given hardly come near.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.blocks.sums import is_spread_number, is_zero
from hlo.analysis.reducers import reducer_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import BroadcastAttributes
from hlo.ops.reduction import ReduceAttributes
from hlo.ops.table import INDEX_MAPS, opcodes

Value = tuple[Instruction, tuple[int, ...]]  # an instruction, which element of a tuple
_MOVED = opcodes(INDEX_MAPS)
_MOST_BETWEEN = 12  # Instructions on the way to a square.
# Of an op's operands those whose tiny elements make tiny results; of moves all.
_FROM = {
    "multiply": slice(None), "negate": slice(None), "abs": slice(None), "convert": slice(None),
    "divide": slice(1), "select": slice(1, None),
}  # fmt: skip


def underflowing(computation: Computation) -> frozenset[Value]:
    """Those of a computation and of its fusions; what it is called with counts as normal."""
    return computation.fact(_underflowing)


def _underflowing(computation: Computation) -> frozenset[Value]:
    calls: dict[Computation, Instruction] = {}
    waiting: list[Value] = []
    scanned = [computation]
    for around in scanned:
        for instruction in around.instructions:
            if instruction.opcode == "exponential":
                waiting.append((instruction, ()))
            elif instruction.opcode == "fusion":
                (callee,) = instruction.called_computations()
                calls[callee] = instruction
                scanned.append(callee)
    found = set(waiting)
    while waiting:
        for value in _handed_on(waiting.pop(), calls, found):
            if value not in found:
                found.add(value)
                waiting.append(value)
    return frozenset(found)


def _handed_on(
    value: Value, calls: dict[Computation, Instruction], found: set[Value]
) -> Iterator[Value]:
    """The values with elements that are tiny where the value's are."""
    instruction, path = value
    around = instruction.computation
    if around in calls and around.root is instruction:
        yield calls[around], path
    for user in instruction.users:
        places = [n for n, o in enumerate(user.operands) if o is instruction]
        match user.opcode:
            case "tuple":
                yield from ((user, (n, *path)) for n in places)
            case "get-tuple-element":
                if path and user["index"] == path[0]:
                    yield user, path[1:]
            case "fusion":
                (callee,) = user.called_computations()
                yield from ((callee.parameters[n], path) for n in places)
            case opcode if opcode in _MOVED:
                yield user, ()
            case "add" | "subtract" if all((o, ()) in found for o in user.operands):
                yield user, ()
            case opcode if opcode in _FROM and instruction in user.operands[_FROM[opcode]]:
                yield user, ()


def is_at_most_two(value: Instruction) -> bool:
    """Whether no number is beyond 2: powers of what is not positive, or of differences from a
    greatest number, or the shares that powers have of their sum, which rounding may take beyond 1.
    """
    while value.opcode == "fusion":
        (callee,) = value.called_computations()
        value = callee.root
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
