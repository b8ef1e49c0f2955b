"""sinh, cosh and the inverse hyperbolic functions, as functions of the module.

f32 is computed in double: 0.51 ulp. f64 as stated.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.exponential import quarter_exp
from hlo.backend.math.logarithm import log1p
from hlo.backend.math.term import Term, fast_two_sum, fma, fmuladd, outlined, residual

_LN2 = 0.6931471805599453
_BIG = 2.0**28  # from here on the square root is |x| to the last place


def sinh(x: Term) -> Term:
    """Odd; below 1.9 ulp: 2 (q + q/(4q + 1)) with q = (e^|x| - 1)/4 overflows only at the end."""
    return _outlined("sinh", x, _sinh)


def cosh(x: Term) -> Term:
    """Even; below 1.2 ulp."""
    return _outlined("cosh", x, _cosh)


def asinh(x: Term) -> Term:
    """Odd; below 2 ulp."""
    return _outlined("asinh", x, _asinh)


def acosh(x: Term) -> Term:
    """x < 1 -> NaN; below 2 ulp."""
    is_double = x.is_double
    return _outlined("acosh", x, lambda y: _acosh(y, is_double=is_double))


def atanh(x: Term) -> Term:
    """Odd; +-1 -> +-inf, beyond NaN; below 2 ulp."""
    return _outlined("atanh", x, _atanh)


def _outlined(name: str, x: Term, function: Callable[[Term], Term]) -> Term:
    if x.is_double:
        return outlined(name, [x], function)
    return outlined(name, [x], lambda y: function(y.to("double")).to("float"))


def _sinh(x: Term) -> Term:
    _, q = quarter_exp(x.abs())
    part = q.at_most(_BIG * _BIG)  # from where on the quotient is 1/4
    below = part * 4.0 + 1.0
    inverse = 1.0 / below
    quotient = part * inverse
    # What the sum lost as long as 4q < 1; beyond it counts little.
    lost = part * 4.0 - (below - 1.0)
    lacking = fmuladd(-quotient, lost, residual(part, quotient, below))
    value = (q + fmuladd(lacking, inverse, quotient)) * 2.0
    return (x.abs() < 2.0**-28).select(x, value.copysign(x))


def _cosh(x: Term) -> Term:
    q, _ = quarter_exp(x.abs())
    return (q + 0.0625 / q) * 2.0


def _asinh(x: Term) -> Term:
    size = x.abs()
    big = size >= _BIG
    t = big.select(1.0, size)
    square = t * t
    argument = t + square / ((square + 1.0).sqrt() + 1.0)
    value = log1p(big.select(size - 1.0, argument)) + big.select(x.const(_LN2), 0.0)
    return value.copysign(x)


def _acosh(x: Term, *, is_double: bool) -> Term:
    """log1p(t + root), root = sqrt(t^2 + 2t), t = x - 1; for doubles what both sums lose is added.

    The derivative there is 1/(x + root), which is x - root.
    """
    big = x >= _BIG
    t = big.select(1.0, x) - 1.0
    square = fma(t, t, t + t)
    root = square.sqrt()
    argument, lost = fast_two_sum(root, t)
    value = log1p(big.select(x - 1.0, argument)) + big.select(x.const(_LN2), 0.0)
    if is_double:
        lost = lost + residual(square, root, root) * 0.5 / root.at_least(2.0**-52)
        value = fmuladd(lost, t + 1.0 - root, value)
    return (x < 1.0).select(float("nan"), value)


def _atanh(x: Term) -> Term:
    t = x.abs()
    double = t + t
    argument = (t < 0.5).select(double + double * t / (1.0 - t), double / (1.0 - t))
    return (log1p(argument) * 0.5).copysign(x)
