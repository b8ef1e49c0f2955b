"""rsqrt, cbrt, hypotenuse: roots beside the square root, which is an instruction."""

from __future__ import annotations

from hlo.backend.math.estimates import has_estimates, reciprocal_root
from hlo.backend.math.extremes import maximum, minimum
from hlo.backend.math.scaling import format_of, power_of_two, split_near_one, splits_any
from hlo.backend.math.term import (
    Term,
    estrin,
    fma,
    fmuladd,
    horner,
    outlined,
    residual,
    two_product,
)


def rsqrt(x: Term) -> Term:
    """1/sqrt(x) and a step of Newton's on its residual 1 - x y^2: 0.51 ulp; +-0 -> +-inf."""
    if not has_estimates(x):
        y = 1.0 / x.sqrt()
        better = fmuladd(y * 0.5, _residual(x, y), y)
        return ((x > 0.0) & (x < float("inf"))).select(better, y)
    y = first = reciprocal_root(x)
    if x.is_double:
        y = _stepped(y, fma(-(x * y), y, 1.0))
    better = _stepped(y, _residual(x, y))
    return better.is_nan.select(first, better)  # at 0 and infinity the estimate is right


def _residual(x: Term, y: Term) -> Term:
    """1 - x y^2, the product x y in two parts."""
    product, low = two_product(x, y)
    return fmuladd(-low, y, residual(1.0, product, y))


def _stepped(root: Term, e: Term) -> Term:
    """root (1 + e/2 + 3/8 e^2): 1/sqrt(1 - e) of it but for e^3/3."""
    return fmuladd(root * e, fmuladd(e, 0.375, 0.5), root)


def cbrt(x: Term) -> Term:
    """The real cube root, odd. f32 in double: 0.51 ulp; f64 below 0.6 ulp. Subnormals are right."""
    return outlined("cbrt", [x], _cbrt_f64 if x.is_double else _cbrt_f32, is_straight=True)


def hypotenuse(a: Term, b: Term) -> Term:
    """sqrt(a^2 + b^2) of doubles without overflow in between; NaN when either is NaN."""
    x, y = a.abs(), b.abs()
    larger, smaller = maximum(x, y), minimum(x, y)
    # Scaled by a power of two, which loses nothing that counts.
    huge, tiny = larger > 2.0**500, larger < 2.0**-500
    scale = huge.select(2.0**-600, tiny.select(x.const(2.0**600), 1.0))
    back = huge.select(2.0**600, tiny.select(x.const(2.0**-600), 1.0))
    p, q = larger * scale, smaller * scale
    size = fma(p, p, q * q).sqrt() * back
    return larger.eq(float("inf")).select(larger, size)


_FRACTION, _FIELD = 23, 0xFF  # Bits of a float's fraction; all bits of its exponent.
_LEAST_FIELD, _MOST_FIELD = 27, 253  # Of what is scaled by its own power: 2^-100, 2^126.


def short_hypotenuse(a: Term, b: Term) -> Term:
    """sqrt(a^2 + b^2) of f32: below 1 ulp, 1.2 without multiply-adds; NaN when either is NaN.

    The parts are scaled by the greater one's power of two, which loses nothing that counts, so that
    no square overflows, nor is too small. Numbers without a sign are ordered as their codes are,
    and NaN is above all.
    """
    x, y = a.abs().bits, b.abs().bits
    larger, smaller = x.call("llvm.smax", y), x.call("llvm.smin", y)
    power = larger & (_FIELD << _FRACTION)
    power = power.call("llvm.smax", power.const(_LEAST_FIELD << _FRACTION))
    power = power.call("llvm.smin", power.const(_MOST_FIELD << _FRACTION))
    scale = (power.const((_FIELD - 1) << _FRACTION) - power).real
    p, q = larger.real * scale, smaller.real * scale
    return fmuladd(p, p, q * q).sqrt() * power.real


def double_root(x: Term) -> Term:
    """sqrt(x) of doubles for a result in f32: off by less than 2^-38 of it."""
    if not has_estimates(x):
        return x.sqrt()
    inverse = reciprocal_root(x)
    root = x * inverse
    better = _stepped(root, fma(-root, inverse, 1.0))
    return better.is_nan.select(x, better)  # 0 and infinity are their own roots


def _cbrt_f32(x: Term) -> Term:
    size = x.abs().to("double")
    usable = (size > 0.0) & (size < float("inf"))
    _, root, _, power = _cbrt_of_split(_splittable(usable, size), _THIRD_SHORT)
    return usable.select((root * power).to("float"), x).copysign(x)


def _cbrt_f64(x: Term) -> Term:
    size = x.abs()
    usable = (size > 0.0) & (size < float("inf"))
    scaled, t, slope, power = _cbrt_of_split(_splittable(usable, size), _THIRD)
    # One Newton step with t^3 - x computed in twice the precision.
    square, square_low = two_product(t, t)
    cube, cube_low = two_product(square, t)
    excess = (cube - scaled) + fmuladd(square_low, t, cube_low)
    return usable.select(fmuladd(-excess, slope, t) * power, x).copysign(x)


def _splittable(usable: Term, size: Term) -> Term:
    return size if splits_any(size) else usable.select(size, 1.0)


# m^(-1/3) on [0.75, 1.5) (Remez: 2^-11.9, 2^-14.7).
_THIRD_SHORT = (1.6970711033792714, -1.1886488409832863, 0.6217662571606245, -0.13028518211422466)
_THIRD = (
    1.8380779407416719, -1.7212196246060216, 1.3608355981544005, -0.5771855354793219,
    0.09945401349272283,
)  # fmt: skip
# 2^(i/3) and 2^(-2i/3)/3 for i = -1, 0, 1.
_POWERS = (1.0, 0.23311026195538673, 0.02681078793948645)
_SLOPES = (0.3333333333333333, -0.15957342117012716, 0.03622692948593936)


def _cbrt_of_split(x: Term, inverse: tuple[float, ...]) -> tuple[Term, Term, Term, Term]:
    """x = s 2^3j: s, its cube root to 2^-33 or 2^-41, 1/(3 root^2) and 2^j; x positive, finite.

    x = m 2^(3j + i), |i| <= 1. y ~ m^(-1/3) by a polynomial, then y (1 + e/3 + 2/9 e^2) with
    e = 1 - m y^3: no division. m y^2 is m's root, and 2^(i/3) does not wait for it.
    """
    m, k, _ = split_near_one(x)
    magic = format_of(x).magic
    shifted = fmuladd(k, 1.0 / 3.0, magic)
    i = fmuladd(shifted - magic, -3.0, k)
    y = estrin(m, inverse)
    e = fmuladd(-(m * y), y * y, 1.0)
    y = fmuladd(y * e, fmuladd(e, 2.0 / 9.0, 1.0 / 3.0), y)
    square = y * y
    root = (m * horner(i, _POWERS)) * square
    scaled = m * power_of_two(i.to("i64"))
    third = power_of_two(shifted.bits - x.const(magic).bits)
    return scaled, root, square * horner(i, _SLOPES), third
