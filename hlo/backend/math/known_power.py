"""x^y for a number y in the code that is a multiple of 1/2: products, roots and a division.

f32 computes in double, where no product of eight factors leaves the range, and rounds once: below
0.501 ulp. f64 has those that are one or two operations. Special cases are C99's (F.9.4.4).
"""

from __future__ import annotations

from hlo.backend.math.roots import double_root, rsqrt
from hlo.backend.math.term import Term

_MOST = 4.0  # beyond, an f32 may overflow a double on the way, and there are few programs
_INF = float("inf")


def known_power(x: Term, y: Term) -> Term | None:
    """x^y where y is such a number; None elsewhere."""
    exponent = y.value.element.number
    if exponent is None or not 0 < abs(exponent) <= _MOST or not (2 * exponent).is_integer():
        return None
    if exponent == 1.0:
        return x
    if exponent == -1.0:
        return 1.0 / x
    if exponent == 2.0:
        return x * x
    if abs(exponent) == 0.5:
        return _root(_without_signs(x), exponent)
    return None if x.is_double else _in_double(x, exponent).to("float")


def _without_signs(x: Term) -> Term:
    """|x| at 0 and the infinities, whose halves of odd powers have no sign; NaN for others < 0."""
    return ((x < 0.0) & (x > -_INF)).select(float("nan"), x.abs())


def _root(x: Term, exponent: float) -> Term:
    return x.sqrt() if exponent > 0 else rsqrt(x)


def _in_double(x: Term, exponent: float) -> Term:
    whole, is_half = int(abs(exponent)), not exponent.is_integer()
    base = (_without_signs(x) if is_half else x).to("double")
    result = _product(base, whole)
    if is_half:
        result = result * double_root(base)
    return 1.0 / result if exponent < 0 else result


def _product(base: Term, count: int) -> Term:
    """base^count by squaring."""
    if count == 1:
        return base
    half = _product(base, count // 2)
    return half * half * base if count % 2 else half * half
