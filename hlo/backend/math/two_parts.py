"""e^x - 1 and half-angle squares as sums of two doubles, for complex parts that nearly cancel.

The leading terms of the Taylor series are exact products; what follows is below 2^-9 of them and
computed in double: each result is off by less than 2^-60 of its largest term.
"""

from __future__ import annotations

import math

from hlo.backend.math.exponential import nearest_power, power_lanes
from hlo.backend.math.quadrant import reduced
from hlo.backend.math.scaling import power_of_two
from hlo.backend.math.term import Term, fast_two_sum, fmuladd, horner, two_product, two_sum

Pair = tuple[Term, Term]  # a number as the sum of both, the second small beside the first

_LN2_LOW = 1.90821492927058770002e-10
_SIXTH, _SIXTH_LOW = 1 / 6, 9.25185853854297e-18
_24TH, _24TH_LOW = 1 / 24, 2.3129646346357427e-18
_EXP = tuple(1 / math.factorial(n) for n in range(4, 17))
_SIN = tuple((-1) ** (n // 2) / math.factorial(n) for n in range(5, 23, 2))
_COS = tuple((-1) ** (n // 2) / math.factorial(n) for n in range(6, 24, 2))


def product(x: Pair, y: Pair) -> Pair:
    """x y but for 2^-104 of it."""
    high, low = two_product(x[0], y[0])
    return high, low + fmuladd(x[0], y[1], x[1] * y[0])


def total(x: Pair, y: Pair) -> Pair:
    """x + y; where it cancels both parts count."""
    high, low = two_sum(x[0], y[0])
    return fast_two_sum(high, low + (x[1] + y[1]))


def expm1(x: Term) -> Pair:
    """e^x - 1 for |x| < 20."""
    n, shifted, t = nearest_power(x)
    r = fmuladd(n, -_LN2_LOW, t)
    lost = fmuladd(n, -_LN2_LOW, t - r)
    square = two_product(r, r)
    cube = product(square, (r, r.const(0.0)))
    sixth = product(cube, (r.const(_SIXTH), r.const(_SIXTH_LOW)))
    tail = fmuladd(square[0] * square[0], horner(r, _EXP), lost * (1.0 + fmuladd(r, 0.5 * r, r)))
    half = (square[0] * 0.5, fmuladd(square[1], 0.5, tail))
    p = total((r, r.const(0.0)), total(half, sixth))
    power = power_of_two(power_lanes(shifted))
    return total((power - 1.0, r.const(0.0)), (p[0] * power, p[1] * power))


def half_angle_squares(x: Term) -> tuple[Pair, Pair]:
    """sin(x/2)^2 and cos(x/2)^2."""
    r, low, quadrant = reduced(x * 0.5)
    zero = r.const(0.0)
    square = two_product(r, r)
    square = square[0], fmuladd(r * 2.0, low, square[1])
    sixth = product(product(square, (r, low)), (r.const(-_SIXTH), r.const(-_SIXTH_LOW)))
    fifth = square[0] * square[0] * r
    sine = total((r, fmuladd(fifth, horner(square[0], _SIN), low)), sixth)
    fourth = product(product(square, square), (r.const(_24TH), r.const(_24TH_LOW)))
    sixth_power = square[0] * square[0] * square[0]
    rest = fourth[0], fmuladd(sixth_power, horner(square[0], _COS), fourth[1])
    cosine = total(total((zero + 1.0, zero), (square[0] * -0.5, square[1] * -0.5)), rest)
    odd = (quadrant & 1).ne(0)
    first = odd.select(cosine[0], sine[0]), odd.select(cosine[1], sine[1])
    second = odd.select(sine[0], cosine[0]), odd.select(sine[1], cosine[1])
    return product(first, first), product(second, second)
