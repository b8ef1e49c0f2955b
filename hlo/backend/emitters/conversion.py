"""convert, bitcast-convert, reduce-precision, stochastic-convert: lanes of one type as another's.

A result narrower than f32 is rounded by the caller (lanes/types.py), so a double or a wide
integer goes to float lanes by rounding to odd: the caller's rounding is then the only one
(Boldo and Melquiond 2008: odd rounding with two more bits is harmless).
"""

from __future__ import annotations

from hlo.backend.emitters.lanes import closed
from hlo.backend.ir.writer import mangled, vector_of
from hlo.backend.lanes.types import compute_scalar, decoded, encoded
from hlo.backend.math import rounding
from hlo.backend.math.scaling import format_of
from hlo.backend.math.term import Term
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, FloatFormat

_FLOAT_BITS = 24  # of an integer that a float holds
_KEPT_BITS = 12  # of a double's mantissa, two and more beyond those of a type below 32 bits


def converted(x: Term, source: DType, target: DType) -> Term:
    """Real, integer or pred lanes by value; to integers toward zero and saturating."""
    if source is target:
        return x
    if target.is_pred:
        return x.ne(0)
    if target.is_float:
        return _to_float(x, source, target)
    if source.is_float:
        return closed(_float_to_integer(x, target), target)
    scalar = compute_scalar(target)
    return x if x.scalar == scalar else x.to(scalar, signed=source.is_signed)


def _to_float(x: Term, source: DType, target: DType) -> Term:
    scalar = compute_scalar(target)
    if source.is_float:
        if x.scalar == scalar:
            return x
        return _odd_float(x, target) if target.bits < 32 else x.to(scalar)
    if target.bits >= 32 or source.bits < 24 or source.is_pred:
        return x.to(scalar, signed=source.is_signed)
    fmt = target.float_format
    assert fmt is not None, "a float below 32 bits"
    if _too_large(fmt) < 1 << _FLOAT_BITS:
        return _bounded(x, _too_large(fmt), is_signed=source.is_signed).to(scalar)
    if source.bits == 64:
        x = _odd_53_bits(x, source)
    return _odd_float(x.to("double", signed=source.is_signed), target)


def _too_large(fmt: FloatFormat) -> int:
    """A power of two that the format rounds as it does all that is larger."""
    return 1 << ((1 << fmt.exponent) - fmt.bias + 1)


def _bounded(x: Term, bound: int, *, is_signed: bool) -> Term:
    """32 or 64-bit integers as those of 32 bits, -bound and bound for what is beyond."""
    if is_signed:
        x = x.call("llvm.smin", x.const(bound)).call("llvm.smax", x.const(-bound))
    else:
        x = x.call("llvm.umin", x.const(bound))
    return x if x.scalar == "i32" else x.to("i32")


def _odd_53_bits(x: Term, source: DType) -> Term:
    """64-bit integers that a double holds: what the last 11 bits say is kept in bit 11."""
    odd = (x | ((x & 0x7FF) + 0x7FF)) & ~0x7FF
    top = x.ashr(53) if source.is_signed else x >> 53
    small = (top + 1).below(2) if source.is_signed else top.eq(0)
    return small.select(x, odd)


def _odd_float(x: Term, target: DType) -> Term:
    """A double as a float for a type of 16 bits or fewer: the bits behind the first 12 of the
    mantissa are 0, what they were is in the 12th (a sum carries there). Of subnormal floats that
    leaves more than such a type keeps of its own. A scale has no zero.
    """
    fmt = target.float_format
    if fmt is not None and not fmt.has_sign:
        x = (x > 0.0).select(x.at_least(2.0**-140), x)
    dropped = (1 << (format_of(x).mantissa - _KEPT_BITS)) - 1
    odd = (x.bits | ((x.bits & dropped) + dropped)) & ~dropped
    return odd.real.to("float")


def _float_to_integer(x: Term, target: DType) -> Term:
    """Toward zero; too large and too small saturate, NaN gives 0.

    Bounds are clamped in the float type where they are exact there, else the upper one is selected
    afterwards: LLVM's conversion is undefined beyond the type.
    """
    least, greatest = target.int_range
    if x.target.isa.saturates:
        return _saturated(x, target)
    precision = format_of(x).mantissa + 1
    number = x.is_nan.select(0.0, x).at_least(float(least))
    wide = compute_scalar(target) if target.bits >= 32 else "i32"
    signed = target.is_signed or target.bits < 32
    if greatest.bit_length() <= precision:
        whole = number.at_most(float(greatest)).to(wide, signed=signed)
        return whole.to(f"i{max(8, target.bits)}") if target.bits < 32 else whole
    over = x >= 2.0 ** greatest.bit_length()
    whole = over.select(0.0, number).to(wide, signed=signed)
    return over.select(greatest, whole)


def _saturated(x: Term, target: DType) -> Term:
    """The same by the machine's own conversion; narrower integers by way of those of its width."""
    own = 64 if x.is_double else 32
    is_narrow = target.bits < own
    type = vector_of(f"i{own}" if is_narrow else compute_scalar(target), x.lanes)
    name = "llvm.fptosi.sat" if is_narrow or target.is_signed else "llvm.fptoui.sat"
    whole = x.of(x.w.intrinsic(name, type, x.value, suffix=f"{mangled(type)}.{mangled(x.type)}"))
    if not is_narrow:
        return whole
    least, greatest = (whole.const(bound) for bound in target.int_range)
    bounded = whole.call("llvm.smax", least).call("llvm.smin", greatest)
    return bounded.to(f"i{max(8, target.bits)}")


def bits_converted(x: Term, source: DType, target: DType) -> Term:
    """The same bits read as another type of the same width."""
    if source is target:
        return x
    bits = storage_bits(x, source)
    if target.is_float and target.bits >= 32:
        return bits.real
    if target.is_pred:
        return bits.ne(0)
    if target.is_integral:
        return bits if target.bits >= 8 else bits.to(f"i{target.bits}")
    return x.of(decoded(x.w, x.target, bits.value, target))


def storage_bits(x: Term, dtype: DType) -> Term:
    """Integer lanes of an element's code; a type below 8 bits fills the low bits of i8."""
    if dtype.is_float and dtype.bits >= 32:
        return x.bits
    if dtype.is_pred:
        return x.to("i8", signed=False)
    if dtype.is_integral:
        return x.to("i8", signed=False) if dtype.bits < 8 else x
    read = x.w.noted(x.value, dtype.name)
    if read is not None and dtype.bits <= 8:
        return x.of(read)  # f16's unit, through which some 8-bit codes go, makes NaNs quiet
    code = x.of(encoded(x.w, x.target, x.value, dtype))
    fmt = dtype.float_format
    if dtype.bits > 8 or fmt is None or fmt.nan != "ieee" or x.w.noted(x.value, dtype.name):
        return code
    payload = (x.bits >> (23 - fmt.mantissa)).to(code.scalar) & ((1 << fmt.mantissa) - 1)
    rest = code & -(1 << fmt.mantissa)
    return x.is_nan.select(rest | payload, code)


def reduced_precision(x: Term, dtype: DType, exponent_bits: int, mantissa_bits: int) -> Term:
    """Rounded to the format of these widths, in the type's own encoding where it is IEEE-like."""
    fmt = dtype.float_format
    assert fmt is not None
    if fmt.nan != "ieee":
        dtype, fmt = dt.F32, dt.F32.float_format
        assert fmt is not None
    bits = x.bits if dtype.bits >= 32 else storage_bits(x, dtype).to("i32", signed=False)
    sign = bits & (1 << (dtype.bits - 1))
    size = bits ^ sign
    infinity = ((1 << fmt.exponent) - 1) << fmt.mantissa
    finite = size < infinity
    reduced, dropped = size, fmt.mantissa - mantissa_bits
    if dropped > 0:
        up = size + ((size >> dropped) & 1) + ((1 << (dropped - 1)) - 1)
        reduced = up & -(1 << dropped)
    if exponent_bits < fmt.exponent:
        bias = (1 << (exponent_bits - 1)) - 1
        overflow = (fmt.bias + bias + 1) << fmt.mantissa
        underflow = (fmt.bias - bias + 1) << fmt.mantissa
        over, under = reduced >= overflow, reduced < underflow
        reduced = under.select(0, over.select(infinity, reduced))
    result = sign | finite.select(reduced, size)
    if dtype.bits >= 32:
        return result.real
    code = result.to(f"i{max(8, dtype.bits)}")
    return x.of(decoded(x.w, x.target, code.value, dtype))


def stochastic(x: Term, random: Term, source: DType, target: DType) -> Term:
    """Rounded up in magnitude with a chance equal to what is cut off (docs/semantics.md 6)."""
    if target.is_float:
        return _stochastic_float(x, random, source, target)
    size = x.abs()
    whole = rounding.floor(size)
    inside = (x > float(target.int_range[0])) & (x < float(target.int_range[1]))
    up = inside & _chosen(size - whole, random, source)
    magnitude = whole + up.select(x.const(1.0), 0.0)
    return closed(_float_to_integer(inside.select(magnitude.copysign(x), x), target), target)


def _chosen(fraction: Term, random: Term, source: DType) -> Term:
    """Whether random < floor(fraction * 2^w), a fraction in [0, 1)."""
    wide = "i64" if source.bits == 64 else "i32"
    unit = (fraction < 1.0).select(fraction, 0.0)  # NaN and infinities are decided elsewhere
    threshold = (unit * 2.0**source.bits).to(wide, signed=False)
    bits = random if random.scalar == wide else random.to(wide, signed=False)
    return bits.below(threshold)


def _stochastic_float(x: Term, random: Term, source: DType, target: DType) -> Term:
    """Between the target's neighbours of |x|, by the fraction of the way."""
    if target.bits >= source.bits:
        return converted(x, source, target)
    size = x.abs().to("double") if not x.is_double else x.abs()
    nearest, code = _nearest(size, target)
    above_size = nearest > size
    below = above_size.select(_of_code(code - 1, target), nearest)
    above = above_size.select(nearest, _of_code(code + 1, target))
    up = _chosen((size - below) / (above - below), random, source)
    chosen = up.select(above, below)
    result = nearest.eq(size).select(nearest, chosen)
    result = size.is_nan.select(size, result)
    signed = result.copysign(x if x.is_double else x.to("double"))
    return signed if target.bits == 64 else signed.to("float")


def _nearest(size: Term, target: DType) -> tuple[Term, Term]:
    """The target's value nearest to |x| as double lanes, and its code."""
    near = size.to("float") if target.bits >= 32 else _odd_float(size, target)
    code = storage_bits(near, target)
    return _of_code(code, target), code


def _of_code(code: Term, target: DType) -> Term:
    return bits_converted(code, _CODE_TYPES[code.scalar], target).to("double")


_CODE_TYPES = {"i8": dt.U8, "i16": dt.U16, "i32": dt.U32, "i64": dt.U64}
