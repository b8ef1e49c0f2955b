"""Term: lanes with Python's operators, so that a formula in the source looks like the formula.

    Term(w, target, value): a + b, a < b, fma(a, b, c), condition.select(a, b), x.bits & 0x7fffffff

The opcode follows the lanes' type: fadd or add, ordered fcmp or signed icmp. Numbers become splats.
Every lane count gives the same bits, so that a scalar tail equals a vector body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from hlo.backend.ir.functions import Definition
from hlo.backend.ir.writer import Value, Writer, scalar_of, vector_of
from hlo.backend.isa.target import Target

Number = float | int
FLOATS = {"float": "i32", "double": "i64"}
REALS = {"i32": "float", "i64": "double"}


class Term(Struct, frozen=True, eq=False):
    """Float lanes, integer lanes or a mask (i1 lanes) and the writer that computes with them."""

    w: Writer
    target: Target
    value: Value

    @property
    def type(self) -> str:
        return self.value.type

    @property
    def lanes(self) -> int:
        return self.value.lanes

    @property
    def scalar(self) -> str:
        return _scalar_of(self.value.type)

    @property
    def is_float(self) -> bool:
        return _scalar_of(self.value.type) in FLOATS

    @property
    def is_double(self) -> bool:
        return _scalar_of(self.value.type) == "double"

    # -- making terms ------------------------------------------------------------------------

    def of(self, value: Value) -> Term:
        return Term(self.w, self.target, value)

    def const(self, number: Number) -> Term:
        """The number in every lane, in this term's type."""
        return self.of(_constant(number, self.value.type, math.copysign(1.0, number)))

    def _as(self, other: Term | Number) -> Value:
        if isinstance(other, Term):
            return other.value
        return _constant(other, self.value.type, math.copysign(1.0, other))

    def _binary(self, opcode: str, other: Term | Number) -> Term:
        return self.of(self.w.binary(opcode, self.value, self._as(other)))

    def _compare(self, ordered: str, integer: str, other: Term | Number) -> Term:
        opcode = f"fcmp {ordered}" if self.is_float else f"icmp {integer}"
        return self.of(self.w.compare(opcode, self.value, self._as(other)))

    # -- arithmetic --------------------------------------------------------------------------

    def __add__(self, other: Term | Number) -> Term:
        return self._binary("fadd" if self.is_float else "add", other)

    def __radd__(self, other: Number) -> Term:
        return self.const(other) + self

    def __sub__(self, other: Term | Number) -> Term:
        return self._binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self.const(other) - self

    def __mul__(self, other: Term | Number) -> Term:
        return self._binary("fmul" if self.is_float else "mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self.const(other) * self

    def __truediv__(self, other: Term | Number) -> Term:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self.const(other) / self

    def __neg__(self) -> Term:
        if self.is_float:
            return self.of(self.w.unary("fneg", self.value))
        return self.const(0) - self

    def __and__(self, other: Term | Number) -> Term:
        return self._binary("and", other)

    def __or__(self, other: Term | Number) -> Term:
        return self._binary("or", other)

    def __xor__(self, other: Term | Number) -> Term:
        return self._binary("xor", other)

    def __invert__(self) -> Term:
        return self ^ (1 if self.scalar == "i1" else -1)

    def __lshift__(self, other: Term | Number) -> Term:
        return self._binary("shl", other)

    def __rshift__(self, other: Term | Number) -> Term:
        """Logical: zeros come in."""
        return self._binary("lshr", other)

    def ashr(self, other: Term | Number) -> Term:
        return self._binary("ashr", other)

    # -- comparisons (false for NaN; signed for integers) ------------------------------------

    def __lt__(self, other: Term | Number) -> Term:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Term | Number) -> Term:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Term | Number) -> Term:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Term | Number) -> Term:
        return self._compare("oge", "sge", other)

    def eq(self, other: Term | Number) -> Term:
        return self._compare("oeq", "eq", other)

    def ne(self, other: Term | Number) -> Term:
        """Different, or unordered."""
        return self._compare("une", "ne", other)

    def below(self, other: Term | Number) -> Term:
        """Unsigned less-than."""
        return self.of(self.w.compare("icmp ult", self.value, self._as(other)))

    @property
    def is_nan(self) -> Term:
        return self.of(self.w.compare("fcmp uno", self.value, self.value))

    # -- masks -------------------------------------------------------------------------------

    def select(self, then: Term | Number, otherwise: Term | Number) -> Term:
        """`then` in the lanes where this mask holds, elsewhere `otherwise` (one is a Term)."""
        kind = then if isinstance(then, Term) else otherwise
        assert isinstance(kind, Term)
        return self.of(self.w.select(self.value, kind._as(then), kind._as(otherwise)))

    def any(self) -> Term:
        """One i1: whether the mask holds in some lane."""
        return self.of(self.w.any_lane(self.value))

    # -- forms of the same lanes -------------------------------------------------------------

    @property
    def bits(self) -> Term:
        """Float lanes as the integers of their encoding."""
        return self.of(self.w.cast("bitcast", self.value, self._like(FLOATS[self.scalar])))

    @property
    def real(self) -> Term:
        """Integers as the floats that they encode."""
        return self.of(self.w.cast("bitcast", self.value, self._like(REALS[self.scalar])))

    def to(self, scalar: str, *, signed: bool = True) -> Term:
        """Converted by value to lanes of another scalar type."""
        opcode = self._conversion(scalar, signed=signed)
        return self.of(self.w.cast(opcode, self.value, self._like(scalar)))

    def _conversion(self, scalar: str, *, signed: bool) -> str:
        if self.is_float and scalar in FLOATS:
            return "fpext" if scalar == "double" else "fptrunc"
        if self.is_float:
            return "fptosi" if signed else "fptoui"
        if scalar in FLOATS:
            return "sitofp" if signed else "uitofp"
        if int(self.scalar[1:]) > int(scalar[1:]):
            return "trunc"
        return "sext" if signed else "zext"

    def _like(self, scalar: str) -> str:
        return vector_of(scalar, self.lanes)

    # -- floats ------------------------------------------------------------------------------

    def call(self, intrinsic: str, *others: Term) -> Term:
        """An overloaded intrinsic whose operands and result all have this type."""
        operands = (self.value, *(o.value for o in others))
        return self.of(self.w.intrinsic(intrinsic, self.type, *operands))

    def abs(self) -> Term:
        return self.call("llvm.fabs")

    def sqrt(self) -> Term:
        return self.call("llvm.sqrt")

    def copysign(self, sign: Term | Number) -> Term:
        return self.call("llvm.copysign", self.of(self._as(sign)))

    def at_most(self, bound: Number) -> Term:
        """min(x, bound) that keeps a NaN."""
        if self._has_extremes(bound):
            return self.call("llvm.minimum", self.const(bound))
        return (self > bound).select(bound, self)

    def at_least(self, bound: Number) -> Term:
        """max(x, bound) that keeps a NaN."""
        if self._has_extremes(bound):
            return self.call("llvm.maximum", self.const(bound))
        return (self < bound).select(bound, self)

    def _has_extremes(self, bound: Number) -> bool:
        """Whether one instruction does it: zeros, which it tells apart, are equal here."""
        return self.is_float and bound != 0 and self.target.isa.has_extremes


@lru_cache(maxsize=256)
def _scalar_of(type: str) -> str:
    return scalar_of(type)


@lru_cache(maxsize=8192)
def _constant(number: Number, type: str, sign: float) -> Value:
    """A number in every lane; `sign` tells -0 from 0 in the cache."""
    scalar = scalar_of(type)
    if scalar in FLOATS:
        return Writer().float(number, type)
    if scalar == "i1":
        text = "true" if number else "false"
        return Value(text if type == "i1" else f"splat (i1 {text})", type)
    return Writer().int(int(number), type)


def fma(a: Term, b: Term | Number, c: Term | Number) -> Term:
    """a * b + c of finite numbers, rounded once; without an instruction for it from the product in
    two parts, which is off by another 2^-20 of a last place, and of f64 by 2^-103 of the product.
    """
    if a.target.isa.fuses:
        return exact_fma(a, b, c)
    product, low = two_product(a, a.of(a._as(b)))
    total, lost = two_sum(product, a.of(a._as(c)))
    return total + (lost + low)


def exact_fma(a: Term, b: Term | Number, c: Term | Number) -> Term:
    """a * b + c, rounded once for all numbers: without an instruction a function that is called."""
    return a.call("llvm.fma", a.of(a._as(b)), a.of(a._as(c)))


def fmuladd(a: Term, b: Term | Number, c: Term | Number) -> Term:
    """a * b + c where the product may be rounded: it is exact, or small beside the sum."""
    return exact_fma(a, b, c) if a.target.isa.fuses else a * b + c


def residual(c: Term | Number, a: Term, b: Term | Number) -> Term:
    """c - a * b, rounded once, where these differ by less than half of c."""
    if a.target.isa.fuses:
        return exact_fma(-a, b, c)
    product, low = two_product(a, a.of(a._as(b)))
    return (c - product) - low


def subnormal_residual(c: Term, a: Term, b: Term) -> Term:
    """The same where a and c may be subnormal, |b| and |c| far below the largest number: parts of
    such a product would be lost.
    """
    if a.target.isa.fuses:
        return exact_fma(-a, b, c)
    scale = 2.0**100
    return residual(c * scale, a * scale, b) * (1.0 / scale)


def grown(x: Term, p: Term) -> Term:
    """x + x * p, rounded once, and a subnormal result too: parts of its product would be lost."""
    if x.target.isa.fuses:
        return exact_fma(x, p, x)
    scale = _SPARE[x.scalar]
    large = x * scale
    return fma(large, p, large) * (1.0 / scale)


_LONG = 8  # Coefficients of a polynomial whose steps are worth fewer of them in a row.
_SPARE = {"float": 2.0**64, "double": 2.0**128}  # |x| and |p| are below the largest number by it


def near_one(r: Term, q: Term) -> Term:
    """1 + r (1 + r * q), rounded nearly once: below 0.6 ulp for |r| <= ln(2)/2, |q| <= 1."""
    if r.target.isa.fuses:
        return exact_fma(r, exact_fma(r, q, 1.0), 1.0)
    whole, lost = fast_two_sum(r.const(1.0), r)
    return whole + (lost + r * r * q)


def horner(x: Term, coefficients: Sequence[float]) -> Term:
    """The polynomial with these coefficients, the constant one first."""
    result = x.const(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fmuladd(result, x, coefficient)
    return result


def estrin(x: Term, coefficients: Sequence[float]) -> Term:
    """The same by halves, for chains that are waited for: log2 n steps, and as many products more.

    (c0 + c1 x) + x^2 (c2 + c3 x) + x^4 (..): pairs first, then pairs of pairs.
    """
    pairs = zip(coefficients[::2], coefficients[1::2], strict=False)
    parts = [fmuladd(x, b, x.const(a)) for a, b in pairs]
    if len(coefficients) % 2:
        parts.append(x.const(coefficients[-1]))
    while len(parts) > 1:
        x = x * x
        joined = [fmuladd(b, x, a) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[len(joined) * 2 :]
    return parts[0]


def series(x: Term, coefficients: Sequence[float]) -> Term:
    """A long polynomial of doubles; by halves where nothing fuses, for a step takes two operations
    there, one waiting for the other. exp, expm1, logistic of f64 take 0.8 to 0.87 of the time on
    SSE. With fused steps AVX2 would take 0.9, but AVX-512, which gives the same bits, up to 1.1.
    """
    waits = x.is_double and len(coefficients) > _LONG and not x.target.isa.fuses
    return (estrin if waits else horner)(x, coefficients)


def two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """a + b as rounded sum and exact error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fast_two_sum(a: Term, b: Term) -> tuple[Term, Term]:
    """The same where |a| >= |b| (Dekker)."""
    total = a + b
    return total, b - (total - a)


def two_product(a: Term, b: Term) -> tuple[Term, Term]:
    """a * b as rounded product and its error, exact but for 2^-103 of the product (of f64).

    Without an instruction that rounds a product and a sum once, from halves of the numbers (Dekker
    1971; cut off instead of rounded, so that nothing overflows).
    """
    product = a * b
    if a.target.isa.fuses:
        return product, exact_fma(a, b, -product)
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    rest = (a_high * b_high - product) + a_high * b_low + a_low * b_high
    return product, rest + a_low * b_low


_NUMPY, _CODES = {"float": "f4", "double": "f8"}, {"float": "i4", "double": "i8"}
_LOW_BITS = {"float": 12, "double": 27}  # of a number's code: the other half's, and no more


def halves(x: Term) -> tuple[Term, Term]:
    """x as a sum of two numbers, the first of which has half of its digits."""
    if (number := x.value.number) is not None:
        codes = np.array([number], _NUMPY[x.scalar]).view(_CODES[x.scalar])
        codes &= -(1 << _LOW_BITS[x.scalar])
        part = float(codes.view(_NUMPY[x.scalar])[0])
        return x.const(part), x.const(number - part)
    high = (x.bits & -(1 << _LOW_BITS[x.scalar])).real
    return high, x - high


def outlined(
    name: str,
    operands: Sequence[Term],
    body: Callable[..., Term],
    result: str = "",
    *,
    is_straight: bool = False,
) -> Term:
    """A call to an internal function of the module, defined once under `name` and its types.

    For long formulas: the code is compiled once, and control flow stays out of the caller's blocks.
    is_straight: there is none, so that the formula may stand in the place of the call, where its
    writer says that this is worth the code: a loop's vectors are then worked on together, and its
    constants stay in registers. Powers take 0.76 of the time so, arc tangents 0.83 (Zen 5).
    """
    first = operands[0]
    if is_straight and first.w.inlines > 0:
        first.w.inlines -= 1
        return body(*operands)
    types = [o.type for o in operands]
    result = result or first.type
    symbol = "hlo." + ".".join([name, *(t.strip("<>").replace(" ", "") for t in types)])
    if symbol not in first.w.globals:
        declarations, definitions = _definition(symbol, first.target, operands, body)
        first.w.declarations.update(declarations)
        first.w.globals.update(definitions)
    return first.of(first.w.call_pure(result, symbol, *(o.value for o in operands)))


Beside = tuple[dict[str, str], dict[str, Definition]]  # declarations and globals, by symbol
_definitions: dict[tuple[str, Target], Beside] = {}  # the same in every module


def _definition(
    symbol: str, target: Target, operands: Sequence[Term], body: Callable[..., Term]
) -> Beside:
    """The declarations and the definitions that a call to an outlined function needs."""
    target = target.of_library
    found = _definitions.get((symbol, target))
    if found is None:
        w = Writer()
        parameters = [Value(f"%x{i}", o.type) for i, o in enumerate(operands)]
        value = body(*(Term(w, target, p) for p in parameters)).value
        w.ret(value)
        w.enter_function(symbol, w, parameters)
        found = _definitions[symbol, target] = (w.declarations, w.globals)
    return found


def do_while(
    initial: Sequence[Term], step: Callable[..., tuple[Sequence[Term], Term]]
) -> list[Term]:
    """Run `step` on the lanes at least once, and again while its second result holds in any lane.

    Only inside an outlined function: it opens basic blocks.
    """
    w = initial[0].w
    before, head, done = (w.new_label(name) for name in ("before", "head", "done"))
    w.branch(before)
    w.label(before)
    w.branch(head)
    w.label(head)
    phis = [w.phi(x.type, (x.value, before), name=w.fresh("p"), is_tight=True) for x in initial]
    following, more = step(*(x.of(phi.value) for x, phi in zip(initial, phis, strict=True)))
    last = w.new_label("latch")
    condition = more.any()
    w.branch(last)
    w.label(last)
    w.branch_if(condition.value, head, done)
    w.label(done)
    for phi, later in zip(phis, following, strict=True):
        phi.add_incoming(later.value, last)
    return list(following)
