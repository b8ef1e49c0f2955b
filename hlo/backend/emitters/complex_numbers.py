"""Elementwise operations on complex numbers, held as pairs (real, imaginary) of lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hlo.backend.emitters import conversion
from hlo.backend.emitters.lanes import unsupported
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import Lanes
from hlo.backend.math import complex_arithmetic, complex_functions, short_complex
from hlo.backend.math.complex_arithmetic import Complex, outlined_pair
from hlo.backend.math.roots import short_hypotenuse
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType

Emitter = Callable[..., Complex]  # (*operands) -> Complex


def emit(
    opcode: str,
    w: Writer,
    target: Target,
    operands: Sequence[Lanes],
    operand_types: Sequence[DType],
    result: DType,
    attributes: dict[str, object],
) -> Lanes:
    """An op with complex operands or a complex result."""
    terms = [_term(w, target, o) for o in operands]
    if opcode == "complex":
        real, imag = terms
        return _lanes(Complex(_real(real), _real(imag)))
    if opcode == "convert":
        return _convert(terms[0], operand_types[0], result)
    if opcode == "compare":
        a, b = (_complex(t) for t in terms)
        equal = a.real.eq(b.real) & a.imag.eq(b.imag)
        return (equal if attributes["direction"] == "EQ" else ~equal).value
    values = [_complex(t) for t in terms]
    if opcode in REAL_RESULT:
        return REAL_RESULT[opcode](*values).value
    if opcode in COMPLEX:
        return _lanes(COMPLEX[opcode](*values))
    raise unsupported(opcode, operand_types[0])


def _term(w: Writer, target: Target, lanes: Lanes) -> Term | Complex:
    if isinstance(lanes, Value):
        return Term(w, target, lanes)
    return Complex(*(Term(w, target, part) for part in lanes))


def _real(x: Term | Complex) -> Term:
    assert isinstance(x, Term)
    return x


def _complex(x: Term | Complex) -> Complex:
    assert isinstance(x, Complex)
    return x


def _lanes(z: Complex) -> Lanes:
    return z.real.value, z.imag.value


def _convert(x: Term | Complex, source: DType, target: DType) -> Lanes:
    """Part by part; a real has imaginary part 0; to reals the imaginary part is dropped."""
    component, goal = source.component, target.component
    if isinstance(x, Term):
        real = conversion.converted(x, component, goal)
        return real.value, real.const(0.0).value
    if target.is_pred:
        return (x.real.ne(0.0) | x.imag.ne(0.0)).value
    real = conversion.converted(x.real, component, goal)
    if not target.is_complex:
        return real.value
    return real.value, conversion.converted(x.imag, component, goal).value


def _magnitude(z: Complex) -> Term:
    if z.real.is_double:
        return complex_arithmetic.magnitude(z)
    return short_hypotenuse(z.real, z.imag).to("float")


def _in_double(name: str, function: Emitter) -> Emitter:
    """`function` of doubles as a function of the module; c64 is rounded once."""

    def emit_function(*operands: Complex) -> Complex:
        body = function if operands[0].real.is_double else _SHORT.get(name, function)
        return outlined_pair(name, list(operands), body)

    return emit_function


_FUNCTIONS: dict[str, Emitter] = {
    "sign": complex_arithmetic.sign,
    "divide": complex_arithmetic.divide,
    "power": complex_arithmetic.power,
    "sqrt": complex_arithmetic.sqrt,
    "rsqrt": complex_arithmetic.rsqrt,
    "exponential": complex_arithmetic.exp,
    "log": complex_arithmetic.log,
    "log-plus-one": complex_arithmetic.log1p,
    "exponential-minus-one": complex_functions.expm1,
    "logistic": complex_functions.logistic,
    "sine": complex_functions.sin,
    "cosine": complex_functions.cos,
    "tan": complex_functions.tan,
    "sinh": complex_functions.sinh,
    "cosh": complex_functions.cosh,
    "tanh": complex_functions.tanh,
    "asin": complex_functions.asin,
    "acos": complex_functions.acos,
    "asinh": complex_functions.asinh,
    "acosh": complex_functions.acosh,
    "atanh": complex_functions.atanh,
    "atan2": complex_functions.arctangent2,
}

# Of doubles that hold f32 numbers.
_SHORT: dict[str, Emitter] = {
    "divide": short_complex.divide,
    "sign": short_complex.sign,
    "exponential-minus-one": partial(complex_functions.expm1, exactly=False),
    "logistic": partial(complex_functions.logistic, exactly=False),
}

REAL_RESULT: dict[str, Callable[[Complex], Term]] = {
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "abs": _magnitude,
}

COMPLEX: dict[str, Emitter] = {
    "copy": lambda z: z,
    "bitcast-convert": lambda z: z,
    "add": Complex.__add__,
    "subtract": Complex.__sub__,
    "multiply": Complex.__mul__,
    "negate": Complex.__neg__,
    **{name: _in_double(name, function) for name, function in _FUNCTIONS.items()},
}

OPCODES = frozenset(COMPLEX) | frozenset(REAL_RESULT) | {"complex"}
