"""1/x and 1/sqrt(x) to 14 bits, where the machine estimates them; the same in lanes of any number.

A step or two of Newton's make an estimate what the caller needs.
"""

from __future__ import annotations

from hlo.backend.isa.generic import Estimates
from hlo.backend.math.term import Term


def has_estimates(x: Term) -> bool:
    """Whether the machine has them for every width."""
    return x.target.isa.estimates is not None


def reciprocal_root(x: Term) -> Term:
    """1/sqrt(x) but for 2^-14 of it; +-0 -> +-inf, inf -> 0, NaN below 0; subnormals are right."""
    return x.of(_estimates(x).reciprocal_root(x.w, x.value))


def reciprocal(x: Term) -> Term:
    """1/x but for 2^-14 of it; +-0 -> +-inf, +-inf -> +-0."""
    return x.of(_estimates(x).reciprocal(x.w, x.value))


def _estimates(x: Term) -> Estimates:
    found = x.target.isa.estimates
    assert found is not None, "asked for where has_estimates holds"
    return found
