"""Elementwise operations on float and double lanes; narrower floats are rounded by the caller."""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.error_function import erf
from hlo.backend.math.exponential import exp, expm1, logistic, tanh
from hlo.backend.math.extremes import maximum, minimum
from hlo.backend.math.hyperbolic import acosh, asinh, atanh, cosh, sinh
from hlo.backend.math.inverse_trigonometric import acos, asin, atan2
from hlo.backend.math.logarithm import log, log1p
from hlo.backend.math.power import power
from hlo.backend.math.remainder import remainder
from hlo.backend.math.roots import cbrt, rsqrt
from hlo.backend.math.term import Term
from hlo.backend.math.trigonometric import cos, sin, tan

Emitter = Callable[..., Term]  # (*operands) -> Term


def _intrinsic(name: str) -> Emitter:
    def emit(x: Term, *others: Term) -> Term:
        return x.call(name, *others)

    return emit


def _sign(x: Term) -> Term:
    """+-1; zeros and NaN stay themselves."""
    return (x.eq(0.0) | x.is_nan).select(x, x.const(1.0).copysign(x))


def _is_finite(x: Term) -> Term:
    return x.abs() < float("inf")


def _imag(x: Term) -> Term:
    return x.const(0.0)


FLOAT: dict[str, Emitter] = {
    "abs": Term.abs,
    "negate": Term.__neg__,
    "sign": _sign,
    "floor": _intrinsic("llvm.floor"),
    "ceil": _intrinsic("llvm.ceil"),
    "round-nearest-even": Term.rounded,
    "round-nearest-afz": _intrinsic("llvm.round"),
    "is-finite": _is_finite,
    "real": lambda x: x,
    "imag": _imag,
    "sqrt": Term.sqrt,
    "rsqrt": rsqrt,
    "exponential": exp,
    "exponential-minus-one": expm1,
    "log": log,
    "log-plus-one": log1p,
    "logistic": logistic,
    "tanh": tanh,
    "erf": erf,
    "cbrt": cbrt,
    "sine": sin,
    "cosine": cos,
    "tan": tan,
    "sinh": sinh,
    "cosh": cosh,
    "asin": asin,
    "acos": acos,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "add": Term.__add__,
    "subtract": Term.__sub__,
    "multiply": Term.__mul__,
    "divide": Term.__truediv__,
    "remainder": remainder,
    "power": power,
    "atan2": atan2,
    "maximum": maximum,
    "minimum": minimum,
}
