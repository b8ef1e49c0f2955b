"""Array shapes as nearly all are written, `f32[2,3]{1,0}`: one token, each text read once."""

from __future__ import annotations

from functools import lru_cache

from hlo.ir.dtype import DTYPES
from hlo.ir.layout import Layout
from hlo.ir.shape import Shape
from hlo.parser.terminals import pattern


@lru_cache(maxsize=1 << 15)
def plain_shape(text: str) -> Shape | None:
    """The shape that a SHAPE says, None where the text is another form or not right."""
    match = pattern("@SHAPE").match(f"{text},")  # whatever follows a whole text, no layout does
    if match is None or match.end() != len(text):
        return None
    name, _, rest = text.partition("[")
    sizes, _, order = rest.partition("]")
    dtype = DTYPES.get(name)
    if dtype is None or not dtype.is_array:
        return None
    dims = tuple(map(int, sizes.split(","))) if sizes else ()
    if not order:
        return Shape.array(dtype, dims)
    minor_to_major = tuple(map(int, order[1:-1].split(",")))
    if len(minor_to_major) != len(dims):
        return None
    return Shape.array(dtype, dims, layout=Layout(minor_to_major))
