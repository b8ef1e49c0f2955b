"""The third reading of every elementwise op: lanes of its operands to lanes of its result.

    emit(opcode, w, target, operands, operand_types, result, attributes) -> Lanes

Works for any lane count, one included. Lanes are held as lanes/types.py says; the caller
rounds a result whose type is narrower than f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.emitters import comparison, complex_numbers, conversion
from hlo.backend.emitters.floats import FLOAT
from hlo.backend.emitters.integers import INTEGER, PRED
from hlo.backend.emitters.lanes import closed, opened, unsupported
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import Lanes, has_nan_codes, selected
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType

Attributes = dict[str, object]
Special = Callable[[list[Term], Sequence[DType], DType, Attributes], Term]


def emit(
    opcode: str,
    w: Writer,
    target: Target,
    operands: Sequence[Lanes],
    operand_types: Sequence[DType],
    result: DType,
    attributes: Attributes,
) -> Lanes:
    """The lanes of `opcode` applied to the operands' lanes."""
    if opcode == "select":
        return _select(w, target, operands, result)
    if result.is_complex or any(t.is_complex for t in operand_types):
        return complex_numbers.emit(opcode, w, target, operands, operand_types, result, attributes)
    terms = [Term(w, target, o) for o in operands if isinstance(o, Value)]
    special = _SPECIAL.get(opcode)
    if special is not None:
        return special(terms, operand_types, result, attributes).value
    found = _plain(opcode, terms, operand_types[0]).value
    if opcode in _SIGN_OPS and has_nan_codes(result):
        _note_sign(_SIGN_OPS[opcode], terms[0], result, found)
    return found


def supported(opcode: str) -> bool:
    """Whether `emit` knows the opcode for some type."""
    return opcode in OPCODES


def _select(w: Writer, target: Target, operands: Sequence[Lanes], result: DType) -> Lanes:
    """A bit copy of either operand, of its code too where lanes do not hold all bits of it."""
    condition, then, otherwise = operands
    assert isinstance(condition, Value)
    return selected(w, target, condition, (then, otherwise), result)


def _note_sign(opcode: str, x: Term, dtype: DType, found: Value) -> None:
    """The code of what has another sign bit: NaNs keep their other bits."""
    code = x.w.noted(x.value, dtype.name)
    if code is not None:
        top = 1 << (dtype.bits - 1)
        mask = x.w.int(top if opcode == "xor" else top - 1, code.type)
        x.w.note(found, dtype.name, x.w.binary(opcode, code, mask))


def _plain(opcode: str, terms: list[Term], dtype: DType) -> Term:
    """An op whose operands and result (but for masks) are of one type."""
    if dtype.is_float:
        emitter = FLOAT.get(opcode)
        if emitter is not None:
            return emitter(*terms)
    else:
        emitter = (PRED if dtype.is_pred else INTEGER).get(opcode)
        if emitter is not None:
            return closed(emitter(dtype, *(opened(t, dtype) for t in terms)), dtype)
    raise unsupported(opcode, dtype)


def _compare(terms: list[Term], types: Sequence[DType], _: DType, attributes: Attributes) -> Term:
    a, b = (opened(t, types[0]) for t in terms)
    return comparison.compared(str(attributes["direction"]), attributes.get("type"), a, b, types[0])


def _clamp(terms: list[Term], types: Sequence[DType], _: DType, __: Attributes) -> Term:
    low, x, high = (opened(t, types[1]) for t in terms)
    return closed(comparison.clamped(low, x, high, types[1]), types[1])


def _convert(terms: list[Term], types: Sequence[DType], result: DType, _: Attributes) -> Term:
    return conversion.converted(terms[0], types[0], result)


def _bitcast(terms: list[Term], types: Sequence[DType], result: DType, _: Attributes) -> Term:
    return conversion.bits_converted(terms[0], types[0], result)


def _reduce_precision(
    terms: list[Term], types: Sequence[DType], _: DType, attributes: Attributes
) -> Term:
    exponent_bits, mantissa_bits = (attributes[f"{n}_bits"] for n in ("exponent", "mantissa"))
    assert isinstance(exponent_bits, int)
    assert isinstance(mantissa_bits, int)
    return conversion.reduced_precision(terms[0], types[0], exponent_bits, mantissa_bits)


def _stochastic(terms: list[Term], types: Sequence[DType], result: DType, _: Attributes) -> Term:
    return conversion.stochastic(terms[0], terms[1], types[0], result)


def _copy(terms: list[Term], _: Sequence[DType], __: DType, ___: Attributes) -> Term:
    return terms[0]


_SIGN_OPS = {"abs": "and", "negate": "xor"}

_SPECIAL: dict[str, Special] = {
    "compare": _compare,
    "clamp": _clamp,
    "convert": _convert,
    "bitcast-convert": _bitcast,
    "reduce-precision": _reduce_precision,
    "stochastic-convert": _stochastic,
    "copy": _copy,
}

OPCODES = (
    frozenset(_SPECIAL)
    | frozenset(FLOAT)
    | frozenset(INTEGER)
    | frozenset(PRED)
    | {"select"}
    | complex_numbers.OPCODES
)
