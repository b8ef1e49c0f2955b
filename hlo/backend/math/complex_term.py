"""Complex terms: lanes of complex numbers as pairs of terms, and functions of them in the module.

    a + b, a - b, a * b, -a; choose(mask, a, b); outlined_pair(name, operands, body)

Knows no function of mathematics (complex_arithmetic.py and complex_functions.py do).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.values import poison
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.math.term import Beside, Term


class Complex(Struct, frozen=True):
    """real + i imag, lanes of one float type."""

    real: Term
    imag: Term

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Complex) -> Complex:
        """(ac - bd) + (ad + bc)i, each product rounded."""
        a, b, c, d = self.real, self.imag, other.real, other.imag
        return Complex(a * c - b * d, a * d + b * c)

    def __neg__(self) -> Complex:
        return Complex(-self.real, -self.imag)

    def to(self, scalar: str) -> Complex:
        return Complex(*(p if p.scalar == scalar else p.to(scalar) for p in (self.real, self.imag)))

    def times_i(self) -> Complex:
        return Complex(-self.imag, self.real)

    def over_i(self) -> Complex:
        return Complex(self.imag, -self.real)


def choose(mask: Term, then: Complex, otherwise: Complex) -> Complex:
    """Lane by lane one or the other."""
    return Complex(mask.select(then.real, otherwise.real), mask.select(then.imag, otherwise.imag))


def outlined_pair(name: str, operands: list[Complex], body: Callable[..., Complex]) -> Complex:
    """A call to an internal function of the module that computes `body` in double.

    c64 is widened inside, and rounded once.
    """
    parts = [p for z in operands for p in (z.real, z.imag)]
    first = parts[0]
    symbol = f"hlo.complex.{name}.{first.type.strip('<>').replace(' ', '')}"
    result = f"{{{first.type}, {first.type}}}"
    if symbol not in first.w.globals:
        declarations, definitions = _definition(symbol, len(operands), first, body)
        first.w.declarations.update(declarations)
        first.w.globals.update(definitions)
    pair = first.w.call_pure(result, symbol, *(p.value for p in parts))
    halves = (first.w.extract_value(pair, i, first.type) for i in (0, 1))
    return Complex(*(first.of(half) for half in halves))


_definitions: dict[tuple[str, Target], Beside] = {}  # the same in every module


def _definition(symbol: str, count: int, like: Term, body: Callable[..., Complex]) -> Beside:
    """The declarations and the definitions that a call needs."""
    target = like.target.of_library
    found = _definitions.get((symbol, target))
    if found is not None:
        return found
    w = Writer()
    names = [Value(f"%x{i}", like.type) for i in range(2 * count)]
    terms = [Term(w, target, name) for name in names]
    operands = [Complex(*terms[2 * i : 2 * i + 2]).to("double") for i in range(count)]
    value = body(*operands).to(like.scalar)
    result = f"{{{like.type}, {like.type}}}"
    half = w.insert_value(poison(result), value.real.value, 0)
    w.ret(w.insert_value(half, value.imag.value, 1))
    w.enter_function(symbol, w, names)
    found = _definitions[symbol, target] = (w.declarations, w.globals)
    return found
