"""The emitters of elementwise ops: by opcode, what makes lanes of the result.

An op is a function of each kind of number that it takes, or one that sees all (specials.py). Their
files are imported by the first program that has one of their ops.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.backend.emitters.op_context import Special
from hlo.backend.math.term import Term
from hlo.process.lazy_functions import LazyModule

if TYPE_CHECKING:
    from hlo.backend.math.complex_term import Complex


class ByKind(Struct, frozen=True):
    """A function of each kind of number; types of a kind without one are declined.

    real, complex_: (*operands). integer, pred: (element type, *operands).
    narrow: as real, of types narrower than f32 where that matters.
    on_sign: LLVM's instruction on the code of a narrow float that changes its sign as the op does.
    half: LLVM's instruction on f16, of the ops whose rows say IN_HALVES.
    """

    real: Callable[..., Term] | None = None
    narrow: Callable[..., Term] | None = None
    integer: Callable[..., Term] | None = None
    pred: Callable[..., Term] | None = None
    complex_: Callable[..., Complex | Term] | None = None
    on_sign: str = ""
    half: str = ""


def _complex_functions() -> ModuleType:
    from hlo.backend.emitters import complex_functions

    return complex_functions


def _complex_numbers() -> ModuleType:
    from hlo.backend.emitters import complex_numbers

    return complex_numbers


def _floats() -> ModuleType:
    from hlo.backend.emitters import floats

    return floats


def _integers() -> ModuleType:
    from hlo.backend.emitters import integers

    return integers


def _specials() -> ModuleType:
    from hlo.backend.emitters import specials

    return specials


def _error_function() -> ModuleType:
    from hlo.backend.math import error_function

    return error_function


def _exponential() -> ModuleType:
    from hlo.backend.math import exponential

    return exponential


def _extremes() -> ModuleType:
    from hlo.backend.math import extremes

    return extremes


def _hyperbolic() -> ModuleType:
    from hlo.backend.math import hyperbolic

    return hyperbolic


def _inverse_trigonometric() -> ModuleType:
    from hlo.backend.math import inverse_trigonometric

    return inverse_trigonometric


def _logarithm() -> ModuleType:
    from hlo.backend.math import logarithm

    return logarithm


def _power() -> ModuleType:
    from hlo.backend.math import power

    return power


def _remainder() -> ModuleType:
    from hlo.backend.math import remainder

    return remainder


def _roots() -> ModuleType:
    from hlo.backend.math import roots

    return roots


def _rounding() -> ModuleType:
    from hlo.backend.math import rounding

    return rounding


def _trigonometric() -> ModuleType:
    from hlo.backend.math import trigonometric

    return trigonometric


complex_functions = LazyModule(_complex_functions)
complex_numbers = LazyModule(_complex_numbers)
floats = LazyModule(_floats)
integers = LazyModule(_integers)
specials = LazyModule(_specials)
error_function = LazyModule(_error_function)
exponential = LazyModule(_exponential)
extremes = LazyModule(_extremes)
hyperbolic = LazyModule(_hyperbolic)
inverse_trigonometric = LazyModule(_inverse_trigonometric)
logarithm = LazyModule(_logarithm)
power = LazyModule(_power)
remainder = LazyModule(_remainder)
roots = LazyModule(_roots)
rounding = LazyModule(_rounding)
trigonometric = LazyModule(_trigonometric)

EMITTERS: dict[str, ByKind | Special] = {
    "abs": ByKind(
        real=Term.abs,
        integer=integers.magnitude,
        complex_=complex_functions.magnitude,
        on_sign="and",
    ),
    "negate": ByKind(
        real=Term.__neg__, integer=integers.negate, complex_=complex_numbers.negate, on_sign="xor"
    ),
    "sign": ByKind(real=floats.sign, integer=integers.sign, complex_=complex_functions.sign),
    "not": ByKind(integer=integers.complement, pred=integers.complement),
    "popcnt": ByKind(integer=integers.popcnt),
    "count-leading-zeros": ByKind(integer=integers.count_leading_zeros),
    "floor": ByKind(real=rounding.floor),
    "ceil": ByKind(real=rounding.ceil),
    "round-nearest-even": ByKind(real=rounding.nearest),
    "round-nearest-afz": ByKind(real=rounding.away),
    "is-finite": ByKind(real=floats.is_finite),
    "real": ByKind(real=floats.real, complex_=complex_numbers.real),
    "imag": ByKind(real=floats.imag, complex_=complex_numbers.imag),
    "exponential": ByKind(real=exponential.exp, complex_=complex_functions.exponential),
    "exponential-minus-one": ByKind(
        real=exponential.expm1, complex_=complex_functions.exponential_minus_one
    ),
    "log": ByKind(real=logarithm.log, complex_=complex_functions.log),
    "log-plus-one": ByKind(real=logarithm.log1p, complex_=complex_functions.log_plus_one),
    "logistic": ByKind(real=exponential.logistic, complex_=complex_functions.logistic),
    "sqrt": ByKind(real=Term.sqrt, complex_=complex_functions.sqrt),
    "rsqrt": ByKind(real=roots.rsqrt, complex_=complex_functions.rsqrt),
    "cbrt": ByKind(real=roots.cbrt),
    "erf": ByKind(real=error_function.erf),
    "sine": ByKind(real=trigonometric.sin, complex_=complex_functions.sine),
    "cosine": ByKind(real=trigonometric.cos, complex_=complex_functions.cosine),
    "tan": ByKind(real=trigonometric.tan, complex_=complex_functions.tan),
    "sinh": ByKind(real=hyperbolic.sinh, complex_=complex_functions.sinh),
    "cosh": ByKind(real=hyperbolic.cosh, complex_=complex_functions.cosh),
    "tanh": ByKind(real=exponential.tanh, complex_=complex_functions.tanh),
    "asin": ByKind(real=inverse_trigonometric.asin, complex_=complex_functions.asin),
    "acos": ByKind(real=inverse_trigonometric.acos, complex_=complex_functions.acos),
    "asinh": ByKind(real=hyperbolic.asinh, complex_=complex_functions.asinh),
    "acosh": ByKind(real=hyperbolic.acosh, complex_=complex_functions.acosh),
    "atanh": ByKind(real=hyperbolic.atanh, complex_=complex_functions.atanh),
    "add": ByKind(
        real=Term.__add__,
        integer=integers.arithmetic.of("add"),
        pred=integers.arithmetic.of("or"),
        complex_=complex_numbers.add,
        half="fadd",
    ),
    "multiply": ByKind(
        real=Term.__mul__,
        integer=integers.arithmetic.of("mul"),
        pred=integers.arithmetic.of("and"),
        complex_=complex_numbers.multiply,
        half="fmul",
    ),
    "subtract": ByKind(
        real=Term.__sub__,
        integer=integers.arithmetic.of("sub"),
        complex_=complex_numbers.subtract,
        half="fsub",
    ),
    "divide": ByKind(
        real=Term.__truediv__, integer=integers.divide, complex_=complex_functions.divide
    ),
    "remainder": ByKind(real=remainder.remainder, integer=integers.remainder),
    "power": ByKind(real=power.power, integer=integers.power, complex_=complex_functions.power),
    "maximum": ByKind(
        real=extremes.maximum,
        narrow=extremes.narrow_maximum,
        integer=integers.maximum,
        pred=integers.arithmetic.of("or"),
    ),
    "minimum": ByKind(
        real=extremes.minimum, integer=integers.minimum, pred=integers.arithmetic.of("and")
    ),
    "and": ByKind(integer=integers.arithmetic.of("and"), pred=integers.arithmetic.of("and")),
    "or": ByKind(integer=integers.arithmetic.of("or"), pred=integers.arithmetic.of("or")),
    "xor": ByKind(integer=integers.arithmetic.of("xor"), pred=integers.arithmetic.of("xor")),
    "shift-left": ByKind(integer=integers.shift_left),
    "shift-right-arithmetic": ByKind(integer=integers.shift_right_arithmetic),
    "shift-right-logical": ByKind(integer=integers.shift_right_logical),
    "atan2": ByKind(real=inverse_trigonometric.atan2, complex_=complex_functions.atan2),
    "mulhi": ByKind(integer=integers.mulhi),
    "compare": specials.compare,
    "select": specials.select,
    "clamp": specials.clamp,
    "complex": specials.complex_,
    "convert": specials.convert,
    "bitcast-convert": specials.bitcast_convert,
    "reduce-precision": specials.reduce_precision,
    "stochastic-convert": specials.stochastic_convert,
    "copy": specials.copy,
}
