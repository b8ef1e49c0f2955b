"""Quotients of 64-bit integers in vectors, as a function of its own: it looks at the numbers.

No machine divides vectors of integers; the scalar division takes 10 to 40 cycles an element. Where
all lanes' numbers are below 2^53, as indices, counts and dates are, a division of doubles gives the
quotient: fl(a/b) truncates to the right integer when a and b fit the float's precision p, since a/b
below an integer k differs from it by at least 1/b, more than the rounding error a/b 2^-p.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.math.term import Term, outlined

_PRECISION = 53  # bits of a double


def quotient(a: Term, b: Term, *, is_signed: bool) -> Term:
    """a/b towards zero of i64 lanes; b is not 0, nor -1 where a is the least number."""
    name = "sdiv" if is_signed else "udiv"
    return outlined(f"quotient.{name}", [a, b], partial(_quotient, opcode=name))


def _quotient(a: Term, b: Term, *, opcode: str) -> Term:
    w, is_signed = a.w, opcode == "sdiv"
    large = ~(_fits(a, is_signed=is_signed) & _fits(b, is_signed=is_signed))
    quick, slow, done = (w.new_label(name) for name in ("quick", "slow", "done"))
    w.branch_if(large.any().value, slow, quick)
    w.label(quick)
    with w.region():
        x, y = (t.to("double", signed=is_signed) for t in (a, b))
        narrow = (x / y).to(a.scalar, signed=is_signed)
    w.branch(done)
    w.label(slow)
    with w.region():
        wide = a.of(w.binary(opcode, a.value, b.value))
    w.branch(done)
    w.label(done)
    return a.of(w.phi(a.type, (narrow.value, quick), (wide.value, slow), is_tight=True).value)


def _fits(x: Term, *, is_signed: bool) -> Term:
    """Whether lanes are exact as doubles."""
    if is_signed:
        return (x + (1 << _PRECISION - 1)).below(1 << _PRECISION)
    return x.below(1 << _PRECISION)
