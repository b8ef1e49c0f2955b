"""remainder: C's fmod, exact for every pair, as a function of the module.

r <- r - trunc(r/y) y by a fused multiply-add: the difference is a multiple of both operands' last
places and no larger than y, hence exact; each step takes away some 50 bits of the quotient, so
ordinary ratios need one. A rounded quotient may leave r below 0 by less than y: y is added at the
end. f32 is computed in double, where no quotient overflows.
"""

from __future__ import annotations

from hlo.backend.math import rounding
from hlo.backend.math.term import Term, do_while, exact_fma, outlined

_LEAP = 2.0**700  # double ratios reach 2^2098: larger ones are first reduced by y times this


def remainder(x: Term, y: Term) -> Term:
    """x - trunc(x/y) y with the sign of x; x % inf is x, x % 0 and inf % y are NaN."""
    return outlined("remainder", [x, y], _remainder_f64 if x.is_double else _remainder_f32)


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
