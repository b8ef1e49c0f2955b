"""An elementwise op applied: lanes of its operands to lanes of its result.

    emit(opcode, w, target, operands, operand_types, result, attrs) -> Lanes

Works for any lane count, one included. Lanes are held as lanes/types.py says; the caller
rounds a result whose type is narrower than f32. What each op does is in table.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.lanes import closed, opened, unsupported
from hlo.backend.emitters.op_context import OpContext
from hlo.backend.emitters.table import EMITTERS, ByKind
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import Lanes, has_nan_codes
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType
from hlo.ops.attributes import Attributes

NO_ATTRIBUTES = Attributes()


def emit(
    opcode: str,
    w: Writer,
    target: Target,
    operands: Sequence[Lanes],
    operand_types: Sequence[DType],
    result: DType,
    attrs: Attributes = NO_ATTRIBUTES,
) -> Lanes:
    """The lanes of `opcode` applied to the operands' lanes."""
    emitter = EMITTERS[opcode]
    if not isinstance(emitter, ByKind):
        return emitter(OpContext(w, target, operands, operand_types, result, attrs))
    dtype = operand_types[0]
    if dtype.is_complex:
        if emitter.complex_ is None:
            raise unsupported(opcode, dtype)
        from hlo.backend.emitters import complex_numbers  # for programs that have them

        given = (complex_numbers.term(w, target, o) for o in operands)
        return complex_numbers.lanes(emitter.complex_(*given))
    terms = [Term(w, target, o) for o in operands if isinstance(o, Value)]
    found = _real(opcode, emitter, terms, dtype).value
    if emitter.on_sign and has_nan_codes(result):
        _note_sign(emitter.on_sign, terms[0], result, found)
    return found


def _note_sign(opcode: str, x: Term, dtype: DType, found: Value) -> None:
    """The code of what has another sign bit: NaNs keep their other bits."""
    code = x.w.noted(x.value, dtype.name)
    if code is not None:
        top = 1 << (dtype.bits - 1)
        mask = x.w.int(top if opcode == "xor" else top - 1, code.type)
        x.w.note(found, dtype.name, x.w.binary(opcode, code, mask))


def _real(opcode: str, emitter: ByKind, terms: list[Term], dtype: DType) -> Term:
    """An op whose operands and result (but for masks) are of one type."""
    if dtype.is_float:
        if emitter.narrow is not None and dtype.is_narrow_float:
            return emitter.narrow(*terms)
        if emitter.real is not None:
            return emitter.real(*terms)
    else:
        function = emitter.pred if dtype.is_pred else emitter.integer
        if function is not None:
            return closed(function(dtype, *(opened(t, dtype) for t in terms)), dtype)
    raise unsupported(opcode, dtype)
