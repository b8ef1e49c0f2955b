"""exp, expm1, logistic, tanh: the functions that rest on e^x.

x = n ln 2 + r with |r| <= ln(2)/2 (two-part ln 2, the high part so short that n*hi is exact), then
e^r = 1 + r + r^2 q(r); q is a minimax polynomial (Remez, weight r^2/e^r, coefficients rounded one
after the other with a refit of the rest; relative error of e^r 2^-28.2 for f32, where differences
of it are wanted 2^-33, 2^-61 for f64).

No step makes a subnormal number, which would cost a microcode assist, 25 times the rest: wide
softmax inputs would pay it in every vector. A subnormal result is rounded as an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.backend.math import piece_tables, pieces
from hlo.backend.math.scaling import (
    format_of,
    grown_by_power,
    grown_to_normal,
    has_parts,
    power_of_two,
)
from hlo.backend.math.term import (
    Term,
    estrin,
    fast_two_sum,
    fmuladd,
    halves,
    residual,
    series,
    two_sum,
)


class _Range(Struct, frozen=True):
    """Constants of one float type: e^x is 0 below `zero` (`dead`: far below), finite up to `last`,
    inf above `full`. normal: a little more than from where on it is normal.
    """

    ln2_high: float
    ln2_low: float
    zero: float
    dead: float
    normal: float
    last: float
    full: float
    minus_one: float  # from it on down expm1 is -1
    q: tuple[float, ...]
    q_long: tuple[float, ...]  # for differences of e^x


# fmt: off
EXP_F64 = (
    0.5, 0.16666666666666677, 0.0416666666666666, 0.008333333333321457, 0.0013888888888928335,
    0.0001984126988650898, 2.4801587227582338e-05, 2.7557243859914046e-06,
    2.755736187845215e-07, 2.5109150342499663e-08, 2.0886628566207795e-09,
)  # q of the double type, by weighted least squares on Chebyshev points
# fmt: on

_RANGES = {
    "float": _Range(
        0.693145751953125, 1.42860682030941723212e-6, -103.972084, -110.0, -86.5, 88.72283172607422,
        89.0, -17.4,
        (0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.00836916547268629,
         0.0013837991282343864),
        (0.5, 0.1666666716337204, 0.041666463017463684, 0.008333208970725536,
         0.0013935130555182695, 0.00019943498773500323),
    ),
    "double": _Range(
        6.93147180369123816490e-01, 1.90821492927058770002e-10, -745.1332191019412, -750.0,
        -707.5, 709.782712893384, 710.0, -37.5, EXP_F64, EXP_F64,
    ),
}  # fmt: skip
_LOG2_E = 1.4426950408889634


def exp(x: Term) -> Term:
    """e^x, below 0.95 ulp (f32 0.892, f64 0.92 seen); subnormal results rounded once."""
    c = _RANGES[x.scalar]
    # r beyond its range gives a polynomial of even degree, positive.
    n, shifted, t = nearest_power(x.at_least(c.dead))
    r = fmuladd(n, -c.ln2_low, t)
    return _finite(x, grown_by_power(r, c.q, n, shifted))


def exp_of_sums(x: Term) -> Term:
    """e^x for sums with numbers that are as they were if a subnormal number is added: it has the
    bits of exp where e^x is normal, and is one of the least normal numbers elsewhere.
    """
    c = _RANGES[x.scalar]
    n, shifted, t = nearest_power(x.at_least(c.normal))
    return _finite(x, grown_to_normal(fmuladd(n, -c.ln2_low, t), c.q, n, shifted))


def _finite(x: Term, y: Term) -> Term:
    """e^x, of which y is right where it is finite."""
    if has_parts(x):  # which scale by any power
        return y
    c = _RANGES[x.scalar]
    return (x <= c.last).select(y, x * 2.0 ** format_of(x).bias)  # NaN, infinite


def expm1(x: Term) -> Term:
    """e^x - 1 without cancellation near 0, keeps -0; f32 below 1 ulp, f64 below 1.1 ulp."""
    c = _RANGES[x.scalar]
    bounded = x.at_least(c.minus_one).at_most(c.full)
    if x.is_double:  # by halves 0.92 to 0.95 of the time, with fused steps and without
        k, r, rest = _in_two(bounded, estrin)
    else:
        k, r, rest = _in_two(bounded, in_parts=not x.target.isa.fuses)
    half = power_of_two(k - 1)  # half of 2^k, which itself may overflow
    y, _ = _grown(half, r, rest, *_less(half, 0.5))
    tiny = x.abs() < 2.0 ** -(format_of(x).mantissa + 2)  # also subnormal x, whose square is 0
    return tiny.select(x, y + y)


def quarter_exp(x: Term) -> tuple[Term, Term]:
    """e^x / 4 and (e^x - 1) / 4 for doubles x >= 0, finite as long as cosh(x) is."""
    k, r, rest = _in_two(x.at_most(710.6))
    quarter = power_of_two(k - 2)
    whole, _ = _grown(quarter, r, rest, quarter)
    less, _ = _grown(quarter, r, rest, quarter - 0.25)
    return whole, less


def logistic(x: Term) -> Term:
    """1 / (1 + e^-x) below 1 ulp (f32 0.97), small results too.

    With e^-x = 2^n (1 + p) it is a / (a + b + b p), where a is 2^-n or 1 and b 1 or 2^n, so that
    neither overflows: no rounding of the numerator, and that of the denominator is known.
    """
    fmt, c = format_of(x), _RANGES[x.scalar]
    # Far below it is 0, because the power's code is; far above 1.
    bounded = x.at_least(c.zero - 0.8).at_most(fmt.mantissa + 10.0)
    _, k, r = _remainder(-bounded)
    p = fmuladd(r * r, series(r, c.q), r)
    spare = fmt.mantissa + 1  # a 2^spare is normal even where the result is not
    up, down = ((k > 0).select(k, 0), (k < 0).select(k, 0))
    unit = 2.0**-spare
    a, b = power_of_two(spare - up), power_of_two(down)
    small = a * unit * b
    whole = small + 1.0
    below = fmuladd(b, p, whole)
    low = fmuladd(b, p, whole - below) + (small - (whole - 1.0))
    inverse = 1.0 / below
    lacking = fmuladd(-low, inverse, residual(1.0, below, inverse))
    return fmuladd(inverse, lacking, inverse) * unit * a


def tanh(x: Term) -> Term:
    """Odd; below 1 ulp (f32), 1.6 ulp (f64); +-inf -> +-1."""
    if pieces.has_tables(x, piece_tables.TANH[0].rows):
        return pieces.odd(x, piece_tables.TANH)
    return (_tanh_f64(x) if x.is_double else _tanh_f32(x)).copysign(x)


def _tanh_f32(x: Term) -> Term:
    """y/(y + 1), y = (e^2|x| - 1)/2, everything in two parts."""
    k, r, rest = _in_two(x.abs().at_most(10.0) * 2.0)
    half = power_of_two(k - 1)
    y, low = _grown(half, r, rest, half - 0.5)
    below, lost = two_sum(y, y.const(1.0))
    inverse = 1.0 / below
    quotient = y * inverse
    lacking = residual(y, quotient, below) + fmuladd(-quotient, lost + low, low)
    return fmuladd(lacking, inverse, quotient)


def _tanh_f64(x: Term) -> Term:
    """y/(y + 1), y = (e^-2|x| - 1)/2; where the quotient is q, 1/(y + 1) is 1 - q."""
    k, r, rest = _in_two(x.abs().at_most(22.0) * -2.0, estrin)  # the divider has time for it
    half = power_of_two(k - 1)
    y, low = _grown(half, r, rest, half - 0.5)
    below = y + 1.0
    quotient = y / below
    lost = y - (below - 1.0)
    return fmuladd(fmuladd(-quotient, lost, low), 1.0 - quotient, quotient)


def _remainder(x: Term) -> tuple[Term, Term, Term]:
    """x = n ln 2 + r: n as floats, n as integers, r."""
    n, shifted, t = nearest_power(x)
    return n, power_lanes(shifted), fmuladd(n, -_RANGES[x.scalar].ln2_low, t)


def _in_two(
    x: Term,
    polynomial: Callable[[Term, Sequence[float]], Term] = series,
    *,
    in_parts: bool = False,
) -> tuple[Term, Term, Term]:
    """e^x = 2^n (1 + r + rest): n as integers, and two parts, the second small beside the first.

    in_parts: r^2/2 is added unrounded, for differences that are not far larger than it.
    """
    n, shifted, t = nearest_power(x)
    c = _RANGES[x.scalar]
    r = fmuladd(n, -c.ln2_low, t)
    low = fmuladd(n, -c.ln2_low, t - r)
    if in_parts:
        rest = _half_square(r, fmuladd(r * r, r * polynomial(r, c.q_long[1:]), low))
    else:
        rest = fmuladd(r * r, polynomial(r, c.q_long), low)
    return power_lanes(shifted), r, rest


def _half_square(r: Term, small: Term) -> Term:
    """r^2/2 + small, rounded nearly once: with r = high + low it is high^2/2, which is exact, and
    low (r + high)/2.
    """
    high, low = halves(r)
    return high * high * 0.5 + (low * 0.5 * (r + high) + small)


def nearest_power(x: Term) -> tuple[Term, Term, Term]:
    """n = x/ln 2 rounded, n + magic, and x less n times the high part of ln 2."""
    magic = format_of(x).magic
    shifted = fmuladd(x, _LOG2_E, magic)
    n = shifted - magic
    return n, shifted, fmuladd(n, -_RANGES[x.scalar].ln2_high, x)


def power_lanes(shifted: Term) -> Term:
    """n as integer lanes, of n + magic."""
    return shifted.bits - shifted.const(format_of(shifted).magic).bits


def _grown(
    power: Term, r: Term, rest: Term, base: Term, low: Term | None = None
) -> tuple[Term, Term]:
    """power (r + rest) + base + low and its rounding error; |base| >= |power r|, or it is 0.

    The product with a power of two is exact, so that the first sum's error is known.
    """
    first = fmuladd(power, r, base)
    lost = fmuladd(power, r, base - first)
    return fast_two_sum(first, fmuladd(power, rest, lost if low is None else lost + low))


def _less(power: Term, number: float) -> tuple[Term, Term]:
    """power - number in two parts; the second only where the power is far larger."""
    rest = power - number
    return rest, (power - rest) - number
