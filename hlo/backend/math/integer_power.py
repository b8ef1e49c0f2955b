"""Modular integer power by squaring, as a function of its own: it loops as long as exponents do.

The exponent is read as XLA:CPU reads it (docs/semantics.md 4): its low six bits
count, and one with the lane's top bit set is negative, in unsigned types too.
"""

from __future__ import annotations

from hlo.backend.math.term import Term, do_while, outlined


def power(x: Term, y: Term) -> Term:
    """x^(y mod 64) mod 2^w; for y < 0: 1 for x = 1, +-1 for x = -1 by y's parity, else 0."""
    return outlined("power", [x, y], _power)


def _power(x: Term, y: Term) -> Term:
    alternating = (y & 1).eq(0).select(1, x)
    inverse = (x.eq(1) | x.eq(-1)).select(alternating, 0)

    def step(result: Term, base: Term, rest: Term) -> tuple[list[Term], Term]:
        factor = (rest & 1).ne(0).select(base, 1)
        left = rest >> 1
        return [result * factor, base * base, left], left.ne(0)

    modular = do_while([x.const(1), x, y & 63], step)[0]
    return (y < 0).select(inverse, modular)
