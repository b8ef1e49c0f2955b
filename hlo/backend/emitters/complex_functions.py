"""The functions of complex numbers that ops are; those of c64 are computed in double."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hlo.backend.math import complex_arithmetic, complex_functions, short_complex
from hlo.backend.math.complex_term import Complex, outlined_pair
from hlo.backend.math.roots import short_hypotenuse
from hlo.backend.math.term import Term

Function = Callable[..., Complex]  # (*operands) -> Complex


def magnitude(z: Complex) -> Term:
    """|z|, without overflow on the way."""
    if z.real.is_double:
        return complex_arithmetic.magnitude(z)
    return short_hypotenuse(z.real, z.imag)


def in_double(name: str, function: Function, short: Function | None = None) -> Function:
    """`function` of doubles as a function of the module; c64 is rounded once.

    short: the same of doubles that hold f32 numbers.
    """

    def emit_function(*operands: Complex) -> Complex:
        body = function if operands[0].real.is_double else short or function
        return outlined_pair(name, list(operands), body)

    return emit_function


# expm1 of doubles that hold f32 numbers.
_SHORT_EXPM1 = partial(complex_functions.expm1, exactly=False)
_SHORT_LOGISTIC = partial(complex_functions.logistic, exactly=False)

sign = in_double("sign", complex_arithmetic.sign, short_complex.sign)
exponential = in_double("exponential", complex_arithmetic.exp)
exponential_minus_one = in_double("exponential-minus-one", complex_functions.expm1, _SHORT_EXPM1)
log = in_double("log", complex_arithmetic.log)
log_plus_one = in_double("log-plus-one", complex_arithmetic.log1p)
logistic = in_double("logistic", complex_functions.logistic, _SHORT_LOGISTIC)
sqrt = in_double("sqrt", complex_arithmetic.sqrt)
rsqrt = in_double("rsqrt", complex_arithmetic.rsqrt)
sine = in_double("sine", complex_functions.sin)
cosine = in_double("cosine", complex_functions.cos)
tan = in_double("tan", complex_functions.tan)
sinh = in_double("sinh", complex_functions.sinh)
cosh = in_double("cosh", complex_functions.cosh)
tanh = in_double("tanh", complex_functions.tanh)
asin = in_double("asin", complex_functions.asin)
acos = in_double("acos", complex_functions.acos)
asinh = in_double("asinh", complex_functions.asinh)
acosh = in_double("acosh", complex_functions.acosh)
atanh = in_double("atanh", complex_functions.atanh)
divide = in_double("divide", complex_arithmetic.divide, short_complex.divide)
power = in_double("power", complex_arithmetic.power)
atan2 = in_double("atan2", complex_functions.arctangent2)
