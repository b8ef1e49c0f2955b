"""1/x and 1/sqrt(x) to 14 bits: AVX-512's estimates, the same bits in lanes of any number.

A vector's root and a division are 22 cycles (f64: 40) of the one divider; an estimate takes 2, and
a step or two of Newton's make it what the caller needs.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.math.term import Term

_BITS = {"float": 32, "double": 64}
_SHORT, _LONG = 128, 512  # bits of the instruction's vectors


def has_estimates(x: Term) -> bool:
    """Whether the machine has the instruction for every width."""
    return x.target.has("avx512f") and x.target.has("avx512vl")


def reciprocal_root(x: Term) -> Term:
    """1/sqrt(x) but for 2^-14 of it; +-0 -> +-inf, inf -> 0, NaN below 0; subnormals are right."""
    return _estimated("rsqrt14", x)


def reciprocal(x: Term) -> Term:
    """1/x but for 2^-14 of it; +-0 -> +-inf, +-inf -> +-0."""
    return _estimated("rcp14", x)


def _estimated(name: str, x: Term) -> Term:
    w, size = x.w, _BITS[x.scalar]
    wanted = max(1 << (x.lanes - 1).bit_length(), _SHORT // size)
    chunk = min(wanted, _LONG // size)
    value = _widened(w, x.value, wanted)
    parts = [_estimate(w, name, _part(w, value, k, chunk)) for k in range(0, wanted, chunk)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(w, a, b, range(2 * a.lanes)) for a, b in pairs]
    if x.lanes == 1:
        return x.of(w.extract(parts[0], 0))
    return x.of(_part(w, parts[0], 0, x.lanes))


def _estimate(w: Writer, name: str, value: Value) -> Value:
    bits = value.lanes * _BITS[value.scalar_type]
    kind = "pd" if value.scalar_type == "double" else "ps"
    mask = Value("-1", f"i{max(8, value.lanes)}")
    symbol = f"llvm.x86.avx512.{name}.{kind}.{bits}"
    return w.intrinsic(symbol, value.type, value, w.zero(value.type), mask, suffix="-")


def _widened(w: Writer, value: Value, lanes: int) -> Value:
    """The same lanes and others behind them."""
    if value.lanes == lanes:
        return value
    if value.lanes == 1:
        type = vector_of(value.type, lanes)
        return w.pure(type, f"insertelement {type} poison, {value.typed}, i64 0")
    own = value.lanes
    return _shuffled(w, value, value, [min(k, own) for k in range(lanes)])


def _part(w: Writer, value: Value, first: int, count: int) -> Value:
    """`count` neighbouring lanes."""
    if value.lanes == count:
        return value
    return _shuffled(w, value, value, range(first, first + count))


def _shuffled(w: Writer, a: Value, b: Value, order: range | list[int]) -> Value:
    indices = ", ".join(f"i32 {k}" for k in order)
    type = vector_of(a.scalar_type, len(order))
    return w.pure(type, f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{indices}>")
