"""rsqrt, cbrt: roots beside the square root, which is an instruction."""

from __future__ import annotations

from hlo.backend.math.term import Term


def rsqrt(x: Term) -> Term:
    """1/sqrt(x) by its definition: two roundings, below 1 ulp; 0 -> inf, -0 -> -inf."""
    return 1.0 / x.sqrt()
