"""Leaves: a value of any shape seen as the flat sequence of its arrays and tokens.

Positions are counted once per shape object: tuples of a thousand elements are common, and each of
their get-tuple-elements asks.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from hlo.ir.shape import Shape

Leaves = tuple[Shape, ...]

_LIMIT = 4096
_known: dict[int, tuple[Shape, Leaves, tuple[int, ...]]] = {}


def _entry(shape: Shape) -> tuple[Shape, Leaves, tuple[int, ...]]:
    """(shape, leaves, offsets of the elements), found by identity: hashing a wide tuple is slow."""
    found = _known.get(id(shape))
    if found is not None and found[0] is shape:
        return found
    if len(_known) > _LIMIT:
        _known.clear()
    leaves = tuple(shape.leaves())
    counts = [1 if not e.is_tuple else len(_entry(e)[1]) for e in shape.elements]
    offsets = (0, *accumulate(counts))
    made = _known[id(shape)] = (shape, leaves, offsets)
    return made


def leaves_of(shape: Shape) -> Leaves:
    """The leaves in order."""
    return _entry(shape)[1] if shape.is_tuple else (shape,)


def leaf_count(shape: Shape) -> int:
    """How many leaves there are."""
    return len(_entry(shape)[1]) if shape.is_tuple else 1


def leaf_offset(shape: Shape, index: int) -> int:
    """The number of leaves before element `index` of a tuple."""
    return _entry(shape)[2][index]


def leaf_element(shape: Shape, leaf: int) -> tuple[int, int]:
    """The element of a tuple that holds the leaf, and the leaf's number within it."""
    offsets = _entry(shape)[2]
    element = bisect_right(offsets, leaf) - 1  # the last of equal offsets: empty tuples hold none
    return element, leaf - offsets[element]


def leaf_bytes(leaf: Shape) -> int:
    """Bytes that the leaf holds in memory: none for tokens and opaques."""
    return leaf.size_bytes if leaf.is_array else 0
