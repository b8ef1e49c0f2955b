"""The keys of a sort's order (analysis/sort_orders.py): unsigned integers in lanes."""

from __future__ import annotations

from hlo.analysis.sort_orders import Order
from hlo.backend.emitters.applied import inlined
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.lanes import opened
from hlo.backend.ir.writer import Value
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes
from hlo.backend.math.term import Term


def key_of_code(order: Order, elemental: Elemental, code: Value) -> Value:
    """The key of a float's storage bits."""
    bits = Term(elemental.nest.w, elemental.nest.target, code)
    key = _ordered(bits)
    return (~key if order.descending else key).value


def key_of(order: Order, elemental: Elemental, element: Lanes) -> Value:
    """Unsigned integer lanes in the order wanted."""
    w, target = elemental.nest.w, elemental.nest.target
    if order.root is not None and order.parameter is not None:
        (element,) = inlined(elemental.nest, order.root, {order.parameter: (element,)})
    assert isinstance(element, Value), "complex numbers have no order"
    x = Term(w, target, element)
    if order.dtype.is_float:
        key = _float_key(order, x if order.total else x + 0.0)
    elif order.dtype.is_pred:
        key = x.to("i8", signed=False)
    else:
        x = opened(x, order.dtype)
        key = x ^ _top(x) if order.dtype.is_signed else x
    return (~key if order.descending else key).value


def _float_key(order: Order, x: Term) -> Term:
    if order.in_float_lanes or order.dtype.bits >= 32:
        bits = x.bits
    else:
        bits = x.of(types.encoded(x.w, x.target, x.value, order.dtype))
    return _ordered(bits)


def element_of(order: Order, elemental: Elemental, key: Value) -> Value:
    """The raw element of an invertible key."""
    x = Term(elemental.nest.w, elemental.nest.target, key)
    x = ~x if order.descending else x
    if order.dtype.is_float:
        bits = x ^ ((~x).ashr(int(x.scalar[1:]) - 1) | _top(x))
        return bits.real.value if order.dtype.bits >= 32 else bits.value
    return (x ^ _top(x)).value if order.dtype.is_signed else x.value


def _ordered(bits: Term) -> Term:
    """Sign and magnitude as unsigned numbers in the same order."""
    return bits ^ (bits.ashr(int(bits.scalar[1:]) - 1) | _top(bits))


def _top(x: Term) -> int:
    """The sign bit's place value, as a signed number."""
    return -(1 << (int(x.scalar[1:]) - 1))
