"""Sums of products of whole arrays, in a type wide enough to round once.

lhs [b, m, k] x rhs [b, k, n] -> [b, m, n]
"""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType
from hlo.ops.numerics.conversion import converted
from hlo.ops.numerics.representation import Array, dtype_of, rounded, widen, wrapped

EXACT_IN_F64 = 53  # Bits of an integer that f64 holds.


def product(lhs: Array, rhs: Array, result: DType) -> Array:
    """The batched matrix product of the operands' values, in `result`'s type, rounded once.

    f64 for floats, c128 for complex numbers; integers modulo 2^bits; pred is or of ands.
    """
    x, y = _prepared(lhs, result), _prepared(rhs, result)
    with np.errstate(all="ignore"):
        return summed(_multiplied(x, y), result)


def terms(x: Array, result: DType) -> Array:
    """An operand in the one type in which products and sums of a `result` are taken."""
    wide = _prepared(x, result)
    return wide.astype(np.int64) if wide.dtype.kind in "biu" else wide


def summed(total: Array, result: DType) -> Array:
    """A sum of products, rounded or wrapped to the result's type."""
    if result.is_pred:
        return np.asarray(total != 0)
    if result.is_integral:
        return wrapped(total, result)
    return rounded(total, result) if result.is_float else total.astype(result.numpy)


def _accumulator(result: DType) -> np.dtype:
    """The NumPy type of a product's terms, if they are not integers."""
    return np.dtype(np.complex128 if result.is_complex else np.float64)


def _prepared(x: Array, result: DType) -> Array:
    dtype = dtype_of(x)
    if result.is_float or result.is_complex:
        if dtype.is_complex and not result.is_complex:
            x = np.asarray(x.real)
        return widen(x).astype(_accumulator(result))
    if result.is_pred:
        return np.asarray(x != 0).astype(np.float64)
    if dtype.is_float or dtype.is_complex:
        x = converted(x, result)  # As in XLA, operands of an integer product become integers first.
    return widen(x).astype(np.int8) if dtype.is_pred else widen(x)


def _multiplied(x: Array, y: Array) -> Array:
    if x.dtype.kind in "fc":
        return np.asarray(np.matmul(x, y))
    bits = 8 * (x.dtype.itemsize + y.dtype.itemsize) + max(x.shape[-1] - 1, 0).bit_length()
    if bits <= EXACT_IN_F64:  # NumPy multiplies matrices of floats much faster than of integers
        wide = np.matmul(x.astype(np.float64), y.astype(np.float64))
        return np.asarray(wide).astype(np.int64)
    return np.asarray(np.matmul(x.astype(np.int64), y.astype(np.int64)))
