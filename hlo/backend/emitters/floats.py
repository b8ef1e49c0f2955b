"""Elementwise operations on float and double lanes; narrower floats are rounded by the caller."""

from __future__ import annotations

from hlo.backend.math.term import Term


def sign(x: Term) -> Term:
    """+-1; zeros and NaN stay themselves."""
    return (x.eq(0.0) | x.is_nan).select(x, x.const(1.0).copysign(x))


def is_finite(x: Term) -> Term:
    """Neither infinite nor NaN."""
    return x.abs() < float("inf")


def real(x: Term) -> Term:
    """The number itself."""
    return x


def imag(x: Term) -> Term:
    """+0."""
    return x.const(0.0)
