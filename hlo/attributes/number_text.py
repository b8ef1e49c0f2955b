"""Texts of numbers, exactly as XLA writes them (docs/text.md 4.2), for whole arrays at once."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, FloatFormat

# The least power of f8e8m0fnu: XLA reads the text that it writes as twice that.
_READS_BACK = (("-0", "-0.0"), ("5.9e-39", "5.8e-39"))
_NEGATIVE_ZERO = re.compile(r"-0(?=[,)])")


def element_texts(dtype: DType, array: np.ndarray, *, reads_back: bool = True) -> list[str]:
    """One text per element in logical order; pred as `1` and `0`.

    reads_back: XLA writes -0.0 as `-0`, which is an integer and reads as 0.
    """
    texts = _element_texts(dtype, np.ascontiguousarray(array).reshape(-1))
    if not reads_back or not (dtype.is_float or dtype.is_complex):
        return texts
    if dtype.is_complex:
        return [_NEGATIVE_ZERO.sub("-0.0", t) if "-0" in t else t for t in texts]
    for wrong, right in _READS_BACK:
        if wrong in texts and (wrong == "-0" or dtype.is_scale):
            texts = [right if t == wrong else t for t in texts]
    return texts


def _element_texts(dtype: DType, flat: np.ndarray) -> list[str]:
    if dtype.is_pred:
        return ["1" if b else "0" for b in flat.tolist()]
    if dtype.is_complex:
        return _complex_texts(dtype, flat)
    if dtype.is_float:
        return _float_texts(dtype, flat)
    wide = flat if dtype.bits >= 8 else flat.astype(np.int64)
    return list(map(str, wide.tolist()))


def _complex_texts(dtype: DType, flat: np.ndarray) -> list[str]:
    part = dtype.component
    texts = _float_texts(part, flat.view(_items(part)))
    return [f"({re}, {im})" for re, im in zip(texts[::2], texts[1::2], strict=True)]


def _float_texts(dtype: DType, flat: np.ndarray) -> list[str]:
    if dtype.bits <= 8:
        table = _byte_texts(dtype)
        return [table[code] for code in flat.view(np.uint8).tolist()]
    if dtype.bits == 16:
        return _general_texts(dtype, flat, significant_digits(dtype))
    digits = 6 if dtype is dt.F32 else 15
    return _shortened_texts(dtype, flat, digits)


def _items(dtype: DType) -> np.dtype:
    assert dtype.numpy is not None, f"{dtype} has elements"
    return dtype.numpy


def significant_digits(dtype: DType) -> int:
    """Digits that a small float always gets: 1 + ceil(p * log10(2)), p with the hidden bit."""
    assert dtype.float_format is not None, f"{dtype} is a float"
    return 1 + math.ceil((dtype.float_format.mantissa + 1) * math.log10(2))


@lru_cache(maxsize=16)
def _byte_texts(dtype: DType) -> tuple[str, ...]:
    """The text of every code of a type of up to eight bits."""
    codes = np.arange(256, dtype=np.uint8).view(_items(dtype))
    return tuple(_general_texts(dtype, codes, significant_digits(dtype)))


def _general_texts(dtype: DType, flat: np.ndarray, digits: int) -> list[str]:
    """`%.{digits}g` of each; NaNs with their sign and payload."""
    with np.errstate(all="ignore"):
        numbers = flat.astype(np.float64)
    texts = _formatted(numbers, digits)
    for k in np.flatnonzero(np.isnan(numbers)).tolist():
        texts[k] = nan_text(dtype, flat[k : k + 1])
    return texts


def _shortened_texts(dtype: DType, flat: np.ndarray, digits: int) -> list[str]:
    """f32 and f64: the short form where it reads back to the same number, else a longer one."""
    with np.errstate(all="ignore"):  # signalling NaNs, numbers that overflow or vanish
        numbers = flat.astype(np.float64)
        texts = _formatted(numbers, digits)
        again = np.array(list(map(float, texts)), np.float64).astype(flat.dtype)
    longer = np.flatnonzero(np.isfinite(flat) & (again != flat))
    if len(longer):
        exact = _formatted(numbers[longer], 9 if digits == 6 else 17)
        for k, text in zip(longer.tolist(), exact, strict=True):
            texts[k] = text
    for k in np.flatnonzero(np.isnan(numbers)).tolist():
        texts[k] = nan_text(dtype, flat[k : k + 1])
    return texts


def _formatted(numbers: np.ndarray, digits: int) -> list[str]:
    """All numbers in one `%` operation: four times as fast as one by one."""
    if not len(numbers):
        return []
    return (f" %.{digits}g" * len(numbers) % tuple(numbers.tolist())).split()


def nan_text(dtype: DType, one: np.ndarray) -> str:
    """`nan`, `-nan`, `nan(0x1)`: the payload is shown unless only the quiet bit is set."""
    fmt = dtype.float_format
    assert fmt is not None, f"{dtype} is a float"
    code = int(one.view(f"u{dtype.item_bytes}")[0])
    sign = "-" if fmt.has_sign and code >> (fmt.exponent + fmt.mantissa) & 1 else ""
    return sign + "nan" + _payload_text(fmt, code)


def _payload_text(fmt: FloatFormat, code: int) -> str:
    """In parentheses, where the format's NaNs differ in one and it is not the quiet bit alone."""
    payload = code & ((1 << fmt.mantissa) - 1)
    if fmt.nan != "ieee" or payload == 1 << (fmt.mantissa - 1):
        return ""
    return f"(0x{payload:x})"
