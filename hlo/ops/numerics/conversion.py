"""Values of one element type as values of another (docs/semantics.md 6, convert)."""

from __future__ import annotations

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ops.numerics.representation import Array, dtype_of, rounded, widen, wrapped


def converted(array: Array, target: DType) -> Array:
    """Each element as `target`: integers wrap, floats round once, float to integer saturates."""
    source = dtype_of(array)
    if source is target:
        return array
    with np.errstate(all="ignore"):
        if source.is_complex:
            return _from_complex(array, target)
        if target is dt.PRED:
            return np.asarray(widen(array) != 0)
        if target.is_complex:
            return widen(array).astype(target.numpy)
        if target.is_float:
            return _to_float(array, source, target)
        if source.is_float:
            return _float_to_integer(widen(array), target)
        wide = array.astype(np.uint8) if source is dt.PRED else widen(array)
        return wrapped(wide, target)


def _from_complex(array: Array, target: DType) -> Array:
    if target.is_complex:
        return array.astype(target.numpy)
    if target is dt.PRED:
        return np.asarray(array != 0)
    return converted(array.real.copy(), target)


def _to_float(array: Array, source: DType, target: DType) -> Array:
    if source is dt.PRED:
        return rounded(array.astype(np.float32), target)
    wide = widen(array)
    if source.is_float or target.bits >= 32:
        return rounded(wide, target)
    return rounded(_odd_double(wide), target)


def _odd_double(wide: Array) -> Array:
    """Integers as f64, 64-bit ones rounded to odd, so that the next rounding is the only one."""
    if wide.dtype.itemsize < 8:
        return wide.astype(np.float64)
    negative = wide < 0
    size = np.where(negative, np.negative(wide), wide).astype(np.uint64)
    low = size & np.uint64(0x7FF)
    odd = (size - low) | np.where(low != 0, np.uint64(0x800), np.uint64(0))
    kept = np.where(size < np.uint64(1 << 53), size, odd).astype(np.float64)
    return np.where(negative, -kept, kept)


def _float_to_integer(wide: Array, target: DType) -> Array:
    """Toward zero, saturating; NaN gives 0. `wide` is f32 or f64."""
    least, greatest = target.int_range
    carrier = np.int64 if target.is_signed else np.uint64
    too_small = wide < wide.dtype.type(least)  # a power of two, or 0: exact in every float
    too_large = wide >= wide.dtype.type(2.0) ** (greatest.bit_length())
    inside = ~(too_small | too_large | np.isnan(wide))
    result = np.where(inside, np.trunc(wide), 0).astype(carrier)
    result = np.where(too_small, carrier(least), result)
    return wrapped(np.where(too_large, carrier(greatest), result), target)
