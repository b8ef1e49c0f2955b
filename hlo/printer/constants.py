"""What a constant's parentheses hold, by the options (docs/text.md 4.3, 8.4)."""

from __future__ import annotations

import numpy as np

from hlo.attributes.literal_text import ELIDED, literal_text
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.printer.options import PrintOptions

LARGE = 10  # elements that a constant may have and still be printed
ESSENTIAL = 500_000  # elements of integers that even the Fingerprint form prints


def constant_text(literal: Literal, options: PrintOptions) -> str:
    """The value, `{...}`, or a digest of it in the Fingerprint form."""
    if options.print_only_essential_constants:
        return essential_text(literal)
    reads_back = options.reads_back
    if options.print_large_constants or (literal.shape.is_array and literal.shape.size <= LARGE):
        return literal_text(literal, reads_back=reads_back)
    return ELIDED


def essential_text(literal: Literal) -> str:
    """`0`, `1`, integers in full, anything else left out."""
    shape = literal.shape
    if isinstance(literal.value, np.ndarray):
        if is_all_zero(shape, literal.value):
            return "0"
        if is_all_one(shape, literal.value):
            return "1"
    if all(leaf.dtype.is_integral for leaf in shape.leaves()) and shape.size <= ESSENTIAL:
        return literal_text(literal)
    return ELIDED


def is_all_zero(shape: Shape, array: np.ndarray) -> bool:
    """Zero or false everywhere; -0.0 is not zero; an empty array is all zero, but one of scales.

    By the bits, which a scale has no zero among.
    """
    if shape.dtype.is_scale:
        return False
    return not array.tobytes().strip(b"\0")


def is_all_one(shape: Shape, array: np.ndarray) -> bool:
    """One or true everywhere."""
    if shape.dtype.is_integral and shape.dtype.bits < 8:
        array = array.astype(np.int64)  # one of s1 would wrap to -1
    with np.errstate(invalid="ignore"):  # NaNs are not one
        return bool(np.all(array == np.ones((), array.dtype)))
