"""Sixteen bf16 codes <--> the upper halves of f32 lanes, by one permutation of bytes (vpermb).

The shift and the widening move that it replaces are two instructions, the narrowing one three.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.target import Target
from hlo.backend.ir.writer import Value, Writer, vector_of

_LANES = 16
_BYTES = "<64 x i8>"
_PERMUTE = "llvm.x86.avx512.permvar.qi.512"


def _vector(scalar: str, numbers: Iterable[int]) -> str:
    """A constant, typed."""
    items = [f"{scalar} {number}" for number in numbers]
    return f"{vector_of(scalar, len(items))} <{', '.join(items)}>"


# Written once: they stand in every load and store of a long kernel.
_WIDENED = _vector("i32", (min(byte, 32) for byte in range(64)))
_LOWER = _vector("i32", range(32))
_SPREAD = _vector("i8", (n for k in range(_LANES) for n in (63, 63, 2 * k, 2 * k + 1)))
_PACKED = _vector("i8", [4 * k + 2 + n for k in range(_LANES) for n in (0, 1)] * 2)


def applies(target: Target, lanes: int) -> bool:
    """Whether the machine permutes bytes and the lanes fill one of its vectors."""
    return lanes == _LANES and target.has("avx512vbmi")


def spread(w: Writer, raw: Value) -> Value:
    """f32 lanes of codes."""
    half = "<32 x i8>"
    short = w.cast("bitcast", raw, half)
    wide = w.pure(_BYTES, f"shufflevector {short.typed}, {half} zeroinitializer, {_WIDENED}")
    moved = _permuted(w, wide, _SPREAD)
    return w.cast("bitcast", moved, vector_of("float", _LANES))


def packed(w: Writer, value: Value) -> Value:
    """Codes of f32 lanes: their upper halves, whatever the lower ones hold."""
    moved = _permuted(w, w.cast("bitcast", value, _BYTES), _PACKED)
    low = w.pure("<32 x i8>", f"shufflevector {moved.typed}, {_BYTES} poison, {_LOWER}")
    return w.cast("bitcast", low, vector_of("i16", _LANES))


def _permuted(w: Writer, value: Value, order: str) -> Value:
    w.declare(_BYTES, _PERMUTE, (_BYTES, _BYTES))
    return w.pure(_BYTES, f"call {_BYTES} @{_PERMUTE}({value.typed}, {order})")
