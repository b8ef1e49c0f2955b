"""Elementwise operations on complex numbers, held as pairs (real, imaginary) of lanes."""

from __future__ import annotations

from hlo.backend.emitters import conversion
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import Lanes
from hlo.backend.math.complex_term import Complex
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType


def term(w: Writer, target: Target, lanes: Lanes) -> Term | Complex:
    """Lanes to compute with."""
    if isinstance(lanes, Value):
        return Term(w, target, lanes)
    return Complex(*(Term(w, target, part) for part in lanes))


def lanes(x: Term | Complex) -> Lanes:
    """The inverse."""
    return x.value if isinstance(x, Term) else (x.real.value, x.imag.value)


def compared(direction: str, a: Complex, b: Complex) -> Term:
    """The mask of equal or unequal numbers."""
    equal = a.real.eq(b.real) & a.imag.eq(b.imag)
    return equal if direction == "EQ" else ~equal


def converted(x: Term | Complex, source: DType, target: DType) -> Term | Complex:
    """Part by part; a real has imaginary part 0; to reals the imaginary part is dropped."""
    component, goal = source.component, target.component
    if isinstance(x, Term):
        whole = conversion.converted(x, component, goal)
        return Complex(whole, whole.const(0.0))
    if target.is_pred:
        return x.real.ne(0.0) | x.imag.ne(0.0)
    part = conversion.converted(x.real, component, goal)
    if not target.is_complex:
        return part
    return Complex(part, conversion.converted(x.imag, component, goal))


def real(z: Complex) -> Term:
    """The real part."""
    return z.real


def imag(z: Complex) -> Term:
    """The imaginary part."""
    return z.imag


# What needs no function of mathematics.
negate, add = Complex.__neg__, Complex.__add__
subtract, multiply = Complex.__sub__, Complex.__mul__
