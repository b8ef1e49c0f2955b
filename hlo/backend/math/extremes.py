"""maximum and minimum as HLO means them: NaN if either is NaN, -0 below +0.

Beside a constant one comparison and a selection that keeps the other operand where the two are
zeros or unordered: only a zero that has to win is put right afterwards.

Where an instruction orders zeros and prefers numbers to NaN, that and a blend with x + y, which is
a NaN where either is one.

Where it gives its second operand for zeros and for NaN (x86's own), both orders of the operands:
their codes differ in these two cases alone. `or` makes a NaN of the codes of a NaN and of any
number, and -0 of two zeros; `and` makes +0 of these, then NaN is put in. LLVM's own form takes five
instructions, one after the other, three of them blends by a sign, of two or three steps each.
"""

from __future__ import annotations

from math import copysign, isnan

from hlo.backend.math.term import Term

_ANY_NAN = -1  # The code of a comparison's mask, which an `or` puts in.
_NARROW_NAN = -1 << 16  # Nothing below the bits of bf16, whose rounding would carry.


def maximum(x: Term, y: Term) -> Term:
    """The greater; +0 above -0."""
    return _extreme(x, y, is_maximum=True)


def narrow_maximum(x: Term, y: Term) -> Term:
    """The same of f32 lanes that hold narrower numbers: a NaN is of their type as well."""
    return _extreme(x, y, is_maximum=True, nan=_NARROW_NAN)


def minimum(x: Term, y: Term) -> Term:
    """The lesser; -0 below +0."""
    return _extreme(x, y, is_maximum=False)


def _extreme(x: Term, y: Term, *, is_maximum: bool, nan: int = _ANY_NAN) -> Term:
    isa = x.target.isa
    if isa.has_extremes:
        return x.call("llvm.maximum" if is_maximum else "llvm.minimum", y)
    for other, bound in ((x, y.value.element.number), (y, x.value.element.number)):
        if bound is not None and not isnan(bound):
            return _bounded(other, bound, is_maximum=is_maximum)
    number = isa.extreme_number(x.w, x.value, y.value, is_maximum=is_maximum)
    if number is not None:
        is_nan = x.of(x.w.compare("fcmp uno", x.value, y.value))
        return is_nan.select(x + y, x.of(number))
    if isa.keeps_second:
        return _both_orders(x, y, is_maximum=is_maximum, nan=nan)
    return x.call("llvm.maximum" if is_maximum else "llvm.minimum", y)


def _bounded(x: Term, bound: float, *, is_maximum: bool) -> Term:
    """x, or the number where that is greater (less)."""
    found = ((x < bound) if is_maximum else (x > bound)).select(bound, x)
    if bound or (copysign(1.0, bound) > 0) != is_maximum:
        return found
    # No lane but zeros and NaN has the other sign here.
    return found.abs() if is_maximum else -found.abs()


def _both_orders(x: Term, y: Term, *, is_maximum: bool, nan: int) -> Term:
    first, second = (_second_kept(a, b, is_maximum=is_maximum) for a, b in ((x, y), (y, x)))
    if not is_maximum:
        return (first.bits | second.bits).real
    is_nan = x.of(x.w.compare("fcmp uno", x.value, y.value))
    both = first.bits & second.bits
    # In a scalar's place a mask would go to and fro by way of another kind of register.
    return is_nan.select(x + y, both.real) if x.lanes == 1 else is_nan.select(nan, both).real


def _second_kept(x: Term, y: Term, *, is_maximum: bool) -> Term:
    return ((x > y) if is_maximum else (x < y)).select(x, y)
