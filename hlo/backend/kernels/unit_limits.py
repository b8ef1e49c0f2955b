"""Which units of a nest a kernel's units [begin, end) are, as code."""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.loops.spans import Span


def unit_limits(w: Writer, span: Span, begin: Value, end: Value, total: int) -> tuple[Value, Value]:
    """The nest's units for the kernel's units [begin, end) of `total`: numbers of all of them."""
    if begin.is_constant and end.is_constant:
        return w.int(0), w.int(span.units)
    return _limit(w, span, begin, total), _limit(w, span, end, total)


def _limit(w: Writer, span: Span, number: Value, total: int) -> Value:
    if span.first > 0:
        number = w.binary("sub", number, w.int(span.first))
        number = w.intrinsic("llvm.smax", "i64", number, w.int(0))
    if span.first + span.count < total:
        number = w.intrinsic("llvm.smin", "i64", number, w.int(span.count))
    if span.units != span.count:
        scaled = w.binary("mul", number, w.int(span.units))
        number = w.binary("udiv", scaled, w.int(span.count))
    return number
