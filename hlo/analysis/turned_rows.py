"""Parts of a transposed array that lie in its operand as they do in the result.

    slice(transpose(x, p)), of [layer, in, out] one layer of x[in, layer, out]

Where the dimensions of which more than one element is taken come in the order in which x has them,
the part is a reshape of a part of x, which products and loops read where it lies.
"""

from __future__ import annotations

from math import prod

from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.machine import COMMON


def lies_in_order(turned: Instruction, sizes: Ints) -> bool:
    """Whether a part of so many elements lies in the transpose's operand in the same order, in
    runs of a line of the cache at least, so that no line is read for few of its elements.
    """
    (x,) = turned.operands
    order = turned["dimensions"]
    assert isinstance(order, tuple), "dimensions are a list of integers"
    taken = [d for d, n in zip(order, sizes, strict=True) if n > 1]
    return taken == sorted(taken) and _run_bytes(x, order, sizes) >= COMMON.line_bytes


def _run_bytes(x: Instruction, order: Ints, sizes: Ints) -> int:
    """How many bytes of the part lie side by side in x."""
    of = dict(zip(order, sizes, strict=True))
    whole = [d for d, n in enumerate(x.shape.dims) if of[d] != n]
    first = whole[-1] if whole else 0  # the last dimension that is cut
    return x.shape.dtype.item_bytes * prod(of[d] for d in range(first, x.shape.rank))
