"""log, log1p: the natural logarithm and log(1 + x).

x = m 2^-n with m in [0.75, 1.5), so that x near 1 has n = 0 and nothing cancels; f = m - 1.
f32: log(1+f) = f - f^2/2 + f^3 p(f); where a register holds a table f = m/c - 1 for one of 32 c and
log(c) is added, at two thirds of the work. f64: with s = f/(2+f), log(1+f) is
f - (f^2/2 - s (f^2/2 + R)), R = s^2 P(s^2) (the arrangement of Tang 1990 and fdlibm). p and P by
Remez, weighted by their share.
"""

from __future__ import annotations

from hlo.backend.math import log_tables, pieces
from hlo.backend.math.scaling import (
    first_of,
    format_of,
    has_parts,
    in_register,
    power_of_two,
    scaled,
    split_near_one,
    split_of_any,
)
from hlo.backend.math.term import Term, estrin, fast_two_sum, fma, fmuladd, horner

# fmt: off
_P = (
    0.3333333134651184, -0.25000035762786865, 0.2000032663345337, -0.1666511595249176,
    0.14269274473190308, -0.12502601742744446, 0.11395610868930817, -0.1056094542145729,
    0.08018942177295685, -0.031567081809043884,
)  # relative error 2^-31.7
_P_SHORT = (-0.5, 0.33334431052207947, -0.25007274746894836, 0.18865293264389038)
# log(1 + f) = f + f^2 p(f) for f in [-1/32, 1/16], 2^-28 of it
_R = (
    0.6666666666667282, 0.39999999996099583, 0.2857142940642422, 0.22222137592599445,
    0.1818639328201245, 0.15249444246122815, 0.15373978619083223,
)  # 2^-55.9
# fmt: on
_LN2 = {
    "float": (0.693145751953125, 1.42860682030941723212e-6),
    "double": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
_LARGEST = {"float": (2.0 - 2.0**-23) * 2.0**127, "double": (2.0 - 2.0**-52) * 2.0**1023}


def log(x: Term) -> Term:
    """ln x, below 1 ulp for every positive x, subnormal too; 0 -> -inf, negative -> NaN."""
    if has_parts(in_register(x)):  # its split carries zeros, infinities, signs, NaN through
        return _log_of_split(*split_of_any(x))
    m, k, _ = split_near_one(x)
    return _log_of_split(m, -_or_none(k, x))


def log1p(x: Term) -> Term:
    """ln(1 + x), below 1.5 ulp; the rounding error of 1 + x is added back to the mantissa.

    n = 0 gives m - 1 + rest = x exactly, so small x keeps its accuracy. Where 1 + x is 1 the result
    is x, to half an ulp; the sign of -0 too.
    """
    u = x + 1.0
    rest = x.at_most(1.0) - (u - x.at_least(1.0))
    is_tiny = u.eq(1.0)
    rest = is_tiny.select(0.0, rest)  # whose square would be subnormal: slow
    if has_parts(in_register(x)):
        m, n = split_of_any(u)
        # 0 times the largest power is 0; NaN, for u = inf, times 2^-inf too.
        scale = in_register(n.at_most(format_of(x).bias))
        rest = first_of(x, scaled(in_register(rest), scale))
        return is_tiny.select(x, _log_of_split(m, n, rest))
    m, k, exponent = split_near_one(u)
    last = format_of(x).bias - 1  # which leaves too little to count
    rest = (u < float("inf")).select(rest, 0.0)
    rest = rest * power_of_two(-(exponent > last).select(last, exponent))
    return is_tiny.select(x, _log_of_split(m, -_or_none(k, u), rest))


def _or_none(k: Term, x: Term) -> Term:
    """k of x = m 2^k; what has no finite logarithm has such a k: -inf for 0, inf for inf, NaN for
    x < 0 and NaN. By sums and masks, beside the polynomial: selections would come after it,
    and take some processors three steps each.
    """
    largest = _LARGEST[x.scalar]
    beyond = x.at_least(largest) - largest
    nothing = x.eq(0.0).select(float("inf"), x.const(0.0))
    found = k + (beyond - nothing)
    return (x < 0.0).select(-1, found.bits).real


def _log_of_split(m: Term, n: Term, rest: Term | None = None) -> Term:
    """log(m + rest) - n ln 2 for m in [0.75, 1.5)."""
    high, low = _LN2[m.scalar]
    if pieces.has_tables(m, (log_tables.INVERSES, log_tables.LOGARITHMS)):
        return _log_by_tables(m, n, rest)
    f = m - 1.0 if rest is None else (m - 1.0) + rest
    half_square = f * f * 0.5
    if not f.is_double:
        square = f * f
        even, odd = horner(square, _P[::2]), horner(square, _P[1::2])
        tail = half_square - fmuladd(n, -low, square * f * fmuladd(odd, f, even))
        return fmuladd(n, -high, f - tail)
    s = f / (m + 1.0 if rest is None else f + 2.0)  # the same, without waiting for f
    z = s * s
    if rest is not None:  # which the other units than the divider have much to do for
        tail = half_square - fmuladd(s, fmuladd(z, estrin(z, _R), half_square), n * -low)
        return fmuladd(n, -high, f - tail)
    # Beside the division and the polynomial: the sum of what is known before them.
    known, lost = fast_two_sum(f, -half_square)
    begun = fmuladd(s, half_square, fmuladd(n, -low, lost))
    return fmuladd(n, -high, known + fmuladd(s * z, estrin(z, _R), begun))


def _log_by_tables(m: Term, n: Term, rest: Term | None) -> Term:
    """The same for f32: log(1 + r) + log(c), r = m/c - 1; the parts are added smallest first."""
    high, low = _LN2[m.scalar]
    part = m.bits >> log_tables.INDEX_SHIFT
    inverse = pieces.entry(log_tables.INVERSES, part)
    r = fma(m, inverse, -1.0)
    exact = fma(n, -high, pieces.entry(log_tables.LOGARITHMS, part))
    if rest is None:
        return exact + fma(n, -low, fma(r * r, horner(r, _P_SHORT), r))
    rest = rest * inverse
    whole = r + rest
    tail = fma(whole * whole, horner(whole, _P_SHORT), rest)
    return exact + (r + fma(n, -low, tail))
