"""Quotient and sign of c64, in doubles: a product of two f32 is exact there, and none overflows.

    x / y = (ac + bd)/(cc + dd) + (bc - ad)/(cc + dd) i, each sum rounded once

The reciprocal of the denominator is the machine's estimate and a step of Newton's: 2^-40 of it.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.math.complex_arithmetic import lost, with_infinities
from hlo.backend.math.complex_term import Complex, choose
from hlo.backend.math.estimates import has_estimates, reciprocal, reciprocal_root
from hlo.backend.math.rare import unless_rare
from hlo.backend.math.term import Term, fmuladd

_SIGN = -(1 << 63)
_INF = float("inf")


def divide(x: Complex, y: Complex) -> Complex:
    """x/y of doubles that hold f32 numbers; C99 Annex G.5.1's infinities."""
    c, d = y.real, y.imag
    # y or -y, the greater part positive: then zeros get the signs that Smith's algorithm gives.
    sign = (c.abs() < d.abs()).select(d, c).bits & _SIGN
    inverse = _with_sign(_inverse(fmuladd(c, c, d * d)), sign)
    real, imag = _over_square(x, _turned(y, sign), inverse)
    rare = lost(Complex(real, imag))
    return Complex(
        *unless_rare(rare, (real, imag), partial(_beside_infinities, x, y, inverse, sign))
    )


def _beside_infinities(x: Complex, y: Complex, inverse: Term, sign: Term) -> tuple[Term, Term]:
    """The same, infinities among the numbers."""
    # Beside one infinity the other part counts as a zero, and the infinity as one of its sign.
    c, d = y.real, y.imag
    is_axis = c.abs().eq(_INF) ^ d.abs().eq(_INF)
    c, d = (is_axis.select(p.abs().eq(_INF).select(p.const(1.0), 0.0).copysign(p), p)
            for p in (c, d))  # fmt: skip
    real, imag = _over_square(x, _turned(Complex(c, d), sign), inverse)
    found = with_infinities(x, y, Complex(real, imag))
    return found.real, found.imag


def _over_square(x: Complex, y: Complex, inverse: Term) -> tuple[Term, Term]:
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return fmuladd(a, c, b * d) * inverse, fmuladd(b, c, -(a * d)) * inverse


def _turned(y: Complex, sign: Term) -> Complex:
    return Complex(_with_sign(y.real, sign), _with_sign(y.imag, sign))


def _with_sign(x: Term, sign: Term) -> Term:
    """x, or -x where the sign bit is set."""
    return (x.bits ^ sign).real


def sign(z: Complex) -> Complex:
    """z/|z| of doubles that hold f32 numbers; 0 stays."""
    square = fmuladd(z.real, z.real, z.imag * z.imag)
    inverse = _inverse_root(square)
    return choose(square.eq(0.0), z, Complex(z.real * inverse, z.imag * inverse))


def _inverse(x: Term) -> Term:
    """1/x (1 + e + e^2) for 1 - e = x y; at 0 and infinity the estimate."""
    if not has_estimates(x):
        return 1.0 / x
    y = reciprocal(x)
    e = fmuladd(-x, y, 1.0)
    better = fmuladd(y, fmuladd(e, e, e), y)
    return better.is_nan.select(y, better)


def _inverse_root(x: Term) -> Term:
    if not has_estimates(x):
        return 1.0 / x.sqrt()
    y = reciprocal_root(x)
    e = fmuladd(-(x * y), y, 1.0)
    better = fmuladd(y * e, fmuladd(e, 0.375, 0.5), y)
    return better.is_nan.select(y, better)
