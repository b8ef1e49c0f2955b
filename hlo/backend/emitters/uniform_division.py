"""Division of many bf16 numbers by one: a reciprocal per row and two products per element.

A vector division takes 16 cycles, a product one half. The quotient rounds to the same bf16 number:
with significands of 8 bits, x/y is at least 2^-17 (relative) away from every midpoint of two bf16
numbers, since |X 2^k - M Y| >= 1 for integers X, Y < 2^8 and M < 2^9 unless both sides are equal,
which an odd 9-bit M rules out; the products are off by less than 2^-22.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

FAR = 2.0**100  # Beyond this, or below its inverse, 1/y may be subnormal or infinite.
SHIFT = 2.0**64


def applies(nest: Nest, opcode: str, dtype: DType, operands: list[Lanes]) -> bool:
    """Whether it is a bf16 division of a vector by one scalar, or by one for each lane that is
    known outside of the loop."""
    if opcode != "divide" or dtype is not dt.BF16:
        return False
    x, y = operands
    if not isinstance(x, Value) or not isinstance(y, Value) or x.lanes == 1:
        return False
    return y.lanes == 1 or (y.lanes == x.lanes and nest.depth_of(y) < nest.depth)


def quotient(nest: Nest, x: Lanes, y: Lanes) -> Value:
    """bf16 lanes by one number: the reciprocal stands in the loop where the number is known."""
    assert isinstance(x, Value), "bf16 is not complex"
    assert isinstance(y, Value), "bf16 is not complex"
    with nest.at(nest.depth_of(y)):
        inverse, scale = reciprocal(nest.w, y)
    return product(nest.w, x, inverse, scale)


def reciprocal(w: Writer, y: Value) -> tuple[Value, Value]:
    """(1 / (y s), s) for a power of two s that brings y near 1, so that zeros, infinities, NaN and
    subnormal y come out as IEEE says: what `product` needs once for all x.
    """
    type = y.type
    size = w.intrinsic("llvm.fabs", type, y)
    small = w.compare("fcmp olt", size, w.float(1 / FAR, type))
    large = w.compare("fcmp ogt", size, w.float(FAR, type))
    near = w.select(large, w.float(1 / SHIFT, type), w.float(1.0, type))
    scale = w.select(small, w.float(SHIFT, type), near)
    return w.binary("fdiv", w.float(1.0, type), w.binary("fmul", y, scale)), scale


def product(w: Writer, x: Value, inverse: Value, scale: Value) -> Value:
    """x / y before its rounding to bf16: x f32 lanes that hold bf16 numbers."""
    part = w.binary("fmul", x, w.splat(inverse, x.lanes))
    return w.binary("fmul", part, w.splat(scale, x.lanes))
