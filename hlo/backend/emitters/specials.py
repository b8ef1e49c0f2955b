"""Elementwise ops that look at more than the kind of their operands: types, attributes, codes."""

from __future__ import annotations

from hlo.backend.emitters import comparison, complex_numbers, conversion
from hlo.backend.emitters.lanes import closed, unsupported
from hlo.backend.emitters.op_context import OpContext
from hlo.backend.ir.writer import Value
from hlo.backend.lanes.types import Lanes, selected
from hlo.backend.math.complex_term import Complex
from hlo.backend.math.term import Term
from hlo.ops.conversion import ReducePrecisionAttributes
from hlo.ops.elementwise import CompareAttributes


def _any_term(given: OpContext, number: int) -> Term | Complex:
    """An operand of any kind."""
    return complex_numbers.term(given.w, given.target, given.operands[number])


def compare(given: OpContext) -> Lanes:
    """The mask of a comparison."""
    attrs, dtype = given.attrs, given.types[0]
    assert isinstance(attrs, CompareAttributes), "a comparison's"
    if dtype.is_complex:
        a, b = (_any_term(given, k) for k in range(2))
        assert isinstance(a, Complex), "of a complex type"
        assert isinstance(b, Complex), "as the other operand"
        return complex_numbers.compared(attrs.direction, a, b).value
    x, y = (given.opened(k, dtype) for k in range(2))
    return comparison.compared(attrs.direction, attrs.type, x, y, dtype).value


def select(given: OpContext) -> Lanes:
    """A bit copy of either operand, of its code too where lanes do not hold all bits of it."""
    condition, then, otherwise = given.operands
    assert isinstance(condition, Value), "a mask"
    return selected(given.w, given.target, condition, (then, otherwise), given.result)


def clamp(given: OpContext) -> Lanes:
    """min(max(x, low), high)."""
    dtype = given.types[1]
    low, x, high = (given.opened(k, dtype) for k in range(3))
    return closed(comparison.clamped(low, x, high, dtype), dtype).value


def complex_(given: OpContext) -> Lanes:
    """A pair of lanes."""
    return given.term(0).value, given.term(1).value


def convert(given: OpContext) -> Lanes:
    """The number in another type."""
    (source,), goal = given.types, given.result
    if source.is_complex or goal.is_complex:
        found = complex_numbers.converted(_any_term(given, 0), source, goal)
        return complex_numbers.lanes(found)
    return conversion.converted(given.term(0), source, goal).value


def bitcast_convert(given: OpContext) -> Lanes:
    """The bits as another type."""
    (source,), goal = given.types, given.result
    if source is goal:
        return given.operands[0]
    if source.is_complex or goal.is_complex:
        raise unsupported("bitcast-convert", source)
    return conversion.bits_converted(given.term(0), source, goal).value


def reduce_precision(given: OpContext) -> Lanes:
    """The number with fewer bits, in its type."""
    attrs, x = given.attrs, given.term(0)
    assert isinstance(attrs, ReducePrecisionAttributes), "a reduce-precision's"
    bits = attrs.exponent_bits, attrs.mantissa_bits
    return conversion.reduced_precision(x, given.types[0], *bits).value


def stochastic_convert(given: OpContext) -> Lanes:
    """Rounded up as often as it is near."""
    numbers, noise = given.term(0), given.term(1)
    return conversion.stochastic(numbers, noise, given.types[0], given.result).value


def copy(given: OpContext) -> Lanes:
    """The number itself."""
    return given.operands[0]
