"""remainder: C's fmod, exact for every pair, as a function of the module.

r <- r - trunc(r/y) y by a fused multiply-add: the difference is a multiple of both operands' last
places and no larger than y, hence exact; each step takes away some 50 bits of the quotient, so
ordinary ratios need one. A rounded quotient may leave r below 0 by less than y: y is added at the
end. f32 is computed in double, where no quotient overflows.

By a power of two in the code (`x % 1.0`) the quotient is exact, and one step is all.
"""

from __future__ import annotations

import math

from hlo.backend.math import rounding
from hlo.backend.math.scaling import format_of
from hlo.backend.math.term import Term, do_while, exact_fma, fmuladd, outlined

# Powers of two by which quotients of ordinary numbers are neither subnormal nor too large.
_MOST_POWER = 32
_LEAP = 2.0**700  # double ratios reach 2^2098: larger ones are first reduced by y times this


def remainder(x: Term, y: Term) -> Term:
    """x - trunc(x/y) y with the sign of x; x % inf is x, x % 0 and inf % y are NaN."""
    known = y.value.element.number
    if known is not None and _is_near_power(known):
        return _by_power(x, abs(known))
    return outlined("remainder", [x, y], _remainder_f64 if x.is_double else _remainder_f32)


def _is_near_power(number: float) -> bool:
    mantissa, exponent = math.frexp(number)
    return abs(mantissa) == 0.5 and abs(exponent - 1) <= _MOST_POWER


def _by_power(x: Term, d: float) -> Term:
    """By d, a power of two: quotient, product and difference are exact. x - x is NaN for infinities
    and NaN; below 1 a large x, which has nothing behind the point of x/d, is bounded first.
    """
    if d >= 1.0:
        rest = fmuladd(rounding.truncated(x * (1.0 / d)), -d, x)
        return rest.copysign(x)
    bounded = x.abs().at_most(2.0 ** format_of(x).mantissa * d)
    rest = fmuladd(rounding.truncated(bounded * (1.0 / d)), -d, bounded)
    return (rest + (x - x)).copysign(x)


def _remainder_f32(x: Term, y: Term) -> Term:
    return _remainder(x.to("double"), y.to("double"), leaps=False).to("float")


def _remainder_f64(x: Term, y: Term) -> Term:
    return _remainder(x, y, leaps=True)


def _remainder(x: Term, y: Term, *, leaps: bool) -> Term:
    size, d = x.abs(), y.abs()
    defined = (size < float("inf")) & (d > 0.0) & (d < float("inf"))

    def step(rest: Term) -> tuple[list[Term], Term]:
        unit = _leaping(rest, d) if leaps else d
        quotient = rounding.truncated(rest / unit)
        rest = exact_fma(-quotient, unit, rest)
        return [rest], rest.abs() >= d  # no more where it is NaN: of infinities and zeros

    (rest,) = do_while([size], step)
    rest = (rest < 0.0).select(rest + d, rest).abs()
    whole = d.eq(float("inf")) & (size < float("inf"))
    undefined = whole.select(x, x.const(float("nan")))
    return defined.select(rest.copysign(x), undefined)


def _leaping(rest: Term, d: Term) -> Term:
    """d, or the multiple of it by a power of two that keeps the quotient in range."""
    once = d * _LEAP
    twice = once * _LEAP
    size = rest.abs()
    return (size >= twice).select(twice, (size >= once).select(once, d))
