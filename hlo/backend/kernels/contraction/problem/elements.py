"""Elements: what instructions multiply, and how a factor's numbers become them while it is packed.

type of a factor --holds--> whether elements of another type are all of its numbers
raw numbers in memory --held--> raw elements

Integers are extended by their sign, narrow ones taken out of their bytes first. Floats become bf16
where none of their numbers is subnormal there: those of 8 bits and less but the scale f8e8m0fnu.
Zero's code is zero's, so that what a mask leaves out stays so.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import decoded
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

_BF16_MANTISSA, _BF16_LEAST = 7, -126  # Stored bits; the power of the least normal number.


def holds(element: DType, dtype: DType) -> bool:
    """Whether all numbers of a type are numbers of an element's."""
    if dtype is element:
        return True
    if dtype.is_integral and element.is_integral:
        is_wider = dtype.bits < element.bits
        return is_wider if element.is_signed else is_wider and not dtype.is_signed
    return element is dt.BF16 and _fits_bf16(dtype)


def _fits_bf16(dtype: DType) -> bool:
    form = dtype.float_format
    if form is None:
        return False
    least, greatest = 1 - form.bias - form.mantissa, (1 << form.exponent) - 1 - form.bias
    is_precise = form.mantissa <= _BF16_MANTISSA and not dtype.is_scale
    return is_precise and least >= _BF16_LEAST and greatest <= -_BF16_LEAST


def held(w: Writer, target: Target, raw: Value, dtype: DType, element: DType) -> Value:
    """Numbers as elements that hold them."""
    if dtype is element:
        return raw
    value = decoded(w, target, raw, dtype)
    code = vector_of(f"i{element.bits}", raw.lanes)
    if not element.is_float:
        return w.cast("sext" if dtype.is_signed else "zext", value, code)
    # Upper halves of f32: the type's numbers are bf16's.
    bits = w.cast("bitcast", value, vector_of("i32", raw.lanes))
    return w.cast("trunc", w.binary("lshr", bits, w.int(32 - element.bits, bits.type)), code)
