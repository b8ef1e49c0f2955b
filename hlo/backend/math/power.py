"""power: C's pow for floats, as a function of the module.

|x|^y = e^(y ln|x|) with the logarithm in more precision than the result: f32 computes log2 and exp2
in double (0.51 ulp); f64 carries ln|x| and the product in two doubles (below 0.8 ulp). Then come
the sign and the cases of C99 F.9.4.4.
"""

from __future__ import annotations

from hlo.backend.math.exponential import EXP_F64
from hlo.backend.math.known_power import known_power
from hlo.backend.math.scaling import (
    FORMATS,
    avx512_suffix,
    in_register,
    power_of_two,
    split_near_one,
    times_power,
)
from hlo.backend.math.term import (
    Term,
    fast_two_sum,
    fma,
    horner,
    outlined,
    two_product,
    two_sum,
)

_INF = float("inf")
_MAGIC = FORMATS["double"].magic
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10


def power(x: Term, y: Term) -> Term:
    """x^y; x^0 and 1^y are 1 also for NaN; a negative x needs an integral y."""
    known = known_power(x, y)
    if known is not None:
        return known
    return outlined("pow", [x, y], _power_f64 if x.is_double else _power_f32)


def _power_f32(x: Term, y: Term) -> Term:
    size = x.abs().to("double")
    usable = (size > 0.0) & (size < _INF)
    exponent = y.to("double") * _log2(_splittable(usable, size))
    exponent = usable.select(exponent, _outside(size, y.to("double")))
    return _with_cases(x, y, _exp2(exponent).to("float"))


def _power_f64(x: Term, y: Term) -> Term:
    size = x.abs()
    usable = (size > 0.0) & (size < _INF)
    high, low = _log_in_two(_splittable(usable, size))
    # Beyond 2^80 y decides by its sign alone; below, no product here overflows.
    bounded = y.at_most(2.0**80).at_least(-(2.0**80))
    product, rest = two_product(high, bounded)
    rest = fma(low, bounded, rest)
    product = usable.select(product, _outside(size, y))
    return _with_cases(x, y, _exp_of_two(product, usable.select(rest, 0.0)))


def _splittable(usable: Term, size: Term) -> Term:
    """AVX-512 splits zeros, infinities and NaN too: what comes of them is not used."""
    return size if avx512_suffix(in_register(size)) else usable.select(size, 1.0)


def _outside(size: Term, y: Term) -> Term:
    """The exponent for |x| = 0 or inf (an infinity of the right sign) and for NaN."""
    return size.eq(0.0).select(-y, y) * size.eq(0.0).select(_INF, size)


def _with_cases(x: Term, y: Term, magnitude: Term) -> Term:
    one = x.eq(1.0) | y.eq(0.0) | (x.eq(-1.0) & y.abs().eq(_INF))
    whole = y.truncated().eq(y)
    half = y * 0.5
    odd = whole & half.truncated().ne(half)
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
    return fma(s, horner(s * s, _LOG2), k)


def _exp2(x: Term) -> Term:
    """2^x in double, for x whose result as f32 matters: beyond +-200 it is 0 or infinite."""
    bounded = x.at_most(200.0).at_least(-200.0)
    shifted = bounded + _MAGIC
    n = shifted - _MAGIC
    f = bounded - n
    return fma(f, horner(f, _EXP2), 1.0) * power_of_two(shifted.bits - x.const(_MAGIC).bits)


# ln m = 2s + s^3 (2/3 + z Q(z)), z = s^2 <= 0.0295 (Q: Remez, 2^-54 of its share).
_THIRD, _THIRD_LOW = 0.6666666666666666, 3.700743415417188e-17
_Q = (
    0.4, 0.28571428571421537, 0.22222222225844304, 0.18181817492155394, 0.1538467600083357,
    0.13330799855115574, 0.11804502188935805, 0.10775026172954795,
)  # fmt: skip


def _log_in_two(x: Term) -> tuple[Term, Term]:
    """ln x as a sum of two doubles, relative error about 2^-64."""
    m, k, _ = split_near_one(x)
    upper = m > 1.4142135623730951
    m, k = upper.select(m * 0.5, m), upper.select(k + 1.0, k)
    f = m - 1.0
    d, d_low = two_sum(m, m.const(1.0))
    s = f / d
    s_low = fma(-s, d_low, fma(-s, d, f)) * (1.0 / d)  # which does not wait for s
    z, z_low = two_product(s, s)
    z_low = fma(s * 2.0, s_low, z_low)
    t, t_low = fast_two_sum(z.const(_THIRD), z * horner(z, _Q))
    t_low = t_low + _THIRD_LOW
    # u = z t, v = s u: the cubic term and what follows
    u, u_low = two_product(z, t)
    u_low = u_low + fma(z, t_low, z_low * t)
    v, v_low = two_product(s, u)
    v_low = v_low + fma(s, u_low, s_low * u)
    high, low = fast_two_sum(s * 2.0, v)
    low = low + (v_low + s_low * 2.0)
    total, rest = two_sum(k * _LN2_HIGH, high)
    return fast_two_sum(total, rest + fma(k, _LN2_LOW, low))


def _exp_of_two(x: Term, low: Term) -> Term:
    """e^(x + low), rounded nearly once."""
    low = (x.abs() > 800.0).select(0.0, low)
    bounded = x.at_most(800.0).at_least(-800.0)
    shifted = fma(bounded, 1.4426950408889634, _MAGIC)
    n = shifted - _MAGIC
    k = shifted.bits - x.const(_MAGIC).bits
    r = fma(n, -_LN2_HIGH, bounded)
    r, r_low = two_sum(r, fma(n, -_LN2_LOW, low))
    one, lost = fast_two_sum(r.const(1.0), r)
    tail = lost + fma(r * r, horner(r, EXP_F64), fma(r_low, r, r_low))
    return times_power(one + tail, n, k)
