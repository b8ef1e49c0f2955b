"""sinh, cosh and the inverse hyperbolic functions, as functions of the module.

f32 is computed in double: 0.51 ulp. f64 as stated.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.exponential import quarter_exp
from hlo.backend.math.logarithm import log1p
from hlo.backend.math.term import Term, outlined

_LN2 = 0.6931471805599453
_BIG = 2.0**28  # from here on the square root is |x| to the last place


def sinh(x: Term) -> Term:
    """Odd; below 2 ulp: 2 (q + q/(4q + 1)) with q = (e^|x| - 1)/4 overflows only at the end."""
    return _outlined("sinh", x, _sinh)


def cosh(x: Term) -> Term:
    """Even; below 1.5 ulp."""
    return _outlined("cosh", x, _cosh)


def asinh(x: Term) -> Term:
    """Odd; below 2 ulp."""
    return _outlined("asinh", x, _asinh)


def acosh(x: Term) -> Term:
    """x < 1 -> NaN; below 2 ulp."""
    return _outlined("acosh", x, _acosh)


def atanh(x: Term) -> Term:
    """Odd; +-1 -> +-inf, beyond NaN; below 2 ulp."""
    return _outlined("atanh", x, _atanh)


def _outlined(name: str, x: Term, function: Callable[[Term], Term]) -> Term:
    if x.is_double:
        return outlined(name, [x], function)
    return outlined(name, [x], lambda y: function(y.to("double")).to("float"))


def _sinh(x: Term) -> Term:
    _, q = quarter_exp(x.abs())
    value = (q + q / (q * 4.0 + 1.0)) * 2.0
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


def _acosh(x: Term) -> Term:
    big = x >= _BIG
    t = big.select(1.0, x) - 1.0
    argument = t + (t * (t + 2.0)).sqrt()
    value = log1p(big.select(x - 1.0, argument)) + big.select(x.const(_LN2), 0.0)
    return (x < 1.0).select(float("nan"), value)


def _atanh(x: Term) -> Term:
    t = x.abs()
    double = t + t
    argument = (t < 0.5).select(double + double * t / (1.0 - t), double / (1.0 - t))
    return (log1p(argument) * 0.5).copysign(x)
