"""Leaves: a value of any shape seen as the flat sequence of its arrays and tokens.

Counted once per shape object: tuples of a thousand elements are common, each of their
get-tuple-elements asks, and so does every stage.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from hlo.ir.shape import Ints, Shape

Leaves = tuple[Shape, ...]

_LIMIT = 65536


class _Counted:
    """A shape with its leaves, the offsets of a tuple's elements, and bytes by leaf and in all."""

    __slots__ = ("leaves", "offsets", "shape", "sizes", "total")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.leaves: Leaves = tuple(shape.leaves())
        counts = [_counted(e).count if e.is_tuple else 1 for e in shape.elements]
        self.offsets = (0, *accumulate(counts))
        self.sizes = tuple(leaf.size_bytes if leaf.is_array else 0 for leaf in self.leaves)
        self.total = sum(self.sizes)

    @property
    def count(self) -> int:
        return len(self.leaves)


_known: dict[int, _Counted] = {}


def _counted(shape: Shape) -> _Counted:
    """What is known of a shape, found by identity: hashing a wide tuple is slow."""
    found = _known.get(id(shape))
    if found is not None and found.shape is shape:
        return found
    if len(_known) > _LIMIT:
        _known.clear()
    made = _known[id(shape)] = _Counted(shape)
    return made


def leaves_of(shape: Shape) -> Leaves:
    """The leaves in order."""
    return _counted(shape).leaves


def leaf_sizes(shape: Shape) -> tuple[int, ...]:
    """The bytes that each leaf holds in memory: none for tokens and opaques."""
    return _counted(shape).sizes


def leaf_count(shape: Shape) -> int:
    """How many leaves there are."""
    return len(_counted(shape).leaves)


def value_bytes(shape: Shape) -> int:
    """The bytes of all leaves."""
    return _counted(shape).total


def leaf_offset(shape: Shape, index: int) -> int:
    """The number of leaves before element `index` of a tuple."""
    return _counted(shape).offsets[index]


def leaf_element(shape: Shape, leaf: int) -> tuple[int, int]:
    """The element of a tuple that holds the leaf, and the leaf's number within it."""
    offsets = _counted(shape).offsets
    element = bisect_right(offsets, leaf) - 1  # the last of equal offsets: empty tuples hold none
    return element, leaf - offsets[element]


def leaf_path(shape: Shape, leaf: int) -> Ints:
    """The elements, outermost first, that lead to a leaf; () of a shape that is no tuple."""
    path: list[int] = []
    while shape.is_tuple:
        element, leaf = leaf_element(shape, leaf)
        path.append(element)
        shape = shape.elements[element]
    return tuple(path)
