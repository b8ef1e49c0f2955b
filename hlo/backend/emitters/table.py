"""The emitters of elementwise ops: by opcode, what makes lanes of the result.

An op is a function of each kind of number that it takes, or one that sees all (specials.py).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.backend.emitters.op_context import OpContext, Special
from hlo.backend.lanes.types import Lanes
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


def _real(opcode: str) -> Callable[..., Term]:
    """One of functions.py, which is imported when a program first has such an op."""

    def applied(*operands: Term) -> Term:
        from hlo.backend.emitters.functions import function_of

        return function_of(opcode)(*operands)

    return applied


def _complex(opcode: str) -> Callable[..., Complex | Term]:
    """One of complex_functions.py, which is imported for a program's first of complex numbers."""

    def applied(*operands: Complex) -> Complex | Term:
        from hlo.backend.emitters.complex_functions import FUNCTIONS

        return FUNCTIONS[opcode](*operands)

    return applied


def _pair(opcode: str) -> Callable[..., Complex | Term]:
    """One of complex_numbers.py, which is imported for a program's first complex number."""

    def applied(*operands: Complex) -> Complex | Term:
        from hlo.backend.emitters.complex_numbers import ARITHMETIC

        return ARITHMETIC[opcode](*operands)

    return applied


def _special(opcode: str) -> Special:
    """One of specials.py, which is imported when a program first has such an op."""

    def applied(given: OpContext) -> Lanes:
        from hlo.backend.emitters.specials import SPECIALS

        return SPECIALS[opcode](given)

    return applied


def _floats() -> ModuleType:
    from hlo.backend.emitters import floats

    return floats


def _integers() -> ModuleType:
    from hlo.backend.emitters import integers

    return integers


def _extremes() -> ModuleType:
    from hlo.backend.math import extremes

    return extremes


def _rounding() -> ModuleType:
    from hlo.backend.math import rounding

    return rounding


floats, integers = LazyModule(_floats), LazyModule(_integers)
extremes, rounding = LazyModule(_extremes), LazyModule(_rounding)

EMITTERS: dict[str, ByKind | Special] = {
    "abs": ByKind(
        real=Term.abs, integer=integers.magnitude, complex_=_complex("abs"), on_sign="and"
    ),
    "negate": ByKind(
        real=Term.__neg__, integer=integers.negate, complex_=_pair("negate"), on_sign="xor"
    ),
    "sign": ByKind(real=floats.sign, integer=integers.sign, complex_=_complex("sign")),
    "not": ByKind(integer=integers.complement, pred=integers.complement),
    "popcnt": ByKind(integer=integers.popcnt),
    "count-leading-zeros": ByKind(integer=integers.count_leading_zeros),
    "floor": ByKind(real=rounding.floor),
    "ceil": ByKind(real=rounding.ceil),
    "round-nearest-even": ByKind(real=rounding.nearest),
    "round-nearest-afz": ByKind(real=rounding.away),
    "is-finite": ByKind(real=floats.is_finite),
    "real": ByKind(real=floats.real, complex_=_pair("real")),
    "imag": ByKind(real=floats.imag, complex_=_pair("imag")),
    "exponential": ByKind(real=_real("exponential"), complex_=_complex("exponential")),
    "exponential-minus-one": ByKind(
        real=_real("exponential-minus-one"), complex_=_complex("exponential-minus-one")
    ),
    "log": ByKind(real=_real("log"), complex_=_complex("log")),
    "log-plus-one": ByKind(real=_real("log-plus-one"), complex_=_complex("log-plus-one")),
    "logistic": ByKind(real=_real("logistic"), complex_=_complex("logistic")),
    "sqrt": ByKind(real=Term.sqrt, complex_=_complex("sqrt")),
    "rsqrt": ByKind(real=_real("rsqrt"), complex_=_complex("rsqrt")),
    "cbrt": ByKind(real=_real("cbrt")),
    "erf": ByKind(real=_real("erf")),
    "sine": ByKind(real=_real("sine"), complex_=_complex("sine")),
    "cosine": ByKind(real=_real("cosine"), complex_=_complex("cosine")),
    "tan": ByKind(real=_real("tan"), complex_=_complex("tan")),
    "sinh": ByKind(real=_real("sinh"), complex_=_complex("sinh")),
    "cosh": ByKind(real=_real("cosh"), complex_=_complex("cosh")),
    "tanh": ByKind(real=_real("tanh"), complex_=_complex("tanh")),
    "asin": ByKind(real=_real("asin"), complex_=_complex("asin")),
    "acos": ByKind(real=_real("acos"), complex_=_complex("acos")),
    "asinh": ByKind(real=_real("asinh"), complex_=_complex("asinh")),
    "acosh": ByKind(real=_real("acosh"), complex_=_complex("acosh")),
    "atanh": ByKind(real=_real("atanh"), complex_=_complex("atanh")),
    "add": ByKind(
        real=Term.__add__,
        integer=integers.arithmetic.of("add"),
        pred=integers.arithmetic.of("or"),
        complex_=_pair("add"),
        half="fadd",
    ),
    "multiply": ByKind(
        real=Term.__mul__,
        integer=integers.arithmetic.of("mul"),
        pred=integers.arithmetic.of("and"),
        complex_=_pair("multiply"),
        half="fmul",
    ),
    "subtract": ByKind(
        real=Term.__sub__,
        integer=integers.arithmetic.of("sub"),
        complex_=_pair("subtract"),
        half="fsub",
    ),
    "divide": ByKind(real=Term.__truediv__, integer=integers.divide, complex_=_complex("divide")),
    "remainder": ByKind(real=_real("remainder"), integer=integers.remainder),
    "power": ByKind(real=_real("power"), integer=integers.power, complex_=_complex("power")),
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
    "atan2": ByKind(real=_real("atan2"), complex_=_complex("atan2")),
    "mulhi": ByKind(integer=integers.mulhi),
    "compare": _special("compare"),
    "select": _special("select"),
    "clamp": _special("clamp"),
    "complex": _special("complex"),
    "convert": _special("convert"),
    "bitcast-convert": _special("bitcast-convert"),
    "reduce-precision": _special("reduce-precision"),
    "stochastic-convert": _special("stochastic-convert"),
    "copy": _special("copy"),
}
