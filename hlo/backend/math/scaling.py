"""Scaling by powers of two: the split of a number into exponent and mantissa, and its inverse.

Where instructions do both (isa's FloatParts) they are used; integer forms give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ir.values import poison, vector_of
from hlo.backend.isa.generic import FloatParts
from hlo.backend.math import rounding
from hlo.backend.math.term import Term, fmuladd, near_one, series


class Format(Struct, frozen=True):
    """What integer code needs to know of a float type. `magic` + x rounds x to an integer."""

    mantissa: int
    bias: int
    magic: float

    @property
    def one(self) -> int:
        return self.bias << self.mantissa


_ABOVE = 1 << 11  # more than exponents of doubles are below 0, subnormal ones too

FORMATS = {"float": Format(23, 127, 1.5 * 2**23), "double": Format(52, 1023, 1.5 * 2**52)}


def format_of(x: Term) -> Format:
    """The format of a term's lanes."""
    return FORMATS[x.scalar]


def times_power(y: Term, n: Term, k: Term) -> Term:
    """y * 2^n for y near 1, rounded once, overflow and subnormals right; k: n as integer lanes."""
    wide = in_register(y)
    if has_parts(wide):
        return first_of(y, scaled(wide, in_register(n)))
    half = k.ashr(1)
    return y * power_of_two(half) * power_of_two(k - half)


def grown_by_power(r: Term, q: Sequence[float], n: Term, shifted: Term) -> Term:
    """(1 + r (1 + r q(r))) 2^n for small r, a subnormal result rounded once.

    shifted: n + magic. Without instructions for it 2^n is at most 2 times the largest power, and
    what is beyond the largest number is anything.
    """
    fmt = format_of(r)
    least = fmt.bias - 1 + fmt.mantissa
    if not has_parts(r):
        return _by_exponent(near_one(r, series(r, q)), shifted, least)
    # In units of the least subnormal a small result is an integer, and this its code.
    small = n < 2.0 - fmt.bias
    power = small.select(n + least, n)
    y = scaled(near_one(r, series(r, q)), power)
    return small.select(rounding.nearest_integer(y), y.bits).real


def grown_to_normal(r: Term, q: Sequence[float], n: Term, shifted: Term) -> Term:
    """The same where the result is a normal number for every n that comes."""
    y = near_one(r, series(r, q))
    if has_parts(r):
        return scaled(y, n)
    return (y.bits + (shifted.bits << format_of(y).mantissa)).real


def _by_exponent(y: Term, shifted: Term, least: int) -> Term:
    """y 2^n for y in [0.7, 1.5]: the code of y with n added to its exponent. What is less than a
    normal number's is one where the result is small: then the sum with 2^mantissa rounds it to
    units of the least number, and holds its code.
    """
    fmt, unit = format_of(y), 2.0 ** format_of(y).mantissa
    power = shifted.bits << fmt.mantissa  # the low bits are n
    code = y.bits + power
    small = code < 1 << fmt.mantissa
    in_units = (power + _wrapped(fmt.bias + least, fmt)).real
    if not y.target.isa.fuses:  # a product of its own, subnormal for some other power
        in_units = small.select(in_units, 0.0)
    rounded = fmuladd(y, in_units, unit).bits - y.const(unit).bits
    return small.select(rounded, code).real


def _wrapped(exponent: int, fmt: Format) -> int:
    """An exponent in its place in a code, as integer lanes hold it."""
    sign = (fmt.bias + 1) * 2
    return ((exponent + sign) % (2 * sign) - sign) << fmt.mantissa


def power_of_two(k: Term) -> Term:
    """2^k as float lanes, for a k whose result is normal."""
    fmt = FORMATS["float" if k.scalar == "i32" else "double"]
    return ((k + fmt.bias) << fmt.mantissa).real


def split_near_one(x: Term) -> tuple[Term, Term, Term]:
    """x = m * 2^k with m in [0.75, 1.5): (m, k as floats, k as integers).

    For positive finite x; of others m is such a number too, and k any.
    """
    wide = in_register(x)
    if parts := _parts(wide):
        m = wide.of(parts.mantissa(x.w, wide.value))
        k = first_of(x, _exponent(wide) - _exponent(m))
        return first_of(x, m), k, k.to("i32" if x.scalar == "float" else "i64")
    fmt = format_of(x)
    # A subnormal number is scaled by as many powers as its code is made less by afterwards: with
    # that code in hand no number has to be selected, which takes some processors three steps.
    tiny = x < 2.0 ** (1 - fmt.bias)
    more = tiny.select(x.bits.const(fmt.mantissa + 1 << fmt.mantissa), 0)
    normal = x * (more + fmt.one).real
    least = fmt.one - (1 << (fmt.mantissa - 1))  # the code of 0.75, to which others are relative
    excess = normal.bits - least - more
    m = ((excess & (1 << fmt.mantissa) - 1) + least).real
    if not x.is_double or x.target.isa.converts_long_integers:
        k = excess.ashr(fmt.mantissa)
        return m, k.to(x.scalar), k
    # 2048 more has no sign, modulo 2^64, and is a number's last bits, of which the rest is known.
    k = (excess + (-_ABOVE << fmt.mantissa)) >> fmt.mantissa
    whole = (k | x.const(2.0**fmt.mantissa).bits).real - (2.0**fmt.mantissa + _ABOVE)
    return m, whole, k - _ABOVE


def splits_any(x: Term) -> bool:
    """Whether the split takes every x >= 0: k is -inf for 0, inf for inf, and m is 1."""
    return has_parts(in_register(x))


def split_of_any(x: Term) -> tuple[Term, Term]:
    """x = m * 2^-n for every x: n is inf for 0, -inf for inf; m is NaN for x < 0, NaN."""
    wide = in_register(x)
    parts = _parts(wide)
    assert parts is not None, "asked for where has_parts holds"
    m = wide.of(parts.mantissa(x.w, wide.value, nan_below_zero=True))
    return first_of(x, m), first_of(x, _exponent(m) - _exponent(wide))


def in_register(x: Term) -> Term:
    """A scalar as the first lane of a vector, where only these have parts; else x itself."""
    lanes = x.target.isa.register_lanes(x.scalar)
    if x.lanes > 1 or lanes == 1:
        return x
    return x.of(x.w.insert(poison(vector_of(x.scalar, lanes)), x.value, 0))


def first_of(x: Term, wide: Term) -> Term:
    """The lanes that x has of what was made from in_register(x)."""
    return wide if x.lanes == wide.lanes else x.of(x.w.extract(wide.value, 0))


def has_parts(x: Term) -> bool:
    """Whether instructions scale these lanes and take them apart."""
    return _parts(x) is not None


def scaled(y: Term, n: Term) -> Term:
    """y * 2^n for whole floats n, rounded once."""
    parts = _parts(y)
    assert parts is not None, "asked for where has_parts holds"
    return y.of(parts.scaled(y.w, y.value, n.value))


def _exponent(x: Term) -> Term:
    parts = _parts(x)
    assert parts is not None, "asked for where has_parts holds"
    return x.of(parts.exponent(x.w, x.value))


def _parts(x: Term) -> FloatParts | None:
    return x.target.isa.float_parts(x.type)
