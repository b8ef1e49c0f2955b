"""Modular integer power by squaring, as a function of its own: it loops as long as exponents do."""

from __future__ import annotations

from hlo.backend.math.term import Term, do_while, outlined


def power(x: Term, y: Term, *, signed: bool) -> Term:
    """x^y mod 2^w; for y < 0 (signed): 1 for x = 1, +-1 for x = -1 by y's parity, else 0."""
    if signed:
        return outlined("power.signed", [x, y], _signed)
    return outlined("power.unsigned", [x, y], _loop)


def _signed(x: Term, y: Term) -> Term:
    negative = y < 0
    modular = _loop(x, negative.select(0, y))
    alternating = (y & 1).eq(0).select(1, x)
    unit = x.eq(1) | x.eq(-1)
    return negative.select(unit.select(alternating, 0), modular)


def _loop(x: Term, y: Term) -> Term:
    """While some lane's exponent has bits left: multiply where the bit is set, square."""

    def step(result: Term, base: Term, rest: Term) -> tuple[list[Term], Term]:
        factor = (rest & 1).ne(0).select(base, 1)
        left = rest >> 1
        return [result * factor, base * base, left], left.ne(0)

    return do_while([x.const(1), x, y], step)[0]
