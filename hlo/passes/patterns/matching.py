"""Predicates and values that rules share: constants, splats, permutations, integer types."""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make, make_constant


def literal_of(instruction: Instruction) -> Literal | None:
    """The array literal of a constant whose value is known."""
    if instruction.opcode != "constant" or not instruction.shape.is_array:
        return None
    literal = instruction["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    return None if literal.is_elided else literal


def splat_literal(instruction: Instruction) -> np.generic | None:
    """The one value of a scalar constant, of a broadcast of one, or of a constant of equal bits."""
    while instruction.opcode in ("broadcast", "reshape") and instruction.operands:
        (instruction,) = instruction.operands
    literal = literal_of(instruction) if instruction.opcode == "constant" else None
    if literal is None or literal.array.size == 0:
        return None
    flat = literal.array.reshape(-1)
    if flat.size > 1 and flat.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    value: np.generic = flat[0]
    return value


def is_splat(instruction: Instruction, number: complex) -> bool:
    """Whether every element is the number; +0 is meant by 0, and -0 is not +0."""
    value = splat_literal(instruction)
    if value is None:
        return False
    if instruction.shape.dtype.is_complex:
        component = instruction.shape.dtype.component.numpy
        assert component is not None, "a complex type has parts"
        parts = np.array([value]).view(component)
        return bool(parts[0] == number and parts[1] == 0) and not np.signbit(parts).any()
    wide = value if instruction.shape.dtype.is_pred else np.float64(value)
    if instruction.shape.dtype.is_float and number == 0 and np.signbit(wide):
        return False
    return bool(wide == number)


def log2_of(instruction: Instruction) -> int | None:
    """k of an integer 2^k that is everywhere."""
    value = splat_literal(instruction)
    if value is None or not instruction.shape.dtype.is_integral or int(value) <= 0:
        return None
    number = int(value)
    return number.bit_length() - 1 if number & (number - 1) == 0 else None


def is_constant_like(instruction: Instruction) -> bool:
    """A constant, or a broadcast of a scalar constant."""
    return instruction.opcode == "constant" or (
        instruction.opcode == "broadcast"
        and instruction.operands[0].opcode == "constant"
        and instruction.operands[0].shape.is_scalar
    )


def splat(like: Instruction, value: object, shape: Shape | None = None) -> Instruction:
    """An array with one value everywhere, in `like`'s computation: a broadcast of a scalar."""
    shape = shape or like.shape
    scalar = make_constant(like, Literal.of(np.asarray(value), Shape.array(shape.dtype)))
    if shape.is_scalar:
        return scalar
    return make(like, "broadcast", scalar, shape=shape, dimensions=())


def is_discrete(dtype: DType) -> bool:
    """Integers and pred: arithmetic on them is associative and has no special values."""
    return dtype.is_integral or dtype.is_pred


def ints(instruction: Instruction, name: str) -> Ints:
    """An attribute that is a list of integers."""
    value = instruction[name]
    assert isinstance(value, tuple), f"{name} is a list of integers"
    return value


def is_plain(shape: Shape) -> bool:
    """A static array in the default layout: rules that move data leave everything else alone."""
    return (
        shape.is_array
        and not shape.is_dynamic
        and shape.layout is not None
        and shape == shape.without_layout()
    )


def same_array(a: Shape, b: Shape) -> bool:
    """Equal type, sizes and layout."""
    return a == b


def has_one_user(instruction: Instruction) -> bool:
    """Whether changing the instruction in its user leaves it dead."""
    return len(instruction.users) == 1 and not instruction.is_root
