"""Floats as whole floats: by an instruction, or by a sum where there is none.

Beyond 2^23 (f64: 2^52) all numbers are whole, and a number below it that is added to it loses its
fraction, rounded to nearest, ties to even. The other ways take a step back from there.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.math.term import FLOATS, Term

_WHOLE = {"float": 2.0**23, "double": 2.0**52}


def nearest(x: Term) -> Term:
    """To the nearest whole number, ties to even."""
    return x.call("llvm.roundeven") if x.target.isa.rounds else _signed(x, _nearest(x.abs()))


def nearest_integer(x: Term) -> Term:
    """The same as integer lanes of the same width, in which it has room."""
    found = x.target.isa.nearest_integers(x.w, x.value)
    return nearest(x).to(FLOATS[x.scalar]) if found is None else x.of(found)


def truncated(x: Term) -> Term:
    """Towards zero."""
    return x.call("llvm.trunc") if x.target.isa.rounds else _signed(x, _truncated(x.abs()))


def floor(x: Term) -> Term:
    """Downwards."""
    return _directed(x, "llvm.floor", -1.0, lambda whole: whole > x)


def ceil(x: Term) -> Term:
    """Upwards."""
    return _directed(x, "llvm.ceil", 1.0, lambda whole: whole < x)


def away(x: Term) -> Term:
    """To the nearest whole number, ties away from zero."""
    if x.target.isa.rounds:
        return x.call("llvm.round")
    size = x.abs()
    whole = _truncated(size)
    return _signed(x, whole + (size - whole < 0.5).select(0.0, x.const(1.0)))


def _directed(x: Term, intrinsic: str, step: float, is_beyond: Callable[[Term], Term]) -> Term:
    if x.target.isa.rounds:
        return x.call(intrinsic)
    whole = _nearest(x.abs()).copysign(x)
    return _signed(x, whole + is_beyond(whole).select(x.const(step), 0.0))


def _nearest(size: Term) -> Term:
    """Of what is not negative and below the bound."""
    return (size + _WHOLE[size.scalar]) - _WHOLE[size.scalar]


def _truncated(size: Term) -> Term:
    whole = _nearest(size)
    return whole - (whole > size).select(size.const(1.0), 0.0)


def _signed(x: Term, whole: Term) -> Term:
    """The whole number with the sign of x; x where that is whole, infinite or NaN."""
    return (x.abs() < _WHOLE[x.scalar]).select(whole.copysign(x), x)
