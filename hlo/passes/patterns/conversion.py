"""Conversions that cancel or join."""

from __future__ import annotations

from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.patterns.matching import (
    has_one_user,
    ints,
    is_plain,
    same_array,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite


@rewrite("convert", "bitcast-convert")
def convert_to_own_type(root: Instruction) -> Instruction | None:
    """convert(x) to x's own type => x"""
    (x,) = root.operands
    return x if same_array(x.shape, root.shape) else None


@rewrite("convert", operand="convert")
def convert_back(root: Instruction) -> Instruction | None:
    """convert(convert(x, wide), type(x)) => x  where every value of x's type survives in the wide
    one
    """
    (inner,) = root.operands
    (x,) = inner.operands
    if not same_array(x.shape, root.shape) or not holds(inner.shape.dtype, x.shape.dtype):
        return None
    return x


@rewrite("convert", operand="convert")
def convert_twice(root: Instruction) -> Instruction | None:
    """convert(convert(x, wide), t) => convert(x, t)  where every value of x's type survives in
    the wide one
    """
    (inner,) = root.operands
    (x,) = inner.operands
    if not holds(inner.shape.dtype, x.shape.dtype) or root.shape.dtype.is_complex:
        return None
    if x.shape.dtype.is_complex or inner.shape.dtype.is_complex:
        return None
    if x.shape.dtype is root.shape.dtype:
        return None
    # integers wrap when they are narrowed, floats saturate: the way through a float must not matter
    through_float = inner.shape.dtype.is_float and root.shape.dtype.is_integral
    if through_float and not x.shape.dtype.is_float and not holds(root.shape.dtype, x.shape.dtype):
        return None
    return make(root, "convert", x, shape=root.shape)


@rewrite("convert", operand="transpose")
def convert_of_transpose(root: Instruction) -> Instruction | None:
    """convert(transpose(x)) => transpose(convert(x))  where dots alone read it: they have dimension
    numbers
    """
    (turned,) = root.operands
    (x,) = turned.operands
    if not root.users or any(user.opcode != "dot" for user in root.users):
        return None
    if not has_one_user(turned) or not is_plain(x.shape):
        return None
    converted = make(root, "convert", x, shape=x.shape.with_dtype(root.shape.dtype))
    order = ints(turned, "dimensions")
    return make(root, "transpose", converted, shape=root.shape, dimensions=order)


@rewrite("convert", operand="select")
def convert_select(root: Instruction) -> Instruction | None:
    """convert(select(p, x, y)) => select(p, convert(x), convert(y))  where each of x and y is a
    splat, or was converted from root's type without loss; nothing else reads the select
    """
    (choice,) = root.operands
    if not has_one_user(choice):
        return None
    p, x, y = choice.operands
    if not all(_was_converted(root, arm) or splat_literal(arm) is not None for arm in (x, y)):
        return None
    return make(root, "select", p, _converted(root, x), _converted(root, y), shape=root.shape)


def _was_converted(root: Instruction, arm: Instruction) -> bool:
    """Whether an arm of a select comes from an array of root's type without loss."""
    if arm.opcode != "convert":
        return False
    (x,) = arm.operands
    return same_array(x.shape, root.shape) and holds(arm.shape.dtype, x.shape.dtype)


def _converted(root: Instruction, arm: Instruction) -> Instruction:
    """What such an arm is in root's type, or one that is a splat."""
    if _was_converted(root, arm):
        return arm.operands[0]
    value = splat_literal(arm)
    assert value is not None, "a splat"
    scalar = splat(root, value, Shape.array(arm.shape.dtype))
    converted = make(root, "convert", scalar, shape=Shape.array(root.shape.dtype))
    if root.shape.is_scalar:
        return converted
    return make(root, "broadcast", converted, shape=root.shape, dimensions=())


@rewrite("bitcast-convert", operand="bitcast-convert")
def bitcast_convert_twice(root: Instruction) -> Instruction | None:
    """bitcast-convert(bitcast-convert(x)) => bitcast-convert(x)  between types of one width"""
    (inner,) = root.operands
    (x,) = inner.operands
    widths = {x.shape.dtype.bits, inner.shape.dtype.bits, root.shape.dtype.bits}
    if len(widths) != 1 or same_array(x.shape, root.shape):
        return x if same_array(x.shape, root.shape) else None
    return make(root, "bitcast-convert", x, shape=root.shape)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether each value of `narrow` is a value of `wide`."""
    if wide is narrow:
        return True
    if narrow.is_pred:
        return (wide.is_integral and wide.bits > 1) or (wide.is_float and not wide.is_scale)
    if narrow.is_integral and wide.is_integral:
        if narrow.is_unsigned:
            return wide.bits > narrow.bits or (wide.is_unsigned and wide.bits == narrow.bits)
        return wide.is_signed and wide.bits >= narrow.bits
    if narrow.is_integral and wide.is_float and wide.float_format is not None:
        digits = narrow.bits - (1 if narrow.is_signed else 0)
        roomy = wide.float_format.bias > narrow.bits
        return roomy and not wide.is_scale and wide.float_format.mantissa + 1 >= digits
    return _float_holds(wide, narrow)


def _float_holds(wide: DType, narrow: DType) -> bool:
    """Whether a format has all values of another: IEEE-like ones only, as the small formats differ
    in which NaNs, zeros and infinities they have.
    """
    a, b = wide.float_format, narrow.float_format
    if a is None or b is None or a.nan != "ieee" or b.nan != "ieee":
        return False
    return a.mantissa >= b.mantissa and a.exponent >= b.exponent
