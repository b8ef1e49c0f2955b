"""The text of a literal on one line: `{ { 1, 2 }, { 3, 4 } }`, `( 1, {2, 3} )`.

Source: docs/text.md 4.2.
"""

from __future__ import annotations

import numpy as np

from hlo.attributes.number_text import element_texts
from hlo.ir.literal import Literal
from hlo.ir.shape import shape_text

ELIDED = "{...}"


def literal_text(literal: Literal, *, reads_back: bool = True) -> str:
    """The value without its shape; `{...}` where the text of the program left it out."""
    value = literal.value
    if value is None:
        return ELIDED
    if isinstance(value, tuple):
        return "( " + ", ".join(literal_text(e, reads_back=reads_back) for e in value) + " )"
    return array_text(literal, value, reads_back=reads_back)


def typed_literal_text(literal: Literal, *, reads_back: bool = True) -> str:
    """A shape before every array, as in custom-call's `literal=`."""
    if isinstance(literal.value, tuple):
        texts = (typed_literal_text(e, reads_back=reads_back) for e in literal.value)
        return "( " + ", ".join(texts) + " )"
    return f"{shape_text(literal.shape)} {literal_text(literal, reads_back=reads_back)}"


def array_text(literal: Literal, array: np.ndarray, *, reads_back: bool = True) -> str:
    """Braces by dimension, in logical order."""
    dtype, dims = literal.shape.dtype, literal.shape.dims
    if not dims and dtype.is_pred:
        return "true" if array else "false"
    texts = element_texts(dtype, array, reads_back=reads_back)
    if not dims:
        return texts[0]
    if len(dims) == 1:
        return "{" + ", ".join(texts) + "}"
    return _nested(dims, _rows(dims, texts))


def _rows(dims: tuple[int, ...], texts: list[str]) -> list[str]:
    """The innermost dimension: spaces inside the braces only around two elements and more."""
    width = dims[-1]
    if width == 0:
        return ["{}"] * int(np.prod(dims[:-1]))
    if width == 1:
        return [f"{{{t}}}" for t in texts]
    return [f"{{ {', '.join(texts[k : k + width])} }}" for k in range(0, len(texts), width)]


def _nested(dims: tuple[int, ...], rows: list[str]) -> str:
    """The outer dimensions, from the inside out; from rank 4 on each brace tells its index."""
    for d in range(len(dims) - 2, -1, -1):
        width = dims[d]
        count = int(np.prod(dims[:d]))
        groups = (", ".join(rows[k * width : (k + 1) * width]) for k in range(count))
        if d == 0 or len(dims) <= 3:
            rows = [f"{{ {group} }}" for group in groups]
            continue
        space = " " if width else ""
        rows = [
            f"{{ /*i{d - 1}={k % dims[d - 1]}*/{space}{group} }}" for k, group in enumerate(groups)
        ]
    return rows[0]
