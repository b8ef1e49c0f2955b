"""Lanes of two vectors in another order.

AVX-512: a permutation whose indices are loaded once, at the function's entry. LLVM's selector
tries to merge every shuffle whose order it knows with those around it, which takes three quarters
of the time for squares turned in registers and finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest

_SUFFIXES = {"float": "ps", "double": "pd", "i32": "d", "i64": "q"}
_INDICES = {"float": "i32", "double": "i64", "i32": "i32", "i64": "i64"}


def permuted(nest: Nest, a: Value, b: Value, order: Sequence[int]) -> Value:
    """Lane k is lane order[k] of a and b, one after the other; as many lanes as one of them."""
    w, scalar = nest.w, a.scalar_type
    size = a.lanes * int(_INDICES.get(scalar, "i0")[1:]) // 8
    if nest.target.vector_bytes == 64 and size in (32, 64) and len(order) == a.lanes:
        index = _order(nest, order, _INDICES[scalar])
        name = f"llvm.x86.avx512.vpermi2var.{_SUFFIXES[scalar]}"
        return w.intrinsic(name, a.type, a, index, b, suffix=str(8 * size))
    text = ", ".join(f"i32 {lane}" for lane in order)
    return w.pure(a.type, f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{text}>")


def _order(nest: Nest, order: Sequence[int], scalar: str) -> Value:
    """The indices in a register."""
    w = nest.w
    symbol = f".order.{scalar}.{'_'.join(map(str, order))}"
    type = f"<{len(order)} x {scalar}>"
    text = ", ".join(f"{scalar} {lane}" for lane in order)
    align = len(order) * int(scalar[1:]) // 8
    w.globals[symbol] = f"@{symbol} = private unnamed_addr constant {type} <{text}>, align {align}"
    with nest.at(0):
        return w.pure(type, f"load {type}, ptr @{symbol}, align {align}")
