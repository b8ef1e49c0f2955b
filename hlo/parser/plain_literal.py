"""Literals of finite numbers in plain braces, `{{1, 2}, {3, 4.5}}`, read without a token for each.

A big constant has a million elements; Lark and the lexer take some ten microseconds each. What is
not plain (NaN, infinities, complex numbers, comments, missing commas) is left to the grammar.
"""

from __future__ import annotations

import re

import numpy as np

from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser.literals import integers, rounded, stored

_CHARACTERS = re.compile(r"[-+0-9.e{}, ]*+")
_ELEMENT = re.compile(r"[^{},]+")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(
    r"-?(?:0|[1-9][0-9]{0,17})|-?[0-9]{1,40}(?:\.[0-9]{0,40}(?:e[+-]?[0-9]{1,3})?|e[+-]?[0-9]{1,3})"
)


def plain_literal(text: str, shape: Shape) -> Literal | None:
    """The literal of an array; None where it is not plain. Raises Violation: out of range."""
    if not shape.is_array or not (shape.dtype.is_integral or shape.dtype.is_float):
        return None
    if (
        not 0 < shape.size <= len(text)
        or min(shape.dims, default=1) < 1
        or _CHARACTERS.fullmatch(text) is None
    ):
        return None
    compact = text.replace(", ", ",").replace("{ ", "{").replace(" }", "}")
    if " " in compact or _ELEMENT.sub("x", compact) != _skeleton(shape.dims):
        return None
    elements = _ELEMENT.findall(compact)
    pattern = _INTEGER if shape.dtype.is_integral else _NUMBER
    if not all(map(pattern.fullmatch, elements)):
        return None
    kept = stored(shape)
    if shape.dtype.is_integral:
        flat = integers(shape.dtype, list(map(int, elements)))
    else:
        doubles = np.array([_double(e) for e in elements], dtype=np.float64)
        if not np.isfinite(doubles).all():
            return None
        flat = rounded(shape.dtype, doubles)
    return Literal.of(flat.reshape(kept.dims), kept)


def _double(text: str) -> float:
    """The element's value; `-0` is an integer and means +0."""
    return 0.0 if text == "-0" else float(text)


def _skeleton(dims: tuple[int, ...]) -> str:
    """The braces and commas of an array, `x` for each element."""
    text = "x"
    for size in reversed(dims):
        text = "{" + ",".join([text] * size) + "}"
    return text
