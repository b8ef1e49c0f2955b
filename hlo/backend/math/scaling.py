"""Scaling by powers of two: the split of a number into exponent and mantissa, and its inverse.

AVX-512 has instructions for both (vgetexp, vgetmant, vscalef); integer forms give the same bits.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.math.term import Term, fma


class Format(Struct, frozen=True):
    """What integer code needs to know of a float type. `magic` + x rounds x to an integer."""

    mantissa: int
    bias: int
    magic: float

    @property
    def one(self) -> int:
        return self.bias << self.mantissa


FORMATS = {"float": Format(23, 127, 1.5 * 2**23), "double": Format(52, 1023, 1.5 * 2**52)}


def format_of(x: Term) -> Format:
    """The format of a term's lanes."""
    return FORMATS[x.scalar]


def times_power(y: Term, n: Term, k: Term) -> Term:
    """y * 2^n for y near 1, rounded once, overflow and subnormals right; k: n as integer lanes."""
    wide = in_register(y)
    if avx512_suffix(wide):
        return first_of(y, _scalef(wide, in_register(n)))
    half = k.ashr(1)
    return y * power_of_two(half) * power_of_two(k - half)


def grown_by_power(r: Term, s: Term, n: Term, k: Term) -> Term:
    """(1 + r s) * 2^n as times_power has it: products with a power of two round nothing."""
    if avx512_suffix(r):
        return _scalef(fma(r, s, 1.0), n)
    half = k.ashr(1)
    first = power_of_two(half)
    return fma(r * first, s, first) * power_of_two(k - half)


def power_of_two(k: Term) -> Term:
    """2^k as float lanes, for a k whose result is normal."""
    fmt = FORMATS["float" if k.scalar == "i32" else "double"]
    return ((k + fmt.bias) << fmt.mantissa).real


def split_near_one(x: Term) -> tuple[Term, Term, Term]:
    """x = m * 2^k with m in [0.75, 1.5), for positive finite x: (m, k as floats, k as integers)."""
    wide = in_register(x)
    if avx512_suffix(wide):
        m = _getmant(wide)
        k = first_of(x, _getexp(wide) - _getexp(m))
        return first_of(x, m), k, k.to("i32" if x.scalar == "float" else "i64")
    fmt = format_of(x)
    tiny = x < 2.0 ** (1 - fmt.bias)
    scaled = tiny.select(x * 2.0 ** (fmt.mantissa + 1), x)
    excess = scaled.bits - (fmt.one - (1 << (fmt.mantissa - 1)))  # relative to the code of 0.75
    k = excess.ashr(fmt.mantissa)
    m = (scaled.bits - (k << fmt.mantissa)).real
    k = k - tiny.select(k.const(fmt.mantissa + 1), 0)
    return m, k.to(x.scalar), k


def splits_any(x: Term) -> bool:
    """Whether the split takes every x >= 0: k is -inf for 0, inf for inf, and m is 1."""
    return bool(avx512_suffix(in_register(x)))


def split_of_any(x: Term) -> tuple[Term, Term]:
    """AVX-512's x = m * 2^-n for every x: n is inf for 0, -inf for inf; m is NaN for x < 0, NaN."""
    wide = in_register(x)
    m = avx512("getmant", wide, immediates=(0b1011,))
    return first_of(x, m), first_of(x, _getexp(m) - _getexp(wide))


def in_register(x: Term) -> Term:
    """A scalar as the first lane of a vector, for what AVX-512 has for vectors; else x itself."""
    if x.lanes > 1 or not x.target.has("avx512vl"):
        return x
    type = vector_of(x.scalar, 2 if x.is_double else 4)
    return x.of(x.w.pure(type, f"insertelement {type} poison, {x.value.typed}, i64 0"))


def first_of(x: Term, wide: Term) -> Term:
    """The lanes that x has of what was made from in_register(x)."""
    return wide if x.lanes == wide.lanes else x.of(x.w.extract(wide.value, 0))


def avx512_suffix(x: Term) -> str:
    """How AVX-512's intrinsics call these lanes ("ps.512"); empty where there is no such form."""
    width = x.lanes * (64 if x.is_double else 32)
    if width == 512 and x.target.has("avx512f"):
        return f"{'pd' if x.is_double else 'ps'}.512"
    if width in (128, 256) and x.target.has("avx512vl"):
        return f"{'pd' if x.is_double else 'ps'}.{width}"
    return ""


def avx512(name: str, x: Term, *operands: Term, immediates: tuple[int, ...] = ()) -> Term:
    """A masked AVX-512 intrinsic with every lane on; 512-bit forms take a rounding argument."""
    suffix = avx512_suffix(x)
    w = x.w
    mask_type = f"i{max(8, x.lanes)}"
    values = [x.value, *(o.value for o in operands)]
    values += [w.int(n, "i32") for n in immediates]
    values += [w.zero(x.type), Value("-1", mask_type)]
    if suffix.endswith("512"):
        values.append(Value("4", "i32"))
    symbol = f"llvm.x86.avx512.mask.{name}.{suffix}"
    return x.of(w.intrinsic(symbol, x.type, *values, suffix="-"))


def _scalef(y: Term, n: Term) -> Term:
    return avx512("scalef", y, n)


def _getexp(x: Term) -> Term:
    return avx512("getexp", x)


def _getmant(x: Term) -> Term:
    """Interval [3/4, 3/2) (3), the sign of x (0)."""
    return avx512("getmant", x, immediates=(3,))
