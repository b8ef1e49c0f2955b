"""Real functions of every float type: computed wider, rounded once (docs/semantics.md 2 to 4).

Arithmetic of narrow floats runs in f32; transcendental functions run in f64, those of f64 in the
C library's long double (80 bits on x86), so that results are within 0.51 ulp there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo.ir import dtype as dt
from hlo.ops.numerics.representation import SIGNED_OF_BYTES, Array, codes, dtype_of, rounded, widen

CHUNK = 8192  # Elements of a series that the first-level cache holds at once.


def arithmetic(function: Callable[..., Array]) -> Callable[..., Array]:
    """An IEEE operation: exact in f32 or f64 up to one rounding, then rounded to the type."""

    def arithmetic_function(*values: Array) -> Array:
        return rounded(function(*map(widen, values)), dtype_of(values[0]))

    return arithmetic_function


def transcendental(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` in f64 (long double for f64), rounded to f32 and then to a narrower type."""

    def transcendental_function(*values: Array) -> Array:
        dtype = dtype_of(values[0])
        wide = np.longdouble if dtype is dt.F64 else np.float64
        result = np.asarray(function(*(v.astype(wide) for v in values)))
        if dtype.bits < 32:
            return rounded(result.astype(np.float32), dtype)
        return result.astype(dtype.numpy)

    return transcendental_function


def maximum(x: Array, y: Array) -> Array:
    """NaN if either is; +0 above -0 (IEEE 754-2019 maximum)."""
    a, b = widen(x), widen(y)
    return rounded(np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b)), dtype_of(x))


def minimum(x: Array, y: Array) -> Array:
    """NaN if either is; -0 below +0 (IEEE 754-2019 minimum)."""
    a, b = widen(x), widen(y)
    return rounded(np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b)), dtype_of(x))


def sign(x: Array) -> Array:
    """-1 or 1; NaN and both zeros unchanged."""
    wide = widen(x)
    ones = np.copysign(wide.dtype.type(1), wide)
    return rounded(np.where((wide == 0) | np.isnan(wide), wide, ones), dtype_of(x))


def magnitude(x: Array) -> Array:
    """The sign bit cleared, of NaN too."""
    return _with_sign(x, flip=False)


def negate(x: Array) -> Array:
    """The sign bit flipped, of NaN too; a zero without a negative twin stays."""
    return _with_sign(x, flip=True)


def _with_sign(x: Array, *, flip: bool) -> Array:
    dtype = dtype_of(x)
    fmt = dtype.float_format
    assert fmt is not None
    if not fmt.has_sign:  # a scale: no negative value exists
        return np.full_like(x, np.nan) if flip else x
    bits = codes(x)
    top = bits.dtype.type(1 << (dtype.bits - 1))
    changed = bits ^ top if flip else bits & ~top
    if fmt.nan == "negative-zero":  # the code of -0 is NaN: 0 keeps its code, and so does NaN
        changed = np.where((bits & ~top) == 0, bits, changed)
    return np.ascontiguousarray(changed).reshape(x.shape).view(x.dtype)


def round_half_away(x: Array) -> Array:
    """Nearest integer, halves away from zero."""
    wide = widen(x)
    whole = np.trunc(wide)
    away = np.abs(wide - whole) >= 0.5  # exact: the fraction of a float is a float
    result = np.where(away, whole + np.copysign(wide.dtype.type(1), wide), whole)
    return rounded(np.copysign(result, wide), dtype_of(x))


def reciprocal_root(x: Array) -> Array:
    """1/sqrt(x); rsqrt(-0) = -inf."""
    return np.asarray(1 / np.sqrt(x))


def logistic(x: Array) -> Array:
    """1/(1+exp(-x))."""
    return np.asarray(1 / (1 + np.exp(-x)))


def erf(x: Array) -> Array:
    """The error function, by the series of positive terms of Abramowitz and Stegun 7.1.6.

    erf(x) = 2/sqrt(pi) exp(-x^2) x sum_n (2 x^2)^n / (3 5 ... (2n+1)); beyond 6.5 it is +-1.
    """
    flat = np.clip(x, -6.5, 6.5).ravel()
    parts = [_erf_series(flat[i : i + CHUNK]) for i in range(0, flat.size, CHUNK)]
    result = np.concatenate(parts) if parts else flat
    return np.where(np.isnan(x), x, result.reshape(x.shape))


def _erf_series(x: Array) -> Array:
    z = 2 * x * x
    largest = float(np.max(np.nan_to_num(z, nan=0.0), initial=0.0))
    total = np.ones_like(x)
    for n in range(int(1.5 * largest) + 30, 0, -1):  # z/(2n+1) < 1/3 from there on
        total *= z
        total /= 2 * n + 1
        total += 1
    scale = 2 / np.sqrt(np.asarray(PI, x.dtype))
    result = scale * np.exp(-x * x) * x * total
    return np.asarray(np.where(np.abs(x) >= 6.5, np.sign(x), result))


PI = np.longdouble(3.141592653589793) + np.longdouble(1.2246467991473532e-16)


def total_order(x: Array) -> Array:
    """Integers that order floats as TOTALORDER does: -NaN < -inf < .. < -0 < +0 < .. < +NaN."""
    dtype = dtype_of(x)
    fmt = dtype.float_format
    assert fmt is not None
    bits = codes(x)
    if not fmt.has_sign:
        return bits
    signed = SIGNED_OF_BYTES[bits.dtype.itemsize]
    unused = 8 * bits.dtype.itemsize - dtype.bits
    number = (bits << bits.dtype.type(unused)).view(signed)
    return np.asarray(
        np.where(number < 0, number ^ signed((1 << (8 * bits.dtype.itemsize - 1)) - 1), number)
    )
