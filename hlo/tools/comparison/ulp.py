"""Distance between floats in units of the last place, for every float type.

`ord(x)` is the sign-magnitude bit pattern read as a signed integer, so that adjacent floats differ
by 1 and -0 and +0 by 0; ulp(a, b) = |ord(a) - ord(b)|.
"""

from __future__ import annotations

import numpy as np

from hlo.ops.numerics.representation import codes, dtype_of

INCOMPARABLE = np.inf  # the distance between a NaN and a number


def ordinals(array: np.ndarray) -> np.ndarray:
    """ord of each element, int64. NaNs have ordinals beyond infinity's that mean nothing."""
    dtype = dtype_of(array)
    fmt = dtype.float_format
    assert fmt is not None, f"{dtype} is no float type"
    bits = codes(array)
    if not fmt.has_sign:
        return bits.astype(np.int64)
    top = bits.dtype.type(1 << (dtype.bits - 1))
    size = (bits & ~top).astype(np.int64)
    return np.asarray(np.where(bits & top, -size, size))


def ulp_distance(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """f64 distances; 0 for two NaNs, INCOMPARABLE for one. Complex: the larger of the parts'."""
    if np.iscomplexobj(actual):
        real = ulp_distance(actual.real.copy(), expected.real.copy())
        return np.asarray(np.maximum(real, ulp_distance(actual.imag.copy(), expected.imag.copy())))
    left, right = ordinals(actual), ordinals(expected)
    # Opposite signs of 64-bit floats overflow int64: f64 holds the distance well enough there.
    apart = left.astype(np.float64) - right.astype(np.float64)
    near = (left < 0) == (right < 0)
    with np.errstate(over="ignore"):
        exact = (left - right).astype(np.float64)
    distance = np.abs(np.where(near, exact, apart))
    nan = np.isnan(actual).astype(np.int8) + np.isnan(expected).astype(np.int8)
    return np.where(nan == 2, 0.0, np.where(nan == 1, INCOMPARABLE, distance))


def spacing(array: np.ndarray) -> np.ndarray:
    """The distance from each |element| to the next larger value of its type, as f64."""
    dtype = dtype_of(array)
    fmt = dtype.float_format
    assert fmt is not None, f"{dtype} is no float type"
    with np.errstate(all="ignore"):
        size = np.abs(array.astype(np.float64))
        exponent = np.frexp(size)[1] - 1
        least = 1 - fmt.bias
        return np.asarray(
            np.ldexp(1.0, np.maximum(np.where(size == 0, least, exponent), least) - fmt.mantissa)
        )
