"""Libcalls on floats: what a processor's instructions lack, under the names that LLVM calls.

    fmaf, fma; floorf, ceilf, truncf, roundevenf, roundf, floor, ..        with C's meaning

Where a machine has no fused product and sum, or does not round to integers, LLVM calls the C
library, which code compiled ahead of time does without. These give the same bits: each is exact or
rounded once. f32's product and sum are taken in f64, where the product is exact, and the sum is
rounded to odd, so that rounding it again is rounding once; f64's are integers of 128 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from msgspec import Struct

from hlo.backend.ir.interface import prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

_SINGLES = ("fmaf", "floorf", "ceilf", "truncf", "roundevenf", "roundf")
NAMES = (*_SINGLES, *(name[:-1] for name in _SINGLES))  # The functions of f32, then those of f64.

# Of f64: bits of the fraction, the greatest code of the exponent, and the code for which the last
# place of the fraction is 1.
_FRACTION, _CODES, _BIAS = 52, 2047, 1075
_LEAST = -1022  # Numbers of lower exponents are subnormal.
_ROOM = 20  # Bits of 126 that a product of two fractions leaves.
_ADDEND_ROOM = 73  # Bits of 126 that one fraction leaves.
_WIDE = "i128"
_LEADING_ZEROS = prototype(_WIDE, "llvm.ctlz.i128", _WIDE, "i1")


def define(unit: Unit, names: Iterable[str]) -> None:
    """Some of NAMES."""
    for name in names:
        single = name if name in _SINGLES else f"{name}f"
        type = "float" if name in _SINGLES else "double"
        if single != _SINGLES[0]:
            unit.define(prototype(type, name, type), partial(_rounded, single))
            continue
        body = _fused_single if name == single else _fused
        unit.define(prototype(type, name, type, type, type), body)


class _Kind(Struct, frozen=True):
    """Numbers of f32 or f64: words, and the first magnitude at which all are whole."""

    type: str
    word: str
    whole: float

    def number(self, p: Procedure, x: float) -> Word:
        """A constant."""
        return Word(p.w.float(x, self.type).text, self.type, p.w)

    def signed_as(self, x: Word, sign: Word) -> Word:
        """x, which is not below 0 or has the sign already, with another's sign."""
        mask = 1 << (int(self.word[1:]) - 1)
        own = x.cast("bitcast", self.word) & (mask - 1)
        return (own | (sign.cast("bitcast", self.word) & -mask)).cast("bitcast", self.type)


_SINGLE = _Kind("float", "i32", 2.0**23)
_DOUBLE = _Kind("double", "i64", 2.0**52)


def _rounded(how: str, p: Procedure, x: Word) -> None:
    """x rounded to an integer; what is whole, infinite or NaN is given back as it is."""
    kind = _SINGLE if x.type == "float" else _DOUBLE
    size = kind.signed_as(x, kind.number(p, 0.0))
    with p.when(~size.compare("fcmp olt", kind.number(p, kind.whole))):
        p.ret(x)
    if how == "roundevenf":
        moved = size.binary("fadd", kind.number(p, kind.whole))
        found = moved.binary("fsub", kind.number(p, kind.whole))
    else:
        cut = x.cast("fptosi", kind.word).cast("sitofp", kind.type)
        found = _STEPS[how](p, kind, x, cut)
    p.ret(kind.signed_as(found, x))


def _down(p: Procedure, kind: _Kind, x: Word, cut: Word) -> Word:
    less = cut.binary("fsub", kind.number(p, 1.0))
    return cut.compare("fcmp ogt", x).select(less, cut)


def _up(p: Procedure, kind: _Kind, x: Word, cut: Word) -> Word:
    more = cut.binary("fadd", kind.number(p, 1.0))
    return cut.compare("fcmp olt", x).select(more, cut)


def _nearest(p: Procedure, kind: _Kind, x: Word, cut: Word) -> Word:
    """Halves away from 0."""
    rest = kind.signed_as(x.binary("fsub", cut), kind.number(p, 0.0))
    away = cut.binary("fadd", kind.signed_as(kind.number(p, 1.0), x))
    return rest.compare("fcmp oge", kind.number(p, 0.5)).select(away, cut)


def _kept(_: Procedure, __: _Kind, ___: Word, cut: Word) -> Word:
    return cut


_STEPS: dict[str, Callable[[Procedure, _Kind, Word, Word], Word]] = {
    "floorf": _down, "ceilf": _up, "truncf": _kept, "roundf": _nearest
}  # fmt: skip


def _fused_single(p: Procedure, x: Word, y: Word, z: Word) -> None:
    a, b, c = (v.cast("fpext", "double") for v in (x, y, z))
    product = a.binary("fmul", b)
    total = product.binary("fadd", c)
    other = total.binary("fsub", product)
    lost = product.binary("fsub", total.binary("fsub", other))
    error = lost.binary("fadd", c.binary("fsub", other))
    zero = _DOUBLE.number(p, 0.0)
    bits = total.cast("bitcast", "i64")
    is_even = (bits & 1).eq(0)
    is_inexact = error.compare("fcmp one", zero)
    outwards = error.compare("fcmp ogt", zero).binary("xor", total.compare("fcmp olt", zero))
    odd = outwards.select(bits + 1, bits - 1)
    found = (is_even & is_inexact).select(odd, bits)
    p.ret(found.cast("bitcast", "double").cast("fptrunc", "float"))


class _Parts(Struct, frozen=True):
    """Of an f64 its sign (the bit where it stands), exponent's code and fraction as integers."""

    sign: Word
    code: Word
    fraction: Word

    @staticmethod
    def of(x: Word) -> _Parts:
        """Subnormal numbers have the least exponent, and no leading bit."""
        bits = x.cast("bitcast", "i64")
        code = (bits >> _FRACTION) & _CODES
        is_normal = code.ne(0)
        one = is_normal.cast("zext", "i64")
        fraction = (bits & ((1 << _FRACTION) - 1)) | (one << _FRACTION)
        return _Parts(bits & -(1 << 63), code + (one.binary("xor", 1)), fraction)


def _fused(p: Procedure, x: Word, y: Word, z: Word) -> None:
    a, b, c = map(_Parts.of, (x, y, z))
    product = a.fraction.to(_WIDE) * b.fraction.to(_WIDE)
    is_finite = a.code.ne(_CODES) & b.code.ne(_CODES) & c.code.ne(_CODES)
    with p.when(~(is_finite & product.ne(0))):
        p.ret(x.binary("fmul", y).binary("fadd", z))
    exponent = a.code + b.code - 2 * _BIAS
    distance = c.code - _BIAS - exponent
    is_above = distance > 0
    # Both with one exponent; what is shifted out leaves its trace in the last bit.
    up = _least(is_above.select(distance, p.word(0)), p.word(_ADDEND_ROOM))
    product_up = _least(is_above.select(p.word(0), 0 - distance), p.word(_ROOM))
    addend = c.fraction.to(_WIDE) << up.to(_WIDE)
    addend = _shifted(addend, is_above.select(p.word(0), (0 - distance) - product_up))
    product = product << product_up.to(_WIDE)
    product = _shifted(product, is_above.select(distance - up, p.word(0)))
    exponent = is_above.select(exponent + (distance - up), exponent - product_up)
    sign = a.sign.binary("xor", b.sign)
    is_sum = sign.eq(c.sign)
    total = is_sum.select(product + addend, product - addend)
    with p.when(total.eq(0)):
        p.ret(_DOUBLE.number(p, 0.0))
    is_negative = total < 0
    sign = is_negative.select(c.sign, sign)
    total = is_negative.select(0 - total, total)
    p.ret(_composed(p, sign, exponent, total))


def _composed(p: Procedure, sign: Word, exponent: Word, total: Word) -> Word:
    """The number nearest to total 2^exponent, ties to even; total is not 0."""
    zeros = p.call(_LEADING_ZEROS, total, 1)
    total = total << zeros
    top = exponent - zeros.to("i64") + 127
    below = p.word(_LEAST) - top
    is_below = below > 0
    shift = _least(is_below.select(below, p.word(0)), p.word(64)) + (127 - _FRACTION)
    is_far = shift > 100
    total = is_far.select(_shifted(total, p.word(64)), total)
    shift = is_far.select(shift - 64, shift).to(_WIDE)
    quotient = total >> shift
    rest = total - (quotient << shift)
    one = Word("1", _WIDE, p.w)
    half = one << (shift - 1)
    is_odd = (quotient & 1).ne(0)
    rises = rest.above(half) | (rest.eq(half) & is_odd)
    fraction = (quotient + rises.cast("zext", _WIDE)).to("i64")
    code = is_below.select(p.word(0), top - _LEAST)
    bits = (code << _FRACTION) + fraction
    infinite = p.word(_CODES << _FRACTION)
    bits = (top > -_LEAST + 1).select(infinite, bits)
    return (bits | sign).cast("bitcast", "double")


def _least(a: Word, b: Word) -> Word:
    return (a < b).select(a, b)


def _shifted(x: Word, by: Word) -> Word:
    """x shifted right; the last bit is 1 where a bit is lost. by: 0 and more."""
    amount = _least(by, Word("127", "i64", x.w)).to(_WIDE)
    found = x >> amount
    lost = (found << amount).ne(x).cast("zext", _WIDE)
    return found | lost
