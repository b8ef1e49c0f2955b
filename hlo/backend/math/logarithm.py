"""log, log1p: the natural logarithm and log(1 + x).

x = m 2^k with m in [0.75, 1.5), so that x near 1 has k = 0 and nothing cancels; f = m - 1.
f32: log(1+f) = f - f^2/2 + f^3 p(f). f64: with s = f/(2+f), log(1+f) = f - (f^2/2 - s (f^2/2 + R)),
R = s^2 P(s^2) (the arrangement of Tang 1990 and fdlibm). p and P by Remez, weighted by their share.
"""

from __future__ import annotations

from hlo.backend.math.scaling import (
    avx512,
    avx512_suffix,
    first_of,
    format_of,
    in_register,
    power_of_two,
    split_near_one,
    split_of_any,
)
from hlo.backend.math.term import Term, fma, horner, two_sum

# fmt: off
_P = (
    0.3333333134651184, -0.25000035762786865, 0.2000032663345337, -0.1666511595249176,
    0.14269274473190308, -0.12502601742744446, 0.11395610868930817, -0.1056094542145729,
    0.08018942177295685, -0.031567081809043884,
)  # relative error 2^-31.7
_R = (
    0.6666666666667282, 0.39999999996099583, 0.2857142940642422, 0.22222137592599445,
    0.1818639328201245, 0.15249444246122815, 0.15373978619083223,
)  # 2^-55.9
# fmt: on
_LN2 = {
    "float": (0.693145751953125, 1.42860682030941723212e-6),
    "double": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}


def log(x: Term) -> Term:
    """ln x, below 1 ulp for every positive x, subnormal too; 0 -> -inf, negative -> NaN."""
    if avx512_suffix(in_register(x)):  # its split carries zeros, infinities, signs, NaN through
        m, k = split_of_any(x)
        return _log_near_one(m - 1.0, k)
    usable = _positive_finite(x)
    m, k, _ = split_near_one(usable.select(x, 1.0))
    y = _log_near_one(m - 1.0, k)
    return usable.select(y, _outside(x, x))


def log1p(x: Term) -> Term:
    """ln(1 + x), below 1.5 ulp; the rounding error of 1 + x is added back to the mantissa.

    k = 0 gives f = x exactly, so small x keeps its accuracy (and -0 its sign).
    """
    one_more = x + 1.0
    usable = _positive_finite(one_more)
    u, rest = two_sum(usable.select(x, 0.0), x.const(1.0))
    m, k, exponent = split_near_one(u)
    f = (m - 1.0) + _scaled_down(rest, k, exponent)
    y = _log_near_one(f, k)
    tiny = x.abs() < 2.0 ** -(format_of(x).mantissa + 2)
    return tiny.select(x, usable.select(y, _outside(one_more, x)))


def _scaled_down(rest: Term, k: Term, exponent: Term) -> Term:
    """rest * 2^-k, which for the largest k is too small to count; exponent: k as integers."""
    wide = in_register(rest)
    if avx512_suffix(wide):
        return first_of(rest, avx512("scalef", wide, in_register(-k)))
    last = format_of(rest).bias - 1
    return rest * power_of_two(-(exponent > last).select(last, exponent))


def _positive_finite(x: Term) -> Term:
    return (x > 0.0) & (x < float("inf"))


def _outside(y: Term, x: Term) -> Term:
    """The logarithm of y = 0, y < 0, inf or NaN; x carries the NaN."""
    negative = (y < 0.0).select(float("nan"), x)
    return y.eq(0.0).select(float("-inf"), negative)


def _log_near_one(f: Term, k: Term) -> Term:
    """log(1 + f) + k ln 2 for f in [-0.25, 0.5); the parts are added smallest first."""
    high, low = _LN2[f.scalar]
    half_square = f * f * 0.5
    if f.is_double:
        s = f / (f + 2.0)
        z = s * s
        rest = s * fma(z, horner(z, _R), half_square)
    else:
        rest = f * f * f * horner(f, _P)
    tail = half_square - fma(k, low, rest)
    return fma(k, high, f - tail)
