"""compare, select, clamp."""

from __future__ import annotations

from hlo.backend.emitters import integers
from hlo.backend.emitters.conversion import storage_bits
from hlo.backend.lanes import types
from hlo.backend.math.extremes import maximum, minimum, narrow_maximum
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType

_ORDERED = {"EQ": "oeq", "NE": "une", "LT": "olt", "LE": "ole", "GT": "ogt", "GE": "oge"}
_INTEGER = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}


def compared(direction: str, type: object, a: Term, b: Term, dtype: DType) -> Term:
    """The mask of a <direction> b; `type` is HLO's comparison type or None for the default."""
    if type == "TOTALORDER":
        left, right = total_order(a, dtype), total_order(b, dtype)
        return _integers(direction, "s", left, right)
    if a.is_float:
        return a.of(a.w.compare(f"fcmp {_ORDERED[direction]}", a.value, b.value))
    return _integers(direction, "s" if dtype.is_signed else "u", a, b)


def total_order(x: Term, dtype: DType) -> Term:
    """Float lanes as signed integers in the order of the type's bit patterns.

    Widening keeps this order, and NaN's sign, so that float lanes serve for narrower types; only
    the NaN that has the code of -0 is put there. Where an instruction widens, it makes signalling
    NaNs quiet ones: there the codes are compared as they were in memory.
    """
    if types.widens_quietly(x.target, dtype):
        code = storage_bits(x, dtype)
        return code ^ (code.ashr(dtype.bits - 1) & ((1 << (dtype.bits - 1)) - 1))
    fmt = dtype.float_format
    if fmt is not None and fmt.nan == "negative-zero":
        x = x.is_nan.select(-0.0, x)
    bits = x.bits
    width = 64 if x.is_double else 32
    return bits ^ (bits.ashr(width - 1) & ((1 << (width - 1)) - 1))


def clamped(low: Term, x: Term, high: Term, dtype: DType) -> Term:
    """min(max(x, low), high) in this order."""
    if x.is_float:
        greater = narrow_maximum if dtype.is_narrow_float else maximum
        return minimum(greater(x, low), high)
    if dtype.is_pred:
        return (x | low) & high
    return integers.minimum(dtype, integers.maximum(dtype, x, low), high)


def _integers(direction: str, sign: str, a: Term, b: Term) -> Term:
    name = _INTEGER[direction]
    opcode = name if direction in ("EQ", "NE") else sign + name
    return a.of(a.w.compare(f"icmp {opcode}", a.value, b.value))
