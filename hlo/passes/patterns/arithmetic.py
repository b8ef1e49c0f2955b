"""Arithmetic identities. Constants stand on the right once `constant_to_the_right` has run.

exact=True rules keep every bit for every input, NaN payloads aside: x + 0 => x is not among them
for floats (-0 + 0 is +0), x + -0 => x is.
"""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.patterns.matching import (
    is_constant_like,
    is_discrete,
    is_splat,
    log2_of,
    same_array,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite


@rewrite("add", "multiply", "maximum", "minimum", "and", "or", "xor")
def constant_to_the_right(root: Instruction) -> Instruction | None:
    """op(c, x) => op(x, c)  for commutative op, constant c, x no constant"""
    left, right = root.operands
    if not has_trait(root, Trait.COMMUTATIVE):
        return None
    if not is_constant_like(left) or is_constant_like(right):
        return None
    return make(root, root.opcode, right, left, shape=root.shape)


@rewrite("add", "multiply", "maximum", "minimum", "and", "or", "xor", operand="select")
def select_both(root: Instruction) -> Instruction | None:
    """select(p, x, y) op select(p, y, x) => x op y  for commutative op: the gradient of a floored
    remainder adds what either case hands on.
    """
    first, second = root.operands
    if first.opcode != "select" or second.opcode != "select":
        return None
    p, x, y = first.operands
    if second.operands != (p, y, x) or not same_array(x.shape, root.shape):
        return None
    return make(root, root.opcode, x, y, shape=root.shape)


@rewrite("add")
def add_zero(root: Instruction) -> Instruction | None:
    """x + 0 => x  for integers and pred;  x + -0 => x  for floats"""
    x, zero = root.operands
    value = splat_literal(zero)
    if value is None or not same_array(x.shape, root.shape) or root.shape.dtype.is_complex:
        return None
    if value != 0:
        return None
    if is_discrete(root.shape.dtype):
        return x
    return x if np.signbit(np.float64(value)) else None


@rewrite("add", exact=False)
def add_positive_zero(root: Instruction) -> Instruction | None:
    """x + 0 => x  (changes -0 to stay -0)"""
    x, zero = root.operands
    return x if is_splat(zero, 0) and same_array(x.shape, root.shape) else None


@rewrite("subtract")
def subtract_zero(root: Instruction) -> Instruction | None:
    """x - 0 => x  (with +0)"""
    x, zero = root.operands
    if root.shape.dtype.is_complex:
        return None
    return x if is_splat(zero, 0) and same_array(x.shape, root.shape) else None


@rewrite("subtract")
def subtract_self(root: Instruction) -> Instruction | None:
    """x - x => 0  for integers"""
    x, y = root.operands
    return splat(root, 0) if x is y and root.shape.dtype.is_integral else None


@rewrite("multiply")
def multiply_one(root: Instruction) -> Instruction | None:
    """x * 1 => x"""
    x, one = root.operands
    if root.shape.dtype.is_complex:
        return None
    return x if is_splat(one, 1) and same_array(x.shape, root.shape) else None


@rewrite("multiply")
def multiply_zero(root: Instruction) -> Instruction | None:
    """x * 0 => 0  for integers and pred"""
    _, zero = root.operands
    return zero if is_discrete(root.shape.dtype) and is_splat(zero, 0) else None


@rewrite("multiply")
def multiply_minus_one(root: Instruction) -> Instruction | None:
    """x * -1 => -x  for signed integers and floats"""
    x, minus_one = root.operands
    dtype = root.shape.dtype
    if not (dtype.is_signed or dtype.is_float) or not is_splat(minus_one, -1):
        return None
    return make(root, "negate", x, shape=root.shape)


@rewrite("divide")
def divide_one(root: Instruction) -> Instruction | None:
    """x / 1 => x"""
    x, one = root.operands
    if root.shape.dtype.is_complex:
        return None
    return x if is_splat(one, 1) and same_array(x.shape, root.shape) else None


@rewrite("divide")
def divide_power_of_two(root: Instruction) -> Instruction | None:
    """x / c => x * (1/c)  for floats, c = +-2^k with 1/c finite and normal"""
    x, divisor = root.operands
    reciprocal = _exact_reciprocal(divisor)
    if reciprocal is None:
        return None
    return make(root, "multiply", x, splat(root, reciprocal, divisor.shape), shape=root.shape)


def _exact_reciprocal(divisor: Instruction) -> float | None:
    dtype, value = divisor.shape.dtype, splat_literal(divisor)
    if value is None or not dtype.is_float or dtype.float_format is None:
        return None
    number = float(value)
    mantissa, exponent = np.frexp(number)
    limit = dtype.float_format.bias - 2
    if abs(mantissa) != 0.5 or abs(int(exponent)) >= limit:
        return None
    return 1.0 / number


@rewrite("divide", exact=False)
def divide_constant(root: Instruction) -> Instruction | None:
    """x / c => x * (1/c)  for a float constant c"""
    x, divisor = root.operands
    value = splat_literal(divisor)
    if value is None or not root.shape.dtype.is_float or value == 0:
        return None
    reciprocal = 1.0 / float(value)
    if not np.isfinite(reciprocal) or reciprocal == 0:
        return None
    return make(root, "multiply", x, splat(root, reciprocal, divisor.shape), shape=root.shape)


@rewrite("divide", operand="divide", exact=False)
def divide_quotient(root: Instruction) -> Instruction | None:
    """(a / b) / c => a / (b * c)  for floats"""
    quotient, c = root.operands
    if quotient.opcode != "divide" or not root.shape.dtype.is_float:
        return None
    a, b = quotient.operands
    return make(root, "divide", a, make(root, "multiply", b, c), shape=root.shape)


@rewrite("divide", operand="sqrt", exact=False)
def divide_by_square_root(root: Instruction) -> Instruction | None:
    """x / sqrt(b) => x * rsqrt(b)  for floats, the root used once"""
    x, square_root = root.operands
    if square_root.opcode != "sqrt" or len(square_root.users) != 1:
        return None
    (b,) = square_root.operands
    return make(root, "multiply", x, make(root, "rsqrt", b), shape=root.shape)


@rewrite("divide")
def divide_unsigned_power_of_two(root: Instruction) -> Instruction | None:
    """x / 2^k => x >>> k  for unsigned integers"""
    x, divisor = root.operands
    k = log2_of(divisor)
    if k is None or not root.shape.dtype.is_unsigned:
        return None
    return make(root, "shift-right-logical", x, splat(root, k, divisor.shape), shape=root.shape)


@rewrite("remainder")
def remainder_unsigned_power_of_two(root: Instruction) -> Instruction | None:
    """x % 2^k => x & (2^k - 1)  for unsigned integers"""
    x, divisor = root.operands
    k = log2_of(divisor)
    if k is None or not root.shape.dtype.is_unsigned:
        return None
    return make(root, "and", x, splat(root, (1 << k) - 1, divisor.shape), shape=root.shape)


@rewrite("remainder", operand="remainder")
def remainder_twice(root: Instruction) -> Instruction | None:
    """(a % b) % b => a % b"""
    inner, b = root.operands
    return inner if inner.opcode == "remainder" and inner.operands[1] is b else None


@rewrite("add", "multiply")
def merge_constants(root: Instruction) -> Instruction | None:
    """(x op c1) op c2 => x op (c1 op c2)  for integers and pred, op in +, *"""
    inner, c2 = root.operands
    if inner.opcode != root.opcode or not is_discrete(root.shape.dtype):
        return None
    x, c1 = inner.operands
    if not is_constant_like(c1) or not is_constant_like(c2) or is_constant_like(x):
        return None
    a, b = splat_literal(c1), splat_literal(c2)
    if a is None or b is None:
        return None
    with np.errstate(over="ignore"):
        merged = _discrete(root, a, b)
    return make(root, root.opcode, x, splat(root, merged), shape=root.shape)


def _discrete(root: Instruction, a: np.generic, b: np.generic) -> np.ndarray:
    numpy = root.shape.dtype.numpy
    left, right = np.asarray(a, numpy), np.asarray(b, numpy)
    if root.shape.dtype.is_pred:
        return np.asarray(left | right if root.opcode == "add" else left & right)
    value = int(left) + int(right) if root.opcode == "add" else int(left) * int(right)
    low, high = root.shape.dtype.int_range
    return np.asarray((value - low) % (high - low + 1) + low, numpy)


def _has_negatives(dtype: DType) -> bool:
    """Not of a scale, where -x is NaN."""
    return not dtype.is_scale


@rewrite("negate", operand="negate")
def negate_twice(root: Instruction) -> Instruction | None:
    """-(-x) => x  where -x is a number"""
    return root.operands[0].operands[0] if _has_negatives(root.shape.dtype) else None


@rewrite("multiply", operand="negate")
def multiply_negated(root: Instruction) -> Instruction | None:
    """(-a) * (-b) => a * b  for integers and floats"""
    a, b = root.operands
    dtype = root.shape.dtype
    if a.opcode != "negate" or b.opcode != "negate" or dtype.is_complex:
        return None
    if not _has_negatives(dtype):
        return None
    return make(root, "multiply", a.operands[0], b.operands[0], shape=root.shape)


@rewrite("add", operand="negate")
def add_negated(root: Instruction) -> Instruction | None:
    """a + (-b) => a - b  for integers and floats"""
    a, b = root.operands
    dtype = root.shape.dtype
    if b.opcode != "negate" or dtype.is_complex or not _has_negatives(dtype):
        return None
    return make(root, "subtract", a, b.operands[0], shape=root.shape)


@rewrite("subtract", operand="negate")
def subtract_negated(root: Instruction) -> Instruction | None:
    """a - (-b) => a + b  for integers and floats"""
    a, b = root.operands
    dtype = root.shape.dtype
    if b.opcode != "negate" or dtype.is_complex or not _has_negatives(dtype):
        return None
    return make(root, "add", a, b.operands[0], shape=root.shape)


@rewrite("multiply", operand="abs")
def multiply_absolutes(root: Instruction) -> Instruction | None:
    """|a| * |a| => a * a  for integers and floats"""
    a, b = root.operands
    if a.opcode != "abs" or a is not b or a.operands[0].shape.dtype.is_complex:
        return None
    (x,) = a.operands
    return make(root, "multiply", x, x, shape=root.shape)


@rewrite("abs", operand="abs")
def absolute_twice(root: Instruction) -> Instruction | None:
    """||x|| => |x|"""
    return root.operands[0]


@rewrite("abs", operand="negate")
def absolute_of_negated(root: Instruction) -> Instruction | None:
    """|-x| => |x|  for integers and floats"""
    (x,) = root.operands[0].operands
    if x.shape.dtype.is_complex or not _has_negatives(x.shape.dtype):
        return None
    return make(root, "abs", x, shape=root.shape)


@rewrite("power")
def power_zero(root: Instruction) -> Instruction | None:
    """pow(x, 0) => 1  for integers and floats"""
    _, exponent = root.operands
    dtype = root.shape.dtype
    if not (dtype.is_float or dtype.is_integral) or splat_literal(exponent) != 0:
        return None
    return splat(root, 1)


@rewrite("power")
def power_one(root: Instruction) -> Instruction | None:
    """pow(x, 1) => x  for integers and floats"""
    x, exponent = root.operands
    dtype = root.shape.dtype
    if not (dtype.is_float or dtype.is_integral) or not is_splat(exponent, 1):
        return None
    return x


@rewrite("power")
def power_two(root: Instruction) -> Instruction | None:
    """pow(x, 2) => x * x  (correctly rounded, so within pow's budget of any good pow)"""
    x, exponent = root.operands
    dtype = root.shape.dtype
    if not (dtype.is_float or dtype.is_integral) or not is_splat(exponent, 2):
        return None
    return make(root, "multiply", x, x, shape=root.shape)


@rewrite("power", exact=False)
def power_three(root: Instruction) -> Instruction | None:
    """pow(x, 3) => x * (x * x)"""
    x, exponent = root.operands
    if not root.shape.dtype.is_float or not is_splat(exponent, 3):
        return None
    square = make(root, "multiply", x, x, shape=root.shape)
    return make(root, "multiply", x, square, shape=root.shape)


@rewrite("power")
def power_minus_one(root: Instruction) -> Instruction | None:
    """pow(x, -1) => 1 / x  for floats (correctly rounded)"""
    x, exponent = root.operands
    if not root.shape.dtype.is_float or not is_splat(exponent, -1):
        return None
    return make(root, "divide", splat(root, 1), x, shape=root.shape)


@rewrite("multiply", operand="exponential", exact=False)
def multiply_exponentials(root: Instruction) -> Instruction | None:
    """exp(a) * exp(b) => exp(a + b)"""
    a, b = root.operands
    if a.opcode != "exponential" or b.opcode != "exponential":
        return None
    total = make(root, "add", a.operands[0], b.operands[0])
    return make(root, "exponential", total, shape=root.shape)


@rewrite("log", operand="exponential", exact=False)
def log_of_exponential(root: Instruction) -> Instruction | None:
    """log(exp(x)) => x  for floats"""
    (x,) = root.operands[0].operands
    return x if x.shape.dtype.is_float else None


@rewrite("real", "imag")
def part_of_complex(root: Instruction) -> Instruction | None:
    """real(complex(r, i)) => r,  imag(complex(r, i)) => i,  real(x) => x for real x"""
    (x,) = root.operands
    if x.opcode == "complex":
        return x.operands[0 if root.opcode == "real" else 1]
    return x if root.opcode == "real" and x.shape.dtype.is_float else None


@rewrite("complex", operand="real")
def complex_of_parts(root: Instruction) -> Instruction | None:
    """complex(real(z), imag(z)) => z"""
    real, imag = root.operands
    if real.opcode != "real" or imag.opcode != "imag":
        return None
    (z,) = real.operands
    return z if imag.operands[0] is z and z.shape == root.shape else None
