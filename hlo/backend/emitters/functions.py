"""The functions of mathematics by opcode: lanes of reals to lanes of reals."""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.error_function import erf
from hlo.backend.math.exponential import exp, expm1, logistic, tanh
from hlo.backend.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from hlo.backend.math.inverse_trigonometric import acos, asin, atan2
from hlo.backend.math.logarithm import log, log1p
from hlo.backend.math.power import power
from hlo.backend.math.remainder import remainder
from hlo.backend.math.roots import cbrt, rsqrt
from hlo.backend.math.term import Term
from hlo.backend.math.trigonometric import cos, sin, tan

FUNCTIONS: dict[str, Callable[..., Term]] = {
    "exponential": exp,
    "exponential-minus-one": expm1,
    "log": log,
    "log-plus-one": log1p,
    "logistic": logistic,
    "rsqrt": rsqrt,
    "cbrt": cbrt,
    "erf": erf,
    "sine": sin,
    "cosine": cos,
    "tan": tan,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asin": asin,
    "acos": acos,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "remainder": remainder,
    "power": power,
    "atan2": atan2,
}
