"""maximum and minimum as HLO means them: NaN if either is NaN, -0 below +0.

AVX-512's vrangeps orders zeros and prefers numbers to NaN: one instruction and a blend with x + y,
which is a NaN where either is one. LLVM's own form takes six, one after the other.
"""

from __future__ import annotations

from hlo.backend.math.scaling import avx512, avx512_suffix
from hlo.backend.math.term import Term

# VRANGEPS's control: the sign as compared (4), the greater one (1).
_LESSER = 4
_GREATER = 5


def maximum(x: Term, y: Term) -> Term:
    """The greater; +0 above -0."""
    return _extreme(x, y, "llvm.maximum", _GREATER)


def minimum(x: Term, y: Term) -> Term:
    """The lesser; -0 below +0."""
    return _extreme(x, y, "llvm.minimum", _LESSER)


def _extreme(x: Term, y: Term, intrinsic: str, control: int) -> Term:
    if not (avx512_suffix(x) and x.target.has("avx512dq")):
        return x.call(intrinsic, y)
    number = avx512("range", x, y, immediates=(control,))
    is_nan = x.of(x.w.compare("fcmp uno", x.value, y.value))
    return is_nan.select(x + y, number)
