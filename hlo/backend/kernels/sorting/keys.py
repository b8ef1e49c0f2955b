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
    if order.dtype.is_float:
        return key_of_code(order, elemental, code_of(order, elemental, element))
    x = _compared(order, elemental, element)
    if order.dtype.is_pred:
        key = x.to("i8", signed=False)
    else:
        x = opened(x, order.dtype)
        key = x ^ _top(x) if order.dtype.is_signed else x
    return (~key if order.descending else key).value


def code_of(order: Order, elemental: Elemental, element: Lanes) -> Value:
    """The bits of what the comparator compares of a float: those of the element that comes back
    from its key.
    """
    x = _compared(order, elemental, element)
    x = x if order.total else x + 0.0
    if order.in_float_lanes or order.dtype.bits >= 32:
        return x.bits.value
    return types.encoded(x.w, x.target, x.value, order.dtype)


def _compared(order: Order, elemental: Elemental, element: Lanes) -> Term:
    """What the comparator makes of an element."""
    if order.root is not None and order.parameter is not None:
        (element,) = inlined(elemental.nest, order.root, {order.parameter: (element,)})
    assert isinstance(element, Value), "complex numbers have no order"
    return Term(elemental.nest.w, elemental.nest.target, element)


def element_of(order: Order, elemental: Elemental, key: Value) -> Value:
    """The raw element of an invertible key."""
    x = Term(elemental.nest.w, elemental.nest.target, key)
    x = ~x if order.descending else x
    if order.dtype.is_float:
        bits = x ^ ((~x).ashr(int(x.scalar[1:]) - 1) | _top(x))
        return bits.real.value if order.dtype.bits >= 32 else bits.value
    return (x ^ _top(x)).value if order.dtype.is_signed else x.value


def signed_key_of_code(order: Order, elemental: Elemental, code: Value) -> Value:
    """The key of a float's storage bits as a signed integer in the same order."""
    key = _signed(Term(elemental.nest.w, elemental.nest.target, code))
    return (~key if order.descending else key).value


def element_of_signed(order: Order, elemental: Elemental, key: Value) -> Value:
    """The raw float of such a key."""
    x = Term(elemental.nest.w, elemental.nest.target, key)
    bits = _signed(~x if order.descending else x)
    return bits.real.value if order.dtype.bits >= 32 else bits.value


def _signed(bits: Term) -> Term:
    """Sign and magnitude as signed numbers in the same order, and these as sign and magnitude."""
    return bits ^ (bits.ashr(int(bits.scalar[1:]) - 1) & ~_top(bits))


def _ordered(bits: Term) -> Term:
    """Sign and magnitude as unsigned numbers in the same order."""
    return bits ^ (bits.ashr(int(bits.scalar[1:]) - 1) | _top(bits))


def _top(x: Term) -> int:
    """The sign bit's place value, as a signed number."""
    return -(1 << (int(x.scalar[1:]) - 1))
