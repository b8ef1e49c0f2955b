"""Arrays of every element type for tests of kernels: ordinary values, edges and any bits, mixed."""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType

_FLOAT_EDGES = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2.5, -3.5, 1e30, -1e30, 255.5, 127.5, -128.9,
    2.0**31, 2.0**63, -(2.0**63), 2.0**64, 1e-40,
)  # fmt: skip


def mixed_values(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    """A flat array of the type."""
    if dtype.is_pred:
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integral:
        return _integers(dtype, count, rng)
    if dtype.is_complex:
        z = np.empty(count, dtype.numpy)
        z.real = rng.normal(size=count) * 3
        z.imag = rng.normal(size=count) * 3
        return z
    with np.errstate(all="ignore"):
        return _floats(dtype, count, rng)


def _integers(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    low, high = dtype.int_range
    wide = np.int64 if dtype.is_signed else np.uint64
    anything = rng.integers(low, high, count, dtype=wide, endpoint=True)
    small = rng.integers(max(low, -5), min(high, 5), count, endpoint=True).astype(wide)
    edges = np.array([low, high, 0, min(1, high), max(low, -1)], wide)[rng.integers(0, 5, count)]
    return np.choose(rng.integers(0, 3, count), (anything, small, edges)).astype(dtype.numpy)


def _floats(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    ordinary = (rng.normal(size=count) * 2.0 ** rng.integers(-8, 12, count)).astype(dtype.numpy)
    edges = np.array(_FLOAT_EDGES)[rng.integers(0, len(_FLOAT_EDGES), count)].astype(dtype.numpy)
    unsigned = np.dtype(f"u{dtype.item_bytes}")
    codes = np.frombuffer(rng.bytes(count * dtype.item_bytes), unsigned)
    if dtype.bits < 8:
        codes = codes & ((1 << dtype.bits) - 1)
    pick = rng.integers(0, 3, count)
    return np.where(pick == 0, ordinary, np.where(pick == 1, edges, codes.view(dtype.numpy)))


def same_values(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal, or both NaN; lane by lane."""
    if np.iscomplexobj(got):
        return same_values(got.real.copy(), want.real.copy()) & same_values(
            got.imag.copy(), want.imag.copy()
        )
    with np.errstate(all="ignore"):
        both_nan = np.not_equal(got, got) & np.not_equal(want, want)
        return np.asarray((got == want) | both_nan)
