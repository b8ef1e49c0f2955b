"""A yardstick: the same program in f64, where its roundings do not count.

    case --every float f64, every complex number c128--> case

Literals and arguments keep their values, conversions between floats round no more, and neither
does reduce-precision. What depends on the bits of a type keeps it, between conversions: a
bitcast-convert, random numbers, what comes from the host, custom calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo import driver
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.dtype import from_numpy
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.cases.shrinking import mapped


def widened(case: Case) -> Case:
    """The case in f64. HloError `unsupported` for a module that is none with other types."""
    kept = [i for c in case.module.computations for i in c.instructions if _keeps_type(i)]
    wide = mapped(case, _wide_shape, _wide_value)
    header = wide.module.attributes.items()  # conversions have no place in a schedule
    wide.module.attributes = {k: v for k, v in header if k != "is_scheduled"}
    homes = {c.name: c for c in wide.module.computations}
    named = {(c.name, i.name): i for c in wide.module.computations for i in c.instructions}
    for old in kept:
        assert old.computation is not None, "it stands in a module"
        home = homes[old.computation.name]
        _enclose(home, named[home.name, old.name], old)
    for (_, _), instruction in named.items():
        if instruction.opcode == "reduce-precision" and instruction.computation is not None:
            home = instruction.computation
            home.replace_uses(instruction, instruction.operands[0])
            home.remove(instruction)  # a fused one without users is no program
    try:
        driver.verify(wide.module)
    except HloError as error:
        raise HloError(
            "unsupported",
            f"f64: {case.module.name} is no program with its floats in f64: {error.message}",
            help="compare it with the reference: --against=interpreter",
        ) from None
    return wide


def exact_leaves(case: Case) -> tuple[np.ndarray, ...]:
    """The leaves of the result in f64. HloError where it cannot be widened, or run."""
    wide = widened(case)
    return tuple(map(np.asarray, arrays.leaves(driver.evaluate(wide.module, *wide.values))))


def rounded(exact: Sequence[np.ndarray], shapes: Sequence[Shape]) -> tuple[np.ndarray, ...]:
    """The leaves in the types of shapes, each element rounded once."""
    with np.errstate(all="ignore"):
        return tuple(e.astype(s.dtype.numpy) for e, s in zip(exact, shapes, strict=True))


def _wide_shape(shape: Shape) -> Shape:
    if shape.dtype.is_complex:
        return shape.with_dtype("c128")
    return shape.with_dtype("f64") if shape.dtype.is_float else shape


def _wide_value(value: np.ndarray) -> np.ndarray:
    dtype = from_numpy(value.dtype)
    if dtype is None or not (dtype.is_float or dtype.is_complex):
        return value
    return value.astype(np.complex128 if dtype.is_complex else np.float64)


def _keeps_type(instruction: Instruction) -> bool:
    """Whether its result depends on how wide its types are, not on values alone."""
    match instruction.opcode:
        case "bitcast-convert" | "rng" | "stochastic-convert" | "custom-call" | "scaled-dot":
            return True
        case "infeed" | "recv" | "recv-done" | "rng-bit-generator":
            return True
        case "bitcast":
            return instruction.shape.dtype is not instruction.operands[0].shape.dtype
    return False


def _enclose(home: Computation, twin: Instruction, old: Instruction) -> None:
    """Conversions to the types that an instruction had, and of its result from them."""
    for number, (operand, before) in enumerate(zip(twin.operands, old.operands, strict=True)):
        if operand.shape != before.shape and before.shape.is_array:
            home.set_operand(twin, number, home.new("convert", before.shape, (operand,)))
    home.set_attributes(twin, {**old.attributes, **_calls_of(twin)})
    wide, twin.shape = twin.shape, old.shape
    if wide == old.shape or (wide.is_tuple and any(e.is_tuple for e in wide.elements)):
        return  # a nested tuple: what verification then refuses
    users, is_root = list(twin.users), home.root is twin
    if wide.is_tuple:
        parts = [_part(home, twin, n, e) for n, e in enumerate(wide.elements)]
        result = home.new("tuple", wide, parts)
    else:
        result = home.new("convert", wide, (twin,))
    for user in users:
        for number, operand in enumerate(user.operands):
            if operand is twin:
                home.set_operand(user, number, result)
    if is_root:
        home.root = result


def _calls_of(twin: Instruction) -> dict[str, object]:
    """Attributes that speak of the copy: computations that it calls, instructions before it."""
    copied = twin.called_computations()
    return {
        key: value
        for key, value in twin.attributes.items()
        if key == "control-predecessors" or any(c is value for c in copied)
        or (isinstance(value, tuple) and any(c in value for c in copied))
    }  # fmt: skip


def _part(home: Computation, twin: Instruction, number: int, wide: Shape) -> Instruction:
    """An element of a tuple, in the wide type."""
    narrow = twin.shape.elements[number]
    part = home.new("get-tuple-element", narrow, (twin,), {"index": number})
    return part if wide == narrow else home.new("convert", wide, (part,))
