"""maximum and minimum as HLO means them: NaN if either is NaN, -0 below +0.

Where an instruction orders zeros and prefers numbers to NaN, that and a blend with x + y, which is
a NaN where either is one. LLVM's own form takes six instructions, one after the other.
"""

from __future__ import annotations

from hlo.backend.math.term import Term


def maximum(x: Term, y: Term) -> Term:
    """The greater; +0 above -0."""
    return _extreme(x, y, "llvm.maximum", is_maximum=True)


def minimum(x: Term, y: Term) -> Term:
    """The lesser; -0 below +0."""
    return _extreme(x, y, "llvm.minimum", is_maximum=False)


def _extreme(x: Term, y: Term, intrinsic: str, *, is_maximum: bool) -> Term:
    number = x.target.isa.extreme_number(x.w, x.value, y.value, is_maximum=is_maximum)
    if number is None:
        return x.call(intrinsic, y)
    is_nan = x.of(x.w.compare("fcmp uno", x.value, y.value))
    return is_nan.select(x + y, x.of(number))
