"""Elementwise operations on integers and pred: modular arithmetic without traps.

Types of fewer than 8 bits are held in i8, sign- or zero-extended; the caller wraps results.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.term import Term
from hlo.ir.dtype import DType

Emitter = Callable[..., Term]  # (dtype, *operands) -> Term


def arithmetic(opcode: str) -> Emitter:
    """LLVM's instruction on two operands."""

    def emit(dtype: DType, a: Term, b: Term) -> Term:
        return a.of(a.w.binary(opcode, a.value, b.value))

    return emit


def _extreme(direction: str) -> Emitter:
    def emit(dtype: DType, a: Term, b: Term) -> Term:
        return a.call(f"llvm.{'s' if dtype.is_signed else 'u'}{direction}", b)

    return emit


maximum, minimum = _extreme("max"), _extreme("min")


def magnitude(dtype: DType, x: Term) -> Term:
    """|x|; the least number stays."""
    return (x < 0).select(-x, x) if dtype.is_signed else x


def negate(dtype: DType, x: Term) -> Term:
    """-x, which wraps."""
    return -x


def complement(dtype: DType, x: Term) -> Term:
    """All bits changed."""
    return ~x


def sign(dtype: DType, x: Term) -> Term:
    """-1, 0 or 1."""
    if dtype.is_unsigned:
        return x.ne(0).select(x.const(1), 0)
    return (x < 0).select(x.const(-1), x.ne(0).select(x.const(1), 0))


def popcnt(dtype: DType, x: Term) -> Term:
    """The number of one bits."""
    return _zero_extended(x, dtype).call("llvm.ctpop")


def count_leading_zeros(dtype: DType, x: Term) -> Term:
    """Zero bits above the highest one."""
    x = _zero_extended(x, dtype)
    false = x.w._constant("false", "i1")
    zeros = x.of(x.w.intrinsic("llvm.ctlz", x.type, x.value, false))
    return zeros - (8 - dtype.bits) if dtype.bits < 8 else zeros


def _zero_extended(x: Term, dtype: DType) -> Term:
    return x & ((1 << dtype.bits) - 1) if dtype.bits < 8 else x


def _sign_extended(x: Term, dtype: DType) -> Term:
    return (x << (8 - dtype.bits)).ashr(8 - dtype.bits) if dtype.bits < 8 else x


def divide(dtype: DType, a: Term, b: Term) -> Term:
    """Toward zero; x/0 is all ones (-1), MIN/-1 is MIN."""
    if _is_harmless(b):
        return _quotient(dtype, a, b)
    quotient = _quotient(dtype, a, _safe_divisor(dtype, a, b))
    return b.eq(0).select(-1, quotient)


def remainder(dtype: DType, a: Term, b: Term) -> Term:
    """The dividend's sign; x%0 is x, MIN%-1 is 0."""
    if _is_harmless(b):
        return a - _quotient(dtype, a, b) * b
    divisor = _safe_divisor(dtype, a, b)
    rest = a - _quotient(dtype, a, divisor) * divisor
    return b.eq(0).select(a, rest)


def _is_harmless(b: Term) -> bool:
    """Whether it is a number in the code, neither 0 nor -1: LLVM divides by it with a product."""
    return b.value.element.integer not in (None, 0, -1)


def _safe_divisor(dtype: DType, a: Term, b: Term) -> Term:
    """1 where the machine's division would trap; MIN/1 and MIN%1 are what MIN/-1 has to give."""
    bad = b.eq(0)
    if dtype.is_signed and dtype.bits >= 8:  # smaller types are divided in 8 bits
        bad = bad | (b.eq(-1) & a.eq(dtype.int_range[0]))
    return bad.select(1, b)


def _quotient(dtype: DType, a: Term, b: Term) -> Term:
    """AVX has no integer division: through floats of enough bits, where the quotient is exact
    (math/integer_division.py).
    """
    opcode = "sdiv" if dtype.is_signed else "udiv"
    if a.lanes == 1 or b.value.is_constant:
        return a.of(a.w.binary(opcode, a.value, b.value))
    if dtype.bits == 64:
        from hlo.backend.math import integer_division

        return integer_division.quotient(a, b, is_signed=dtype.is_signed)
    scalar = "double" if dtype.bits == 32 else "float"
    x, y = (t.to(scalar, signed=dtype.is_signed) for t in (a, b))
    quotient = x / y
    if dtype.bits < 32:  # via i32: the narrower conversions are not legal everywhere
        return quotient.to("i32").to(a.scalar)
    return quotient.to(a.scalar, signed=dtype.is_signed)


def shift_left(dtype: DType, x: Term, y: Term) -> Term:
    """Zeros in; 0 for y (unsigned) out of range."""
    if _is_within(y, dtype.bits):
        return x << y
    fits, amount = _shift_amount(dtype, y)
    return fits.select(x << amount, 0)


def shift_right_logical(dtype: DType, x: Term, y: Term) -> Term:
    """Zeros in; 0 for y (unsigned) out of range."""
    if _is_within(y, dtype.bits):
        return _zero_extended(x, dtype) >> y
    fits, amount = _shift_amount(dtype, y)
    return fits.select(_zero_extended(x, dtype) >> amount, 0)


def shift_right_arithmetic(dtype: DType, x: Term, y: Term) -> Term:
    """Shifting out of range leaves the sign; so does shifting by width - 1."""
    if _is_within(y, dtype.bits):
        return _sign_extended(x, dtype).ashr(y)
    fits, _ = _shift_amount(dtype, y)
    amount = fits.select(y, dtype.bits - 1)
    return _sign_extended(x, dtype).ashr(amount)


def _is_within(y: Term, limit: int) -> bool:
    """Whether y is a number in the code, the same in all lanes, with 0 <= y < limit."""
    number = y.value.element.integer
    return number is not None and 0 <= number < limit


def _shift_amount(dtype: DType, y: Term) -> tuple[Term, Term]:
    """Whether 0 <= y < width, y taken as unsigned, and a y that LLVM's shifts allow."""
    fits = y.below(dtype.bits)
    return fits, fits.select(y, 0)


def mulhi(dtype: DType, a: Term, b: Term) -> Term:
    """The upper half of the product."""
    wide = f"i{2 * dtype.bits}" if dtype.bits >= 8 else "i16"
    x, y = (t.to(wide, signed=dtype.is_signed) for t in (a, b))
    product = x * y
    high = product.ashr(dtype.bits) if dtype.is_signed else product >> dtype.bits
    return high.to(a.scalar)


def power(dtype: DType, x: Term, y: Term) -> Term:
    """x^y modulo 2^bits; of a negative y that of 1 and -1, else 0."""
    from hlo.backend.math import integer_power

    return integer_power.power(x, y)
