"""Applied: elementwise ops and computations on scalars, on lanes that are there already."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters import constants, elementwise
from hlo.backend.emitters import uniform_division as by_one
from hlo.backend.emitters.table import EMITTERS
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.chains import is_in_halves
from hlo.backend.loops.expression import tuple_index, unsupported
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS, Trait, attributes_of, has_trait


def apply(
    nest: Nest,
    instruction: Instruction,
    operands: Sequence[Lanes],
    kinds: Sequence[DType],
    *,
    rounds: bool = True,
) -> Lanes:
    """One elementwise op on lanes, rounded to the result's type."""
    w, target = nest.w, nest.target
    opcode = instruction.opcode
    if rounds and by_one.applies(nest, opcode, instruction.shape.dtype, list(operands)):
        quotient = by_one.quotient(nest, *operands)
        return types.rounded(w, target, quotient, dt.BF16, has_short_nans=True)
    if instruction.shape.dtype.is_integral and OPS[opcode].cost.divides:
        from hlo.backend.emitters import uniform_quotients  # for programs that divide integers

        if uniform_quotients.applies(nest, opcode, instruction.shape.dtype, list(operands)):
            return uniform_quotients.divided(nest, opcode, instruction.shape.dtype, list(operands))
    if rounds and is_in_halves(instruction.opcode, instruction.shape.dtype, target):
        from hlo.backend.emitters import half_arithmetic  # for programs that compute in halves

        return half_arithmetic.emit(nest, instruction.opcode, operands)
    lanes = max((types.width(o) for o in operands), default=1)
    wide = [types.splat(w, o, lanes) for o in operands]
    dtype = instruction.shape.dtype
    result = elementwise.emit(
        instruction.opcode,
        w,
        target,
        wide,
        kinds,
        dtype,
        attributes_of(instruction),
    )
    if rounds and dtype.is_narrow_float:
        from hlo.backend.emitters.exactness import is_exact

        if is_exact(instruction, operands, kinds):
            return result
        keeps = has_trait(instruction, Trait.IEEE)
        result = types.rounded(w, target, result, dtype, has_short_nans=keeps)
    return result


def reread(nest: Nest, bitcast: Instruction, lanes: Lanes) -> Lanes:
    """A bitcast's operand as the result's element type, of the same width."""
    source, target = bitcast.operands[0].shape.dtype, bitcast.shape.dtype
    if source is target:
        return lanes
    if source.bits != target.bits:
        raise unsupported(bitcast, "to elements of another width")
    w, machine = nest.w, nest.target
    return elementwise.emit("bitcast-convert", w, machine, [lanes], [source], target)


def inlined(
    nest: Nest,
    root: Instruction,
    values: dict[Instruction, tuple[Lanes, ...]],
    *,
    rounds: bool = True,
) -> tuple[Lanes, ...]:
    """The results of a scalar computation applied to lanes: `values` gives its parameters."""
    frames = [(root, values, [root])]  # One for each computation that is entered.
    while True:
        root, values, order = frames[-1]
        if not order:
            frames.pop()
            if not frames:
                return values[root]
            _, outer, waiting = frames[-1]
            outer[waiting[-1]] = values[root]
        elif (top := order[-1]) in values:
            order.pop()
        elif missing := [o for o in top.operands if o not in values]:
            order += missing
        elif top.opcode == "map" or top.opcode in ("fusion", "call"):
            (callee,) = top.called_computations()
            operands = [values[o] for o in top.operands]
            inner = dict(zip(callee.parameters, operands, strict=True))
            frames.append((callee.root, inner, [callee.root]))
        else:
            values[top] = _inlined_one(nest, top, values, rounds=rounds)


def _inlined_one(
    nest: Nest,
    instruction: Instruction,
    values: dict[Instruction, tuple[Lanes, ...]],
    *,
    rounds: bool,
) -> tuple[Lanes, ...]:
    operands = [values[o] for o in instruction.operands]
    match instruction.opcode:
        case "constant" if not instruction.shape.dims and instruction.shape.is_array:
            return (constants.scalar(nest.w, instruction["literal"]),)  # type: ignore[arg-type]  # Literal
        case "tuple":
            return tuple(lanes for o in operands for lanes in o)
        case "get-tuple-element":
            return (operands[0][tuple_index(instruction)],)
        case "bitcast":
            return (reread(nest, instruction, operands[0][0]),)
        case "broadcast" | "reshape" | "copy" | "opt-barrier" | "transpose" if (
            instruction.shape.size == 1
        ):
            return operands[0]
    if instruction.opcode not in EMITTERS or instruction.shape.dims:
        raise unsupported(instruction, "in a computation on scalars")
    kinds = [o.shape.dtype for o in instruction.operands]
    flat = [o[0] for o in operands]
    return (apply(nest, instruction, flat, kinds, rounds=rounds),)
