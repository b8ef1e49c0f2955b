"""exp, expm1, logistic, tanh: the functions that rest on e^x.

x = n ln 2 + r with |r| <= ln(2)/2 (two-part ln 2, the high part so short that n*hi is exact), then
e^r = 1 + r + r^2 q(r); q is a minimax polynomial (Remez, weight r^2/e^r, coefficients rounded one
after the other with a refit of the rest; relative error of e^r 2^-28.2 for f32, 2^-61 for f64).

No step makes a subnormal number, which would cost a microcode assist, 25 times the rest: wide
softmax inputs would pay it in every vector. A subnormal result is rounded as an integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.backend.math import piece_tables, pieces
from hlo.backend.math.scaling import (
    avx512_suffix,
    format_of,
    grown_by_power,
    power_of_two,
    times_power,
)
from hlo.backend.math.term import Term, estrin, fast_two_sum, fma, horner, two_sum


class _Range(Struct, frozen=True):
    """Constants of one float type: e^x is 0 below `zero` (`dead`: far below), inf above `full`."""

    ln2_high: float
    ln2_low: float
    zero: float
    dead: float
    full: float
    minus_one: float  # below it expm1 is -1
    q: tuple[float, ...]


# fmt: off
EXP_F64 = (
    0.5, 0.16666666666666677, 0.0416666666666666, 0.008333333333321457, 0.0013888888888928335,
    0.0001984126988650898, 2.4801587227582338e-05, 2.7557243859914046e-06,
    2.755736187845215e-07, 2.5109150342499663e-08, 2.0886628566207795e-09,
)  # q of the double type, by weighted least squares on Chebyshev points
# fmt: on

_RANGES = {
    "float": _Range(
        0.693145751953125, 1.42860682030941723212e-6, -103.972084, -110.0, 89.0, -17.4,
        (0.4999999403953552, 0.16666516661643982, 0.04166810214519501, 0.00836916547268629,
         0.0013837991282343864),
    ),
    "double": _Range(
        6.93147180369123816490e-01, 1.90821492927058770002e-10, -745.1332191019412, -750.0, 710.0,
        -37.5, EXP_F64,
    ),
}  # fmt: skip
_LOG2_E = 1.4426950408889634


def exp(x: Term) -> Term:
    """e^x, below 0.95 ulp (f32 0.88, f64 0.85 seen); subnormal results rounded once."""
    c = _RANGES[x.scalar]
    # AVX-512 scales by any power; r beyond its range gives a polynomial of even degree, positive.
    n, k, r = _remainder((x if avx512_suffix(x) else x.at_most(c.full)).at_least(c.dead))
    fmt = format_of(x)
    # In units of the least subnormal a small result is an integer, and this its code.
    least = fmt.bias - 1 + fmt.mantissa
    small = n < 2.0 - fmt.bias
    y = _scaled(r, small.select(n + least, n), small.select(k + least, k))
    return small.select(y.to_nearest_integer(), y.bits).real


def _exp_of_few_subnormals(x: Term) -> Term:
    """For x <= 0, in less but for the assists, which what follows had anyway.

    1 is added last, so that e^x near 1, which logistic adds 1 to, is a little better than exp's.
    """
    dead = x < _RANGES[x.scalar].zero
    n, k, p = _reduced(dead.select(0.0, x))
    return dead.select(0.0, times_power(p + 1.0, n, k))


def _scaled(r: Term, n: Term, k: Term) -> Term:
    """e^r 2^n; the polynomial's last step adds 1, or the power, and rounds as the sum alone."""
    return grown_by_power(r, fma(r, horner(r, _RANGES[r.scalar].q), 1.0), n, k)


def expm1(x: Term) -> Term:
    """e^x - 1 without cancellation near 0, keeps -0; f32 below 1.5 ulp, f64 below 1.1 ulp."""
    c = _RANGES[x.scalar]
    flat = x < c.minus_one
    live = flat.select(0.0, x.at_most(c.full))
    k, p, low = _reduced_in_two(live)
    half = power_of_two(k - 1)  # half of 2^k, which itself may overflow
    y = _grown(half, p, low, half - 0.5)
    tiny = live.abs() < 2.0 ** -(format_of(x).mantissa + 2)  # also subnormal x, whose square is 0
    return flat.select(-1.0, tiny.select(x, y + y))


def quarter_exp(x: Term) -> tuple[Term, Term]:
    """e^x / 4 and (e^x - 1) / 4 for doubles x >= 0, finite as long as cosh(x) is."""
    k, p, low = _reduced_in_two(x.at_most(710.6))
    quarter = power_of_two(k - 2)
    return _grown(quarter, p, low, quarter), _grown(quarter, p, low, quarter - 0.25)


def logistic(x: Term) -> Term:
    """1 / (1 + e^-x) from e^-|x|, which cannot overflow; below 2.3 ulp, small results too."""
    e = _exp_of_few_subnormals(-x.abs())
    return (x < 0.0).select(e, 1.0) / (e + 1.0)


def tanh(x: Term) -> Term:
    """Odd; below 1 ulp (f32 by tables; else 1.5), 2.5 ulp (f64); +-inf -> +-1."""
    if pieces.has_tables(x):
        return pieces.odd(x, piece_tables.TANH)
    return _tanh_f64(x) if x.is_double else _tanh_f32(x)


# tanh(x)/x = 1 + y p(y), y = x^2 <= 0.625^2: Remez with weight y, relative error 2^-27.8.
_TANH_SMALL = (
    -0.3333328366279602, 0.1333148330450058, -0.053742773830890656, 0.020648062229156494,
    -0.005714063532650471,
)  # fmt: skip


def _tanh_f32(x: Term) -> Term:
    """The polynomial below 0.625, else 1 - 2/(e^2|x| + 1)."""
    size = x.abs()
    small = size < 0.625
    y = small.select(size, 0.0)
    y = y * y
    odd = fma(size * y, horner(y, _TANH_SMALL), size)
    # The bound keeps the exponential finite; 1 - 2/(e^20 + 1) is 1 already.
    e = exp(size.at_most(10.0) * 2.0)
    large = 1.0 - 2.0 / (e + 1.0)
    return small.select(odd, large).copysign(x)


def _tanh_f64(x: Term) -> Term:
    """y/(y + 1), y = (e^2|x| - 1)/2: p/2 for k = 0, and beyond 2^(k-1) - 1/2 is most of it."""
    _, k, p = _reduced(x.abs().at_most(22.0) * 2.0, estrin)  # the divider has time for it
    half = power_of_two(k - 1)
    y = fma(half, p, half - 0.5)
    return (y / (y + 1.0)).copysign(x)


def _reduced(
    x: Term, polynomial: Callable[[Term, Sequence[float]], Term] = horner
) -> tuple[Term, Term, Term]:
    """e^x = 2^n (1 + p): n as floats, n as integers, p."""
    n, k, r = _remainder(x)
    return n, k, fma(r * r, polynomial(r, _RANGES[x.scalar].q), r)


def _remainder(x: Term) -> tuple[Term, Term, Term]:
    """x = n ln 2 + r: n as floats, n as integers, r."""
    n, k, t = _nearest_power(x)
    return n, k, fma(n, -_RANGES[x.scalar].ln2_low, t)


def _reduced_in_two(x: Term) -> tuple[Term, Term, Term]:
    """n as integers and p as a sum of two; f32's budget needs no second part."""
    if not x.is_double:
        _, k, p = _reduced(x)
        return k, p, x.const(0.0)
    n, k, t = _nearest_power(x)
    c = _RANGES[x.scalar]
    r = fma(n, -c.ln2_low, t)
    rest = fma(r * r, horner(r, c.q), fma(n, -c.ln2_low, t - r))
    p, low = fast_two_sum(r, rest)
    return k, p, low


def _nearest_power(x: Term) -> tuple[Term, Term, Term]:
    """n = x/ln 2 rounded, as floats and as integers, and x less n times the high part of ln 2."""
    magic = format_of(x).magic
    shifted = fma(x, _LOG2_E, magic)
    n = shifted - magic
    k = shifted.bits - x.const(magic).bits
    return n, k, fma(n, -_RANGES[x.scalar].ln2_high, x)


def _grown(power: Term, p: Term, low: Term, base: Term) -> Term:
    """power (p + low) + base; the product with a power of two is exact."""
    if not p.is_double:
        return fma(power, p, base)
    total, lost = two_sum(base, power * p)
    return total + fma(power, low, lost)
