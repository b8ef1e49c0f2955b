"""power: C's pow for floats, as a function of the module.

|x|^y = e^(y ln|x|) with the logarithm in more precision than the result: f32 computes log2 and exp2
in double (0.51 ulp); f64 carries ln|x| and the product in two doubles (below 1.7 ulp). Then come
the sign and the cases of C99 F.9.4.4. Of a positive number in the code (2^y, 10000^y, 0.9^t) the
logarithm is a number in the code, and no case is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal

from hlo.backend.math import rounding
from hlo.backend.math.exponential import EXP_F64
from hlo.backend.math.known_power import known_power
from hlo.backend.math.scaling import (
    FORMATS,
    power_of_two,
    split_near_one,
    splits_any,
    times_power,
)
from hlo.backend.math.term import (
    Term,
    estrin,
    fast_two_sum,
    fmuladd,
    outlined,
    residual,
    two_product,
    two_sum,
)

_INF = float("inf")
_MAGIC = FORMATS["double"].magic
_LN2, _LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def power(x: Term, y: Term) -> Term:
    """x^y; x^0 and 1^y are 1 also for NaN; a negative x needs an integral y."""
    known = known_power(x, y)
    if known is not None:
        return known
    base = x.value.element.number
    if base == 1.0:
        return x
    if base is not None and 0 < base < _INF:
        return _power_of_f64(base, y) if y.is_double else _power_of_f32(base, y)
    return outlined("pow", [x, y], _power_f64 if x.is_double else _power_f32, is_straight=True)


def _power_of_f32(base: float, y: Term) -> Term:
    exponent = y.to("double")
    return _exp2_of_product(exponent.const(math.log2(base)), exponent).to("float")


def _power_of_f64(base: float, y: Term) -> Term:
    logarithm = Decimal(base).ln(Context(prec=40))
    high = float(logarithm)
    low = float(logarithm - Decimal(high))
    return y.is_nan.select(y, _of_logarithm(y.const(high), y.const(low), y))


def _power_f32(x: Term, y: Term) -> Term:
    size, exponent = x.abs().to("double"), y.to("double")
    magnitude = _of_usable(
        size, exponent, lambda positive: _exp2_of_product(_log2(positive), exponent)
    )
    return _with_cases(x, y, magnitude.to("float"))


def _power_f64(x: Term, y: Term) -> Term:
    magnitude = _of_usable(x.abs(), y, lambda positive: _of_logarithm(*_log_in_two(positive), y))
    return _with_cases(x, y, magnitude)


def _of_logarithm(high: Term, low: Term, y: Term) -> Term:
    """e^(y (high + low)) for y other than NaN."""
    # Beyond 2^80 y decides by its sign alone; below, no product here overflows.
    bounded = y.at_most(2.0**80).at_least(-(2.0**80))
    product, rest = two_product(high, bounded)
    return _exp_of_two(product, fmuladd(low, bounded, rest))


def _of_usable(size: Term, y: Term, magnitude: Callable[[Term], Term]) -> Term:
    """|x|^y for y other than 0 and |x|, y other than NaN, by a function of positive finite |x|."""
    if splits_any(size):  # an infinite logarithm of 0 and inf makes the power 0 or infinite
        return magnitude(size)
    usable = (size > 0.0) & (size < _INF)
    grows = (size < 1.0) ^ (y > 0.0)
    limit = grows.select(size.const(_INF), 0.0)
    return usable.select(magnitude(usable.select(size, 1.0)), limit)


def _with_cases(x: Term, y: Term, magnitude: Term) -> Term:
    one = x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & y.abs().eq(_INF))
    whole = rounding.truncated(y).eq(y)
    half = y * 0.5
    odd = whole & rounding.truncated(half).ne(half)
    signed = odd.select(magnitude.copysign(x), magnitude)
    undefined = (x < 0.0) & (x > -_INF) & ~whole
    result = undefined.select(float("nan"), signed)
    return one.select(1.0, (x.is_nan | y.is_nan).select(x + y, result))


# 2 atanh(s)/ln 2 = s (L0 + L1 z + ...), z = s^2 <= 0.04 (Remez, 2^-42).
_LOG2 = (
    2.8853900817774205, 0.9617966948317397, 0.5770777541094304, 0.4122262927465381,
    0.3192811899559586, 0.29087412172715976,
)  # fmt: skip
# 2^f - 1 = f (E0 + E1 f + ...), |f| <= 1/2 (2^-34).
_EXP2 = (
    0.6931471807908102, 0.24022651074219498, 0.055504101536302836, 0.009618037156028065,
    0.001333408200362806, 0.00015467044296367616, 1.5165643717141678e-05,
)  # fmt: skip


def _log2(x: Term) -> Term:
    m, k, _ = split_near_one(x)
    s = (m - 1.0) / (m + 1.0)
    return fmuladd(s, estrin(s * s, _LOG2), k)


def _exp2_of_product(x: Term, y: Term) -> Term:
    """2^(x y) in double, for an f32 result: beyond 2^200 and 2^-200 it is infinite or 0."""
    exponent = x * y
    shifted = fmuladd(x, y, _MAGIC)
    n = shifted - _MAGIC
    f = fmuladd(x, y, -n)
    power = power_of_two(shifted.bits - x.const(_MAGIC).bits)
    value = fmuladd(f * power, estrin(f, _EXP2), power)
    return _within(exponent, 200.0, value)


def _within(exponent: Term, most: float, value: Term) -> Term:
    """The value, or what it is where the exponent is beyond: 0 or infinite."""
    limit = (exponent > 0.0).select(value.const(_INF), 0.0)
    return (exponent.abs() > most).select(limit, value)


# ln m = 2s + s^3 (2/3 + z (2/5 + z R(z))), z = s^2 <= 0.04 (R: 2^-62 of its share).
_THIRD, _THIRD_LOW = 0.6666666666666666, 3.700743415417188e-17
_FIFTH, _FIFTH_LOW = 0.4, -2.2204460492503132e-17
_R = (
    0.28571428571428487, 0.22222222222278695, 0.18181818167391273, 0.15384617228261813,
    0.1333320125384769, 0.11770245498984806, 0.10391790132801734, 0.11256990431013299,
)  # fmt: skip


def _log_in_two(x: Term) -> tuple[Term, Term]:
    """ln x as a sum of two doubles, relative error about 2^-64; the second below 2^-40 of it."""
    m, k, _ = split_near_one(x)
    f = m - 1.0
    d, d_low = two_sum(m, m.const(1.0))
    s = f / d
    s_low = fmuladd(-s, d_low, residual(f, s, d)) * (1.0 / d)  # which does not wait for s
    z, z_low = two_product(s, s)
    z_low = fmuladd(s * 2.0, s_low, z_low)
    q, q_low = fast_two_sum(z.const(_FIFTH), z * estrin(z, _R))
    p, p_low = two_product(z, q)
    t, t_low = fast_two_sum(z.const(_THIRD), p)
    t_low = t_low + (fmuladd(z, q_low + _FIFTH_LOW, p_low) + _THIRD_LOW)
    # u = z t, v = s u: the cubic term and what follows
    u, u_low = two_product(z, t)
    u_low = u_low + fmuladd(z, t_low, z_low * t)
    v, v_low = two_product(s, u)
    v_low = v_low + fmuladd(s, u_low, s_low * u)
    high, low = fast_two_sum(s * 2.0, v)
    low = low + (v_low + s_low * 2.0)
    power, power_low = two_product(k, k.const(_LN2))
    total, rest = two_sum(power, high)
    return total, rest + (fmuladd(k, _LN2_REST, power_low) + low)


def _exp_of_two(x: Term, low: Term) -> Term:
    """e^(x + low), rounded nearly once; |low| < 2^-40 |x| enters last, as it is known last."""
    shifted = fmuladd(x, 1.4426950408889634, _MAGIC)
    n = shifted - _MAGIC
    k = shifted.bits - x.const(_MAGIC).bits
    part = fmuladd(n, -_LN2_HIGH, x)
    r = fmuladd(n, -_LN2_LOW, part)
    low = low + fmuladd(n, -_LN2_LOW, part - r)
    one, lost = fast_two_sum(r.const(1.0), r)
    square, q = r * r, estrin(r, EXP_F64)
    tail = fmuladd(low, square * q, fmuladd(square, q, fmuladd(low, one, lost)))
    return _within(x, 800.0, times_power(one + tail, n, k))
