"""Subnormal numbers of bf16 among codes in registers."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value, Writer, vector_of


def are_subnormal(w: Writer, vectors: Sequence[Value]) -> Value:
    """In which lanes some number of bf16 is subnormal: twice its code, without the sign, is from 2
    to 0xFE, so that with 2 taken off it is among the least.
    """
    type = vector_of("i16", vectors[0].lanes)
    least: Value | None = None
    for vector in vectors:
        doubled = w.binary("shl", w.cast("bitcast", vector, type), w.int(1, type))
        moved = w.binary("sub", doubled, w.int(2, type))
        least = moved if least is None else w.intrinsic("llvm.umin", type, least, moved)
    assert least is not None, "of some vectors"
    return w.compare("icmp ult", least, w.int(0xFD, type))
