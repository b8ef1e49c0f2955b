"""Sixteen bf16 codes <--> the upper halves of f32 lanes, by one permutation of bytes (vpermb).

The shift and the widening move that it replaces are two instructions, the narrowing one three.
"""

from __future__ import annotations

from hlo.backend.codegen.target import Target
from hlo.backend.codegen.writer import Value, Writer, vector_of

_LANES = 16
_BYTES = "<64 x i8>"
_PERMUTE = "llvm.x86.avx512.permvar.qi.512"


def applies(target: Target, lanes: int) -> bool:
    """Whether the machine permutes bytes and the lanes fill one of its vectors."""
    return lanes == _LANES and target.has("avx512vbmi")


def spread(w: Writer, raw: Value) -> Value:
    """f32 lanes of codes."""
    half = "<32 x i8>"
    short = w.cast("bitcast", raw, half)
    order = ", ".join(f"i32 {min(byte, 32)}" for byte in range(64))
    wide = w.pure(
        _BYTES, f"shufflevector {short.typed}, {half} zeroinitializer, <64 x i32> <{order}>"
    )
    moved = _permuted(w, wide, [n for k in range(_LANES) for n in (63, 63, 2 * k, 2 * k + 1)])
    return w.cast("bitcast", moved, vector_of("float", _LANES))


def packed(w: Writer, value: Value) -> Value:
    """Codes of f32 lanes: their upper halves, whatever the lower ones hold."""
    upper = [4 * k + 2 + n for k in range(_LANES) for n in (0, 1)]
    moved = _permuted(w, w.cast("bitcast", value, _BYTES), upper * 2)
    order = ", ".join(f"i32 {byte}" for byte in range(32))
    low = w.pure("<32 x i8>", f"shufflevector {moved.typed}, {_BYTES} poison, <32 x i32> <{order}>")
    return w.cast("bitcast", low, vector_of("i16", _LANES))


def _permuted(w: Writer, value: Value, order: list[int]) -> Value:
    w.declare(_BYTES, _PERMUTE, (_BYTES, _BYTES))
    table = ", ".join(f"i8 {byte}" for byte in order)
    return w.pure(_BYTES, f"call {_BYTES} @{_PERMUTE}({value.typed}, {_BYTES} <{table}>)")
