"""The third reading of the elementwise ops: by opcode, what makes lanes of the result.

An op is a function of each kind of number that it takes, or one that sees all (specials.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from hlo.backend.emitters import complex_numbers, floats, integers, specials
from hlo.backend.emitters.complex_numbers import in_double
from hlo.backend.emitters.specials import Special
from hlo.backend.math import complex_arithmetic, complex_functions, rounding, short_complex
from hlo.backend.math.complex_arithmetic import Complex
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


class ByKind(Struct, frozen=True):
    """A function of each kind of number; types of a kind without one are declined.

    real, complex_: (*operands). integer, pred: (element type, *operands).
    on_sign: LLVM's instruction on the code of a narrow float that changes its sign as the op does.
    half: LLVM's instruction on f16, of the ops whose rows say IN_HALVES.
    """

    real: Callable[..., Term] | None = None
    integer: Callable[..., Term] | None = None
    pred: Callable[..., Term] | None = None
    complex_: Callable[..., Complex | Term] | None = None
    on_sign: str = ""
    half: str = ""


# Of doubles that hold f32 numbers.
_SHORT_EXPM1 = partial(complex_functions.expm1, exactly=False)
_SHORT_LOGISTIC = partial(complex_functions.logistic, exactly=False)

# fmt: off
EMITTERS: dict[str, ByKind | Special] = {
    "abs": ByKind(real=Term.abs, integer=integers.magnitude, complex_=complex_numbers.magnitude,
        on_sign="and"),
    "negate": ByKind(real=Term.__neg__, integer=integers.negate, complex_=Complex.__neg__,
        on_sign="xor"),
    "sign": ByKind(real=floats.sign, integer=integers.sign,
        complex_=in_double("sign", complex_arithmetic.sign, short_complex.sign)),
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
    "exponential": ByKind(real=exp, complex_=in_double("exponential", complex_arithmetic.exp)),
    "exponential-minus-one": ByKind(real=expm1,
        complex_=in_double("exponential-minus-one", complex_functions.expm1, _SHORT_EXPM1)),
    "log": ByKind(real=log, complex_=in_double("log", complex_arithmetic.log)),
    "log-plus-one": ByKind(real=log1p,
        complex_=in_double("log-plus-one", complex_arithmetic.log1p)),
    "logistic": ByKind(real=logistic,
        complex_=in_double("logistic", complex_functions.logistic, _SHORT_LOGISTIC)),
    "sqrt": ByKind(real=Term.sqrt, complex_=in_double("sqrt", complex_arithmetic.sqrt)),
    "rsqrt": ByKind(real=rsqrt, complex_=in_double("rsqrt", complex_arithmetic.rsqrt)),
    "cbrt": ByKind(real=cbrt),
    "erf": ByKind(real=erf),
    "sine": ByKind(real=sin, complex_=in_double("sine", complex_functions.sin)),
    "cosine": ByKind(real=cos, complex_=in_double("cosine", complex_functions.cos)),
    "tan": ByKind(real=tan, complex_=in_double("tan", complex_functions.tan)),
    "sinh": ByKind(real=sinh, complex_=in_double("sinh", complex_functions.sinh)),
    "cosh": ByKind(real=cosh, complex_=in_double("cosh", complex_functions.cosh)),
    "tanh": ByKind(real=tanh, complex_=in_double("tanh", complex_functions.tanh)),
    "asin": ByKind(real=asin, complex_=in_double("asin", complex_functions.asin)),
    "acos": ByKind(real=acos, complex_=in_double("acos", complex_functions.acos)),
    "asinh": ByKind(real=asinh, complex_=in_double("asinh", complex_functions.asinh)),
    "acosh": ByKind(real=acosh, complex_=in_double("acosh", complex_functions.acosh)),
    "atanh": ByKind(real=atanh, complex_=in_double("atanh", complex_functions.atanh)),
    "add": ByKind(real=Term.__add__, integer=integers.arithmetic("add"),
        pred=integers.arithmetic("or"), complex_=Complex.__add__, half="fadd"),
    "multiply": ByKind(real=Term.__mul__, integer=integers.arithmetic("mul"),
        pred=integers.arithmetic("and"), complex_=Complex.__mul__, half="fmul"),
    "subtract": ByKind(real=Term.__sub__, integer=integers.arithmetic("sub"),
        complex_=Complex.__sub__, half="fsub"),
    "divide": ByKind(real=Term.__truediv__, integer=integers.divide,
        complex_=in_double("divide", complex_arithmetic.divide, short_complex.divide)),
    "remainder": ByKind(real=remainder, integer=integers.remainder),
    "power": ByKind(real=power, integer=integers.power,
        complex_=in_double("power", complex_arithmetic.power)),
    "maximum": ByKind(real=maximum, integer=integers.maximum, pred=integers.arithmetic("or")),
    "minimum": ByKind(real=minimum, integer=integers.minimum, pred=integers.arithmetic("and")),
    "and": ByKind(integer=integers.arithmetic("and"), pred=integers.arithmetic("and")),
    "or": ByKind(integer=integers.arithmetic("or"), pred=integers.arithmetic("or")),
    "xor": ByKind(integer=integers.arithmetic("xor"), pred=integers.arithmetic("xor")),
    "shift-left": ByKind(integer=integers.shift_left),
    "shift-right-arithmetic": ByKind(integer=integers.shift_right_arithmetic),
    "shift-right-logical": ByKind(integer=integers.shift_right_logical),
    "atan2": ByKind(real=atan2, complex_=in_double("atan2", complex_functions.arctangent2)),
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
# fmt: on
