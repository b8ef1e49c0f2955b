"""Bits of element values, the wider types that arithmetic runs in, and rounding back, once.

narrow array --widen--> f32/f64, s8.. --compute--> --rounded/wrapped--> narrow array
array <--> codes: one unsigned integer per element, the element's bits
"""

from __future__ import annotations

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

Array = np.ndarray

UNSIGNED_OF_BYTES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SIGNED_OF_BYTES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def dtype_of(array: Array) -> DType:
    """The element type of an array that the program handed on."""
    found = dt.from_numpy(array.dtype)
    assert found is not None, "a program's arrays hold elements of HLO's types"
    return found


def widen(array: Array) -> Array:
    """The same values in a type that NumPy computes in: f32 for narrower floats, a byte for s4."""
    dtype = dtype_of(array)
    if dtype.is_narrow_float:
        return array.astype(np.float32)
    if dtype.is_integral and dtype.bits < 8:
        return array.astype(np.int8 if dtype.is_signed else np.uint8)
    return array


def wrapped(wide: Array, dtype: DType) -> Array:
    """Integers modulo 2**bits, in dtype. `wide` is an integer array of any width."""
    if dtype.bits >= 8:
        return np.asarray(wide).astype(dtype.numpy)
    low = np.asarray(wide).astype(np.uint8)
    return from_codes(low & np.uint8((1 << dtype.bits) - 1), dtype)


def rounded(wide: Array, dtype: DType) -> Array:
    """Floats of a wider type rounded once to dtype, nearest even (docs/semantics.md 6)."""
    wide = np.asarray(wide)
    if wide.dtype == dtype.numpy:
        return wide
    if dtype.bits >= 32 or dtype is dt.F16:
        return wide.astype(dtype.numpy)
    if wide.dtype != np.float32:
        wide = rounded_to_odd(wide)
    if dtype.is_scale:  # ml_dtypes makes twice the least power of all between the two
        least = dtype.least_power
        wide = np.where((wide > 0) & (wide < 1.5 * least), np.float32(least), wide)
    narrow = wide.astype(dtype.numpy)
    if dtype.float_format is not None and dtype.float_format.nan == "none":
        # XLA turns NaN into -0 where the type has none; ml_dtypes gives +0.
        narrow = np.where(np.isnan(wide), np.float32(-0.0).astype(dtype.numpy), narrow)
    return narrow


def rounded_to_odd(wide: Array) -> Array:
    """f64 (or wider) to f32 so that a second rounding to a narrower type acts as a single one.

    An inexact result gets an odd last bit (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums: proved algorithms using rounding to odd", 2008).
    """
    nearest = wide.astype(np.float32)
    bits = np.atleast_1d(nearest).view(np.uint32).reshape(nearest.shape)
    back = nearest.astype(wide.dtype)
    inexact = (back != wide) & ~np.isnan(wide)
    to_odd = inexact & ((bits & 1) == 0)
    step = np.where(np.abs(back) > np.abs(wide), np.uint32(0xFFFFFFFF), np.uint32(1))
    odd = np.where(to_odd, bits + step, bits)
    return np.asarray(odd, np.uint32).view(np.float32)


def codes(array: Array) -> Array:
    """The bits of each element as an unsigned integer (c128 has none: use views)."""
    dtype = dtype_of(array)
    if dtype.is_integral and dtype.bits < 8:
        return array.astype(np.int8).view(np.uint8) & np.uint8((1 << dtype.bits) - 1)
    unsigned = UNSIGNED_OF_BYTES[array.dtype.itemsize]
    return np.ascontiguousarray(array).reshape(array.shape).view(unsigned)


def from_codes(bits: Array, dtype: DType) -> Array:
    """The elements of `dtype` whose bits are given, in an unsigned array of its item size."""
    bits = np.asarray(bits)
    if dtype.is_unsigned and dtype.bits < 8:
        return bits.astype(dtype.numpy)
    if dtype.is_signed and dtype.bits < 8:
        sign = np.uint8(1 << (dtype.bits - 1))
        extended = (bits.astype(np.uint8) ^ sign).astype(np.int8) - np.int8(sign)
        return np.asarray(extended.astype(dtype.numpy))
    if dtype is dt.PRED:
        return np.asarray(bits != 0)
    assert dtype.numpy is not None
    return np.ascontiguousarray(bits).reshape(bits.shape).view(dtype.numpy)


def smallest_normal(dtype: DType) -> float:
    """The least positive normal value of a float type."""
    fmt = dtype.float_format
    assert fmt is not None, f"{dtype} is no float type"
    return dtype.least_power if dtype.is_scale else 2.0 ** (1 - fmt.bias)
