"""Arrays as bits: one-dimensional arrays read as another element type, little-endian and packed.

Elements narrower than a byte are packed from the least significant bits upwards, as in memory.
"""

from __future__ import annotations

import numpy as np

from hlo.ir.dtype import DType


def reinterpreted(flat: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """The bits of flat[n] as elements of `target`; the last, incomplete element is left out."""
    if source is target:
        return flat
    assert target.numpy is not None, f"{target} has elements"
    if source.bits == target.bits:
        return np.ascontiguousarray(flat).view(target.numpy)
    return unpacked(packed(flat, source), target)


def packed(flat: np.ndarray, dtype: DType) -> np.ndarray:
    """The bytes (uint8) that hold flat[n]; the last byte is padded with zeros."""
    raw = np.ascontiguousarray(flat).view(np.uint8)
    if dtype.bits >= 8:
        return raw
    in_bits = np.unpackbits(raw[:, None], axis=1, count=dtype.bits, bitorder="little")
    return np.packbits(in_bits.reshape(-1), bitorder="little")


def unpacked(raw: np.ndarray, dtype: DType) -> np.ndarray:
    """The elements that bytes (uint8) hold; an incomplete last element is left out."""
    assert dtype.numpy is not None, f"{dtype} has elements"
    if dtype.bits >= 8:
        whole = raw.size - raw.size % dtype.item_bytes
        return raw[:whole].view(dtype.numpy)
    in_bits = np.unpackbits(raw, bitorder="little")
    whole = in_bits.size - in_bits.size % dtype.bits
    codes = np.packbits(in_bits[:whole].reshape(-1, dtype.bits), axis=1, bitorder="little")
    if dtype.is_signed:  # an item holds its value in the whole byte: extend the sign
        sign = 1 << (dtype.bits - 1)
        codes = ((codes ^ sign).astype(np.int16) - sign).astype(np.int8)
    return codes.reshape(-1).view(dtype.numpy)
