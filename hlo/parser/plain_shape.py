"""Array shapes as nearly all are written, `f32[2,3]{1,0}`: one token, each text read once."""

from __future__ import annotations

import re
from functools import lru_cache

from hlo.ir.dtype import DTYPES
from hlo.ir.layout import Layout
from hlo.ir.shape import Shape

_INTS = r"(?:[0-9]{1,18}(?:,[0-9]{1,18})*)?"
# Without a layout, what follows tells that none is to come.
PLAIN = re.compile(
    rf"[a-z0-9]+\[{_INTS}\](?:\{{[0-9]{{1,18}}(?:,[0-9]{{1,18}})*\}}|(?=[,)}}]| [A-Za-z%]))"
)
_PARTS = re.compile(rf"([a-z0-9]+)\[({_INTS})\](?:\{{({_INTS})\}})?")


@lru_cache(maxsize=1 << 15)
def plain_shape(text: str) -> Shape | None:
    """The shape, None where the text is another form or not right."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    name, dims_text, order_text = match.groups()
    dtype = DTYPES.get(name)
    if dtype is None or not dtype.is_array:
        return None
    dims = tuple(map(int, dims_text.split(","))) if dims_text else ()
    if order_text is None:
        return Shape.array(dtype, dims)
    order = tuple(map(int, order_text.split(","))) if order_text else ()
    if not order or len(order) != len(dims):
        return None
    return Shape.array(dtype, dims, layout=Layout(order))
