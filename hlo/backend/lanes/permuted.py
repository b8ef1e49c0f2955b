"""Lanes of two vectors in another order.

Where one instruction takes the order from a register, that is loaded once, at the function's entry.
Every shuffle whose order LLVM's selector knows it tries to merge with those around it, which takes
three quarters of the time for squares turned in registers and finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.values import listed
from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest

_INDICES = {"float": "i32", "double": "i64", "i32": "i32", "i64": "i64"}


def permuted(nest: Nest, a: Value, b: Value, order: Sequence[int]) -> Value:
    """Lane k is lane order[k] of a and b, one after the other; as many lanes as one of them."""
    w, isa = nest.w, nest.target.isa
    if len(order) == a.lanes and isa.picks(a.type):
        index = _order(nest, order, _INDICES[a.scalar_type])
        found = isa.picked(w, (a, b), index)
        assert found is not None, "a type that it picks from"
        return found
    return w.shuffle(a, b, order)


def _order(nest: Nest, order: Sequence[int], scalar: str) -> Value:
    """The indices in a register."""
    w = nest.w
    symbol = f".order.{scalar}.{'_'.join(map(str, order))}"
    lanes = listed(scalar, tuple(order))
    align = len(order) * int(scalar[1:]) // 8
    text = f"@{symbol} = private unnamed_addr constant {lanes.typed}, align {align}"
    w.enter_data(symbol, text)
    with nest.at(0):
        return w.load_constant(Value(f"@{symbol}", "ptr"), lanes.type, align)
