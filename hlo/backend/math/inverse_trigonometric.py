"""atan2, asin, acos, as functions of the module. f32 is computed in double: 0.51 ulp.

atan u = u + u z P(z), z = u^2 <= tan(pi/8)^2; asin s = s + s z Q(z), z = s^2 <= 1/4 (Remez: P
2^-40 for f32 and 2^-64, Q 2^-59).
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.extremes import maximum
from hlo.backend.math.term import (
    Term,
    estrin,
    fmuladd,
    horner,
    outlined,
    residual,
    subnormal_residual,
)

_INF = float("inf")
_P_SHORT = (
    -0.3333333329643838, 0.19999994406779895, -0.1428542664899611, 0.11104056250919693,
    -0.08997298349564622, 0.06993189097360762, -0.03795748352112869,
)  # fmt: skip
_P = (
    -0.33333333333333326, 0.19999999999997095, -0.14285714285316403, 0.11111111083746096,
    -0.0909090798587484, 0.0769227920110249, -0.06666174677602435, 0.05876516340638541,
    -0.0521517994220165, 0.044905570184283275, -0.03317473264049281, 0.014893521574738675,
)  # fmt: skip
_Q = (
    0.16666666666666763, 0.07499999999970128, 0.044642857175256775, 0.03038194267675216,
    0.022372215862565544, 0.017351596310686418, 0.013981008448582112, 0.011397378474933929,
    0.010788826827472064, 0.0036741084685843364, 0.021785835558259716, -0.021109729446300476,
    0.032697680831478,
)  # fmt: skip
_QUARTER, _QUARTER_LOW = 0.7853981633974483, 3.061616997868383e-17  # pi/4
_HALF, _HALF_LOW = 1.5707963267948966, 6.123233995736766e-17  # pi/2


def atan2(y: Term, x: Term) -> Term:
    """The angle of x + iy in [-pi, pi], signed zeros and infinities as C99's; f64 below 1.3 ulp."""
    body = _atan2_f64 if x.is_double else _atan2_f32
    # In two parts it holds more numbers than registers do, which a loop of its own spills as well.
    return outlined("atan2", [y, x], body, is_straight=not x.is_double)


def asin(x: Term) -> Term:
    """Odd; |x| > 1 -> NaN; f64 below 2 ulp."""
    return outlined("asin", [x], _asin_f64 if x.is_double else _in_double(_asin_f64))


def acos(x: Term) -> Term:
    """|x| > 1 -> NaN; f64 below 1.5 ulp."""
    return outlined("acos", [x], _acos_f64 if x.is_double else _in_double(_acos_f64))


def _in_double(function: Callable[[Term], Term]) -> Callable[[Term], Term]:
    return lambda x: function(x.to("double")).to("float")


def _atan2_f32(y: Term, x: Term) -> Term:
    return _atan2(y.to("double"), x.to("double"), _P_SHORT).to("float")


def _atan2_f64(y: Term, x: Term) -> Term:
    largest = maximum(x.abs(), y.abs())
    scale = (largest > 2.0**900).select(2.0**-120, x.const(1.0))
    scale = (largest < 2.0**-900).select(2.0**120, scale)
    return _atan2(y * scale, x * scale, _P)


def _atan2(y: Term, x: Term, coefficients: tuple[float, ...]) -> Term:
    """Octant by octant: angle = c + s atan u with |u| <= tan(pi/8), c a multiple of pi/4."""
    a, b = y.abs(), x.abs()
    steep = a > b
    small, large = steep.select(b, a), steep.select(a, b)
    infinite = large.eq(_INF)
    small = infinite.select(small.eq(_INF).select(x.const(1.0), 0.0), small)
    large = (infinite | large.eq(0.0)).select(1.0, large)
    wide = small > large * 0.41421356237309503
    over, under = wide.select(small - large, small), wide.select(small + large, large)
    lost = wide.select(small - (under - large), 0.0)  # of the sum
    missing = wide.select(small - (over + large), 0.0)  # of the difference
    inverse = 1.0 / under
    u = over * inverse
    rest = (subnormal_residual(over, u, under) + (missing - u * lost)) * inverse
    z = u * u
    angle = fmuladd(u * z, estrin(z, coefficients), rest * (1.0 - z))
    zero = x.const(0.0)
    c = wide.select(_QUARTER, zero)
    c_low = wide.select(_QUARTER_LOW, zero)
    turn = x.bits < 0
    # In the steep half pi/2 - angle, left of the axis pi - angle: both are c' - s angle.
    c, c_low = steep.select(_HALF - c, c), steep.select(_HALF_LOW - c_low, c_low)
    u, angle = steep.select(-u, u), steep.select(-angle, angle)
    c, c_low = turn.select(2 * _HALF - c, c), turn.select(2 * _HALF_LOW - c_low, c_low)
    u, angle = turn.select(-u, u), turn.select(-angle, angle)
    result = _sum_of_three(c, u, angle + c_low)
    return (x.is_nan | y.is_nan).select(x + y, result.copysign(y))


def _sum_of_three(c: Term, u: Term, low: Term) -> Term:
    """c + u + low with one rounding that counts; c is 0 or at least as large as u."""
    total = c + u
    lost = u - (total - c)
    return total + (lost + low)


def _asin_f64(x: Term) -> Term:
    size = x.abs()
    small = size < 0.5
    s, z = _arc(size, small)
    tail = s * z * horner(z, _Q)
    inner = s + tail
    outer = _HALF - (s * 2.0 - fmuladd(tail, -2.0, _HALF_LOW))
    return small.select(inner, outer).copysign(x)


def _acos_f64(x: Term) -> Term:
    size = x.abs()
    small = size < 0.5
    s, z = _arc(size, small)
    tail = s * z * horner(z, _Q)
    inner = _HALF - (x - (_HALF_LOW - tail.copysign(x)))
    root_low = residual(z, s, s) / (s * 2.0)
    root_low = (s > 0.0).select(root_low, 0.0)
    right = (s + (tail + root_low)) * 2.0
    left = 2 * _HALF - (s + (tail + root_low - _HALF_LOW)) * 2.0
    return small.select(inner, (x < 0.0).select(left, right))


def _arc(size: Term, small: Term) -> tuple[Term, Term]:
    """s and s^2 with s <= 1/2: |x| itself, or sin of half the angle to the pole."""
    z = small.select(size * size, (1.0 - size) * 0.5)
    return small.select(size, z.sqrt()), z
