"""Integers modulo 2^bits, for element types of every width."""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType


def wrapped(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers (of any NumPy integer type or bool) reduced modulo 2^bits into an integral type."""
    assert dtype.numpy is not None and dtype.is_integral, f"{dtype} holds integers"
    if dtype.bits >= 8:
        return values.astype(dtype.numpy)
    low = values.astype(np.int64) & ((1 << dtype.bits) - 1)
    if dtype.is_signed:
        sign = 1 << (dtype.bits - 1)
        low = (low ^ sign) - sign
    return low.astype(np.int8).astype(dtype.numpy)
