"""Integer arithmetic modulo 2**bits with HLO's answers at the edges (docs/semantics.md 4).

Every function takes and returns arrays of one integral type, also of 1, 2 and 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo.ir.dtype import DType
from hlo.ops.numerics.representation import (
    SIGNED_OF_BYTES,
    Array,
    codes,
    dtype_of,
    from_codes,
    widen,
    wrapped,
)


def wrapping(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` of wide integers, its result modulo 2**bits."""

    def wrapping_function(*values: Array) -> Array:
        return wrapped(function(*map(widen, values)), dtype_of(values[0]))

    return wrapping_function


def divide(x: Array, y: Array) -> Array:
    """Toward zero; x/0 = -1 (all ones), MIN/-1 = MIN."""
    dtype = dtype_of(x)
    wide, by = widen(x), widen(y)
    special = by == 0
    if dtype.is_signed:
        special = special | (by == -1)
    safe = np.where(special, by.dtype.type(1), by)
    quotient = (wide - np.fmod(wide, safe)) // safe
    if dtype.is_signed:
        quotient = np.where(by == -1, np.negative(wide), quotient)
    ones = np.bitwise_not(by.dtype.type(0))
    return wrapped(np.where(by == 0, ones, quotient), dtype)


def remainder(x: Array, y: Array) -> Array:
    """The dividend's sign; x%0 = x, MIN%-1 = 0."""
    dtype = dtype_of(x)
    wide, by = widen(x), widen(y)
    special = by == 0
    if dtype.is_signed:
        special = special | (by == -1)
    rest = np.fmod(wide, np.where(special, by.dtype.type(1), by))
    return wrapped(np.where(by == 0, wide, rest), dtype)


EXPONENT_BITS = 6  # the bits of an integer exponent that XLA:CPU looks at


def power(x: Array, y: Array) -> Array:
    """x**(y mod 64) modulo 2**bits; a negative y gives 0 unless x is 1 or -1.

    XLA:CPU's answers beyond 0 <= y < 64 (docs/semantics.md 4): only the low six bits of y count,
    and an unsigned y with its top bit set is a negative one.
    """
    dtype = dtype_of(x)
    lane = SIGNED_OF_BYTES[x.dtype.itemsize]  # u4 lies in a byte, whose top bit is clear
    signed, exponent = widen(x).view(lane), widen(y).view(lane)
    base = widen(x).astype(np.uint64)
    result = np.ones(np.broadcast_shapes(x.shape, y.shape), np.uint64)
    for bit in range(EXPONENT_BITS):
        result = np.where((exponent >> bit) & 1, result * base, result)
        base = base * base
    odd = (exponent & 1) == 1
    inverse = np.where(signed == -1, np.where(odd, -1, 1), np.where(signed == 1, 1, 0))
    return wrapped(
        np.where(exponent < 0, inverse.astype(np.int64).astype(np.uint64), result), dtype
    )


def sign(x: Array) -> Array:
    """-1, 0 or 1."""
    return wrapped(np.sign(widen(x)), dtype_of(x))


def complement(x: Array) -> Array:
    """Every bit flipped."""
    dtype = dtype_of(x)
    mask = codes(x).dtype.type((1 << dtype.bits) - 1)
    return from_codes(codes(x) ^ mask, dtype)


def population_count(x: Array) -> Array:
    """The number of one bits of the element's own width."""
    return wrapped(np.bitwise_count(codes(x)), dtype_of(x))


def count_leading_zeros(x: Array) -> Array:
    """Zero bits above the highest one; the width for 0."""
    dtype = dtype_of(x)
    smeared = codes(x)
    shift = 1
    while shift < dtype.bits:
        smeared = smeared | (smeared >> smeared.dtype.type(shift))
        shift *= 2
    return wrapped(dtype.bits - np.bitwise_count(smeared).astype(np.int64), dtype)


def _shift_counts(y: Array, dtype: DType) -> tuple[Array, Array]:
    """Counts as unsigned numbers, 0 where out of range; and where they are out of range."""
    counts = codes(y)
    outside = counts >= dtype.bits
    return np.where(outside, counts.dtype.type(0), counts), outside


def shift_left(x: Array, y: Array) -> Array:
    """x * 2**y modulo 2**bits; 0 for a count outside 0..bits-1."""
    dtype = dtype_of(x)
    counts, outside = _shift_counts(y, dtype)
    shifted = codes(x) << counts
    return wrapped(np.where(outside, shifted.dtype.type(0), shifted), dtype)


def shift_right_logical(x: Array, y: Array) -> Array:
    """The bits moved down, zeros in; 0 for a count outside 0..bits-1."""
    dtype = dtype_of(x)
    counts, outside = _shift_counts(y, dtype)
    shifted = codes(x) >> counts
    return wrapped(np.where(outside, shifted.dtype.type(0), shifted), dtype)


def shift_right_arithmetic(x: Array, y: Array) -> Array:
    """The bits moved down, copies of the top bit in, for unsigned types too."""
    dtype = dtype_of(x)
    counts, outside = _shift_counts(y, dtype)
    signed = _signed(x, dtype)
    last = np.asarray(dtype.bits - 1, signed.dtype)
    shifted = signed >> np.where(outside, last, counts.astype(signed.dtype))
    return wrapped(shifted, dtype)


def _signed(x: Array, dtype: DType) -> Array:
    """The bits read as two's complement."""
    bits = codes(x)
    top = bits.dtype.type(1 << (dtype.bits - 1))
    signed_type = SIGNED_OF_BYTES[bits.dtype.itemsize]
    return np.asarray(np.asarray(bits ^ top).view(signed_type) - top.view(signed_type))


def high_product(x: Array, y: Array) -> Array:
    """The upper half of the product of 2*bits bits, signed or unsigned as the type is."""
    dtype = dtype_of(x)
    if dtype.bits < 64:
        wide = np.int64 if dtype.is_signed else np.uint64
        product = widen(x).astype(wide) * widen(y).astype(wide)
        return wrapped(product >> wide(dtype.bits), dtype)
    high = _high_unsigned(x.astype(np.uint64), y.astype(np.uint64))
    if dtype.is_signed:  # (x + 2**64 [x<0]) (y + 2**64 [y<0]), the excess taken back
        high = high - np.where(x < 0, y, 0).astype(np.uint64)
        high = high - np.where(y < 0, x, 0).astype(np.uint64)
    return high.astype(dtype.numpy)


def _high_unsigned(x: Array, y: Array) -> Array:
    """Upper 64 bits of a product of two 64-bit numbers, by halves of 32 bits."""
    low32, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low32, x >> half, y & low32, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    carry = (middle & low32) + x0 * y1
    return np.asarray(x1 * y1 + (middle >> half) + (carry >> half))
