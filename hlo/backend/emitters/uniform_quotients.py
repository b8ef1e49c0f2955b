"""Division of many integers of up to 32 bits by one that an outer loop knows: a product for each.

    x / y = sign(y) trunc(x z),  x mod y = x - trunc(x z) |y|,  z = (1/|y|)(1 + e)

In floats that hold all of x. z is more than 1/|y| by at least 0 and at most 2e, so that x z does
not fall below a quotient that is an integer, and the nearest integer above the quotient is at least
1/|y| away, more than 2e x/|y| for x below 1/(2e). z is 0 where y is. A vector division of doubles
takes 16 cycles for 8 numbers, and 32-bit integers take two.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType

# The float for integers of so many bits, and e: more than its roundings, less than 2^-(bits + 1).
_FLOATS = {8: ("float", 2.0**-20), 16: ("float", 2.0**-20), 32: ("double", 2.0**-40)}


def applies(nest: Nest, opcode: str, dtype: DType, operands: list[Lanes]) -> bool:
    """Whether vectors of integers are divided by one number, or by one for each lane that is known
    outside of the loop. LLVM knows what to do with constants.
    """
    if opcode not in ("divide", "remainder") or not dtype.is_integral or dtype.bits not in _FLOATS:
        return False
    x, y = operands
    if not isinstance(x, Value) or not isinstance(y, Value) or x.lanes == 1 or y.is_constant:
        return False
    return y.lanes in (1, x.lanes) and nest.depth_of(y) < nest.depth


def divided(nest: Nest, opcode: str, dtype: DType, operands: list[Lanes]) -> Value:
    """Quotients towards zero, or remainders with the sign of x; x / 0 is -1, x mod 0 is x."""
    given, by = operands
    assert isinstance(given, Value), "integers are not complex"
    assert isinstance(by, Value), "integers are not complex"
    x, y = (Term(nest.w, nest.target, v) for v in (given, by))
    name, more = _FLOATS[dtype.bits]
    with nest.at(nest.depth_of(by)):
        sign = y.ashr(dtype.bits - 1) if dtype.is_signed else y.const(0)
        size = (y ^ sign) - sign
        is_zero = y.eq(0)
        inverse = is_zero.select(0.0, (1.0 + more) / size.to(name, signed=False))
        ones = is_zero.select(y.const(-1), 0)

    def spread(term: Term) -> Term:
        return term.of(nest.w.splat(term.value, x.lanes))

    product = x.to(name, signed=dtype.is_signed) * spread(inverse)
    quotient = _truncated(product, dtype, x)
    if opcode == "remainder":
        return (x - quotient * spread(size)).value
    if dtype.is_signed:
        quotient = (quotient ^ spread(sign)) - spread(sign)
    return (quotient | spread(ones)).value


def _truncated(product: Term, dtype: DType, x: Term) -> Term:
    """Lanes of x's type; the narrower conversions are not legal everywhere."""
    if dtype.bits < 32:
        return product.to("i32").to(x.scalar)
    return product.to(x.scalar, signed=dtype.is_signed)
