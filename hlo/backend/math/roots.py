"""rsqrt, cbrt, hypotenuse: roots beside the square root, which is an instruction."""

from __future__ import annotations

from hlo.backend.math.estimates import has_estimates, reciprocal_root
from hlo.backend.math.scaling import power_of_two, split_near_one
from hlo.backend.math.term import Term, fma, outlined, two_product


def rsqrt(x: Term) -> Term:
    """1/sqrt(x) and a step of Newton's on its residual 1 - x y^2: 0.51 ulp; +-0 -> +-inf."""
    if not has_estimates(x):
        y = 1.0 / x.sqrt()
        better = fma(y * 0.5, _residual(x, y), y)
        return ((x > 0.0) & (x < float("inf"))).select(better, y)
    y = first = reciprocal_root(x)
    if x.is_double:
        y = _stepped(y, fma(-(x * y), y, 1.0))
    better = _stepped(y, _residual(x, y))
    return better.is_nan.select(first, better)  # at 0 and infinity the estimate is right


def _residual(x: Term, y: Term) -> Term:
    """1 - x y^2, the product x y in two parts."""
    product, low = two_product(x, y)
    return fma(-low, y, fma(-product, y, 1.0))


def _stepped(root: Term, e: Term) -> Term:
    """root (1 + e/2 + 3/8 e^2): 1/sqrt(1 - e) of it but for e^3/3."""
    return fma(root * e, fma(e, 0.375, 0.5), root)


def cbrt(x: Term) -> Term:
    """The real cube root, odd. f32 in double: 0.51 ulp; f64 below 0.6 ulp. Subnormals are right."""
    return outlined("cbrt", [x], _cbrt_f64 if x.is_double else _cbrt_f32)


def hypotenuse(a: Term, b: Term) -> Term:
    """sqrt(a^2 + b^2) of doubles without overflow in between; NaN when either is NaN."""
    x, y = a.abs(), b.abs()
    larger, smaller = x.call("llvm.maximum", y), x.call("llvm.minimum", y)
    # Scaled by a power of two, which loses nothing that counts.
    huge, tiny = larger > 2.0**500, larger < 2.0**-500
    scale = huge.select(2.0**-600, tiny.select(x.const(2.0**600), 1.0))
    back = huge.select(2.0**600, tiny.select(x.const(2.0**-600), 1.0))
    p, q = larger * scale, smaller * scale
    size = fma(p, p, q * q).sqrt() * back
    return larger.eq(float("inf")).select(larger, size)


def short_hypotenuse(a: Term, b: Term) -> Term:
    """sqrt(a^2 + b^2) of f32 parts, as doubles (double_root)."""
    x, y = a.to("double"), b.to("double")
    return double_root(fma(x, x, y * y))


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
    root = _approximation(usable.select(size, 1.0))
    return usable.select(root.to("float"), x).copysign(x)


def _cbrt_f64(x: Term) -> Term:
    size = x.abs()
    usable = (size > 0.0) & (size < float("inf"))
    m, k, _ = split_near_one(usable.select(size, 1.0))
    third = (k * (1.0 / 3.0)).rounded()
    rest = (k - third * 3.0).to("i64")
    scaled = m * power_of_two(rest)
    t = _approximation(scaled)
    # One Newton step with t^3 - x computed in twice the precision.
    square, square_low = two_product(t, t)
    cube, cube_low = two_product(square, t)
    excess = (cube - scaled) + fma(square_low, t, cube_low)
    root = (t - excess / (square * 3.0)) * power_of_two(third.to("i64"))
    return usable.select(root, x).copysign(x)


def _approximation(x: Term) -> Term:
    """x^(1/3) to 2^-45, x normal and below 2^300: a third of the exponent, then Halley twice."""
    encoded = (x.bits >> 32).to("i32").to("double")
    # The code of 2^e(1+m) grows like log2: a third of it, and the bias put back (Kahan 1991).
    guess = fma(encoded, 1.0 / 3.0, 715094163.0).to("i32").to("i64", signed=False) << 32
    t = guess.real
    for _ in range(2):
        cube = t * t * t
        t = t * (cube + x * 2.0) / (cube * 2.0 + x)
    return t
