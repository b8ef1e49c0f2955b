"""Floats of 4 to 16 bits in integer lanes: their codes <--> f32, for every format there is.

    code = sign | exponent field | mantissa; value = (-1)^s 2^(e - bias) 1.m, subnormals for e = 0

Rounding to nearest even adds half a unit of the last kept place to the f32's bits; a subnormal
result is rounded by adding a power of two whose last place is the result's.
Source: the OCP 8-bit and MX float specifications; overflow and NaN as docs/semantics.md 1 and 6.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.ir.dtype import DType, FloatFormat

_INF = 0x7F800000
_QUIET = 0x7FC00000


def _format(dtype: DType) -> FloatFormat:
    assert dtype.float_format is not None, f"{dtype} is a float"
    return dtype.float_format


def decoded_small(w: Writer, raw: Value, dtype: DType, *, has_halves: bool = False) -> Value:
    """f32 lanes of codes; exact. has_halves: f16 becomes f32 in one instruction."""
    form = _format(dtype)
    if has_halves and _fits_half(form):
        return _decoded_by_half(w, form, raw)
    words = vector_of("i32", raw.lanes)
    floats = vector_of("float", raw.lanes)
    code = w.cast("zext", raw, words)
    if not form.has_sign:
        return _decoded_scale(w, code, floats)
    size_bits = form.exponent + form.mantissa
    size = w.binary("and", code, w.int((1 << size_bits) - 1, words))
    rebias = (127 - form.bias) << 23
    shifted = w.binary("shl", size, w.int(23 - form.mantissa, words))
    normal = w.cast("bitcast", w.binary("add", shifted, w.int(rebias, words)), floats)
    step = w.float(2.0 ** (1 - form.bias - form.mantissa), floats)
    tiny = w.binary("fmul", w.cast("sitofp", size, floats), step)
    is_tiny = w.compare("icmp ult", size, w.int(1 << form.mantissa, words))
    value = w.cast("bitcast", w.select(is_tiny, tiny, normal), words)
    value = _with_specials(w, form, code, size, value)
    sign = w.binary("and", code, w.int(1 << size_bits, words))
    if form.nan == "negative-zero":
        is_nan = w.compare("icmp eq", code, w.int(1 << size_bits, words))
        value = w.select(is_nan, w.int(_QUIET, words), value)
    sign = w.binary("shl", sign, w.int(31 - size_bits, words))
    return w.cast("bitcast", w.binary("or", value, sign), floats)


def _fits_half(form: FloatFormat) -> bool:
    """Whether an 8-bit code, moved to f16's places, is the number but for a power of two."""
    if not form.has_sign or form.exponent + form.mantissa != 7:
        return False
    return form.exponent < 5 or (form.exponent == 5 and form.nan == "ieee")


def _decoded_by_half(w: Writer, form: FloatFormat, raw: Value) -> Value:
    """f16's subnormals are the format's, and neither they nor the product cost extra time."""
    halves, words = vector_of("i16", raw.lanes), vector_of("i32", raw.lanes)
    floats = vector_of("float", raw.lanes)
    up = 10 - form.mantissa
    moved = w.binary("shl", w.cast("sext", raw, halves), w.int(up, halves))
    placed = w.binary("and", moved, w.int((0x7F << up) - 0x8000, halves))
    half = w.cast("bitcast", placed, vector_of("half", raw.lanes))
    value = w.cast("fpext", half, floats)
    if form.bias != 15:
        value = w.binary("fmul", value, w.float(2.0 ** (15 - form.bias), floats))
    if form.nan == "none" or form.exponent == 5:
        return value
    bits = w.cast("bitcast", value, words)
    size = w.binary("and", raw, w.int(0x7F, raw.type))
    if form.nan == "ieee":
        first = ((1 << form.exponent) - 1) << form.mantissa
        is_special = w.compare("icmp uge", size, w.int(first, raw.type))
        special = w.binary("or", bits, w.int(_INF, words))
    else:
        is_ones = form.nan == "ones"
        is_special = w.compare(
            "icmp eq", size if is_ones else raw, w.int(0x7F if is_ones else -0x80, raw.type)
        )
        sign = w.binary("and", bits, w.int(-(1 << 31), words))
        special = w.binary("or", sign, w.int(_QUIET, words))
    return w.cast("bitcast", w.select(is_special, special, bits), floats)


def _with_specials(w: Writer, form: FloatFormat, code: Value, size: Value, value: Value) -> Value:
    """The bits of infinities and NaNs put in."""
    words = code.type
    size_bits = form.exponent + form.mantissa
    if form.nan == "ieee":
        first = ((1 << form.exponent) - 1) << form.mantissa
        moved = w.binary(
            "shl", w.binary("sub", size, w.int(first, words)), w.int(23 - form.mantissa, words)
        )
        special = w.binary("or", moved, w.int(_INF, words))
        return w.select(w.compare("icmp uge", size, w.int(first, words)), special, value)
    if form.nan == "ones":
        is_nan = w.compare("icmp eq", size, w.int((1 << size_bits) - 1, words))
        return w.select(is_nan, w.int(_QUIET, words), value)
    return value


def _decoded_scale(w: Writer, code: Value, floats: str) -> Value:
    """f8e8m0fnu: 2^(code - 127); code 0 is the subnormal 2^-127, 255 NaN."""
    words = code.type
    bits = w.binary("shl", code, w.int(23, words))
    bits = w.select(w.compare("icmp eq", code, w.int(0, words)), w.int(0x400000, words), bits)
    nan = w.compare("icmp eq", code, w.int(255, words))
    return w.cast("bitcast", w.select(nan, w.int(_QUIET, words), bits), floats)


def encoded_small(w: Writer, value: Value, dtype: DType) -> Value:
    """Codes of f32 lanes, rounded once to nearest even (f8e8m0fnu: half up, as XLA)."""
    form = _format(dtype)
    words = vector_of("i32", value.lanes)
    storage = vector_of("i16" if dtype.bits > 8 else "i8", value.lanes)
    bits = w.cast("bitcast", value, words)
    if not form.has_sign:
        return w.cast("trunc", _encoded_scale(w, value, bits), storage)
    size = w.binary("and", bits, w.int(0x7FFFFFFF, words))
    code = _rounded_code(w, form, size, value.type)
    next_code = _greatest(form) + 1
    nan = w.compare("icmp ugt", size, w.int(_INF, words))
    if _overflow(form) == next_code:
        code = w.intrinsic("llvm.umin", words, code, w.int(next_code, words))
    else:
        over = w.compare("icmp uge", code, w.int(next_code, words))
        code = w.select(over, w.int(_overflow(form), words), code)
    if _nan_code(form) != _overflow(form):
        code = w.select(nan, w.int(_nan_code(form), words), code)
    size_bits = form.exponent + form.mantissa
    sign = w.binary(
        "and", w.binary("lshr", bits, w.int(31 - size_bits, words)), w.int(1 << size_bits, words)
    )
    if form.nan == "none":
        sign = w.select(nan, w.int(1 << size_bits, words), sign)
    signed = w.binary("or", code, sign)
    if form.nan == "negative-zero":
        # There is no -0, and NaN has the only code with nothing but the sign.
        zero = w.compare("icmp eq", code, w.int(0, words))
        signed = w.select(zero, code, signed)
        signed = w.select(w.compare("icmp eq", code, w.int(1 << size_bits, words)), code, signed)
    return w.cast("trunc", signed, storage)


def _rounded_code(w: Writer, form: FloatFormat, size: Value, floats: str) -> Value:
    """The code of |x| before overflow is looked at; huge for huge, anything for NaN."""
    words = size.type
    drop = 23 - form.mantissa
    odd = w.binary("and", w.binary("lshr", size, w.int(drop, words)), w.int(1, words))
    up = w.binary("add", w.binary("add", size, w.int((1 << (drop - 1)) - 1, words)), odd)
    rebias = (127 - form.bias) << form.mantissa
    normal = w.binary("sub", w.binary("lshr", up, w.int(drop, words)), w.int(rebias, words))
    magic = 2.0 ** (23 - (form.bias - 1 + form.mantissa))
    moved = w.binary("fadd", w.cast("bitcast", size, floats), w.float(magic, floats))
    magic_bits = w.cast("bitcast", w.float(magic, floats), words)
    tiny = w.binary("sub", w.cast("bitcast", moved, words), magic_bits)
    is_tiny = w.compare("icmp ult", size, w.int((128 - form.bias) << 23, words))
    return w.select(is_tiny, tiny, normal)


def _greatest(form: FloatFormat) -> int:
    """The code of the greatest finite value."""
    ones = (1 << (form.exponent + form.mantissa)) - 1
    if form.nan == "ieee":
        return (((1 << form.exponent) - 1) << form.mantissa) - 1
    return ones - 1 if form.nan == "ones" else ones


def _overflow(form: FloatFormat) -> int:
    if form.has_inf:
        return _greatest(form) + 1
    return _greatest(form) if form.nan == "none" else _nan_code(form)


def _nan_code(form: FloatFormat) -> int:
    size_bits = form.exponent + form.mantissa
    if form.nan == "ieee":
        return _greatest(form) + 1 + (1 << (form.mantissa - 1))
    return {"ones": (1 << size_bits) - 1, "negative-zero": 1 << size_bits, "none": 0}[form.nan]


def _encoded_scale(w: Writer, value: Value, bits: Value) -> Value:
    """f8e8m0fnu: the nearest power of two, half up; NaN for what is not positive and finite."""
    words = bits.type
    code = w.binary("lshr", w.binary("add", bits, w.int(0x400000, words)), w.int(23, words))
    tiny = w.cast("zext", w.compare("icmp uge", bits, w.int(0x600000, words)), words)
    code = w.select(w.compare("icmp ult", bits, w.int(0x800000, words)), tiny, code)
    bad = w.compare("icmp uge", w.binary("sub", bits, w.int(1, words)), w.int(_INF - 1, words))
    return w.select(bad, w.int(255, words), code)
