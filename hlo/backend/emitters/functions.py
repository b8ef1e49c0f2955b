"""The functions of mathematics by opcode: lanes of reals to lanes of reals.

Each of their files is imported by the first program that has one of its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlo.backend.math.term import Term

Function = Callable[..., Term]  # (*operands) -> Term


def _exponentials() -> Mapping[str, Function]:
    from hlo.backend.math.exponential import exp, expm1, logistic, tanh

    return {
        "exponential": exp,
        "exponential-minus-one": expm1,
        "logistic": logistic,
        "tanh": tanh,
    }


def _logarithms() -> Mapping[str, Function]:
    from hlo.backend.math.logarithm import log, log1p

    return {"log": log, "log-plus-one": log1p}


def _roots() -> Mapping[str, Function]:
    from hlo.backend.math.roots import cbrt, rsqrt

    return {"rsqrt": rsqrt, "cbrt": cbrt}


def _error_function() -> Mapping[str, Function]:
    from hlo.backend.math.error_function import erf

    return {"erf": erf}


def _angles() -> Mapping[str, Function]:
    from hlo.backend.math.trigonometric import cos, sin, tan

    return {"sine": sin, "cosine": cos, "tan": tan}


def _inverse_angles() -> Mapping[str, Function]:
    from hlo.backend.math.inverse_trigonometric import acos, asin, atan2

    return {"asin": asin, "acos": acos, "atan2": atan2}


def _hyperbolic() -> Mapping[str, Function]:
    from hlo.backend.math.hyperbolic import acosh, asinh, atanh, cosh, sinh

    return {"sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh, "atanh": atanh}


def _power() -> Mapping[str, Function]:
    from hlo.backend.math.power import power

    return {"power": power}


def _remainder() -> Mapping[str, Function]:
    from hlo.backend.math.remainder import remainder

    return {"remainder": remainder}


# The functions of the file that has an opcode's.
FILES: dict[str, Callable[[], Mapping[str, Function]]] = {
    "exponential": _exponentials,
    "exponential-minus-one": _exponentials,
    "log": _logarithms,
    "log-plus-one": _logarithms,
    "logistic": _exponentials,
    "rsqrt": _roots,
    "cbrt": _roots,
    "erf": _error_function,
    "sine": _angles,
    "cosine": _angles,
    "tan": _angles,
    "sinh": _hyperbolic,
    "cosh": _hyperbolic,
    "tanh": _exponentials,
    "asin": _inverse_angles,
    "acos": _inverse_angles,
    "asinh": _hyperbolic,
    "acosh": _hyperbolic,
    "atanh": _hyperbolic,
    "remainder": _remainder,
    "power": _power,
    "atan2": _inverse_angles,
}


def function_of(opcode: str) -> Function:
    """The function of an opcode."""
    return FILES[opcode]()[opcode]
