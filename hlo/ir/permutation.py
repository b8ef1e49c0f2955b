"""Permutations as tuples of integers: p[i] is where position i reads from."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.ir.shape import Ints


def compose(inner: Sequence[int], outer: Sequence[int]) -> Ints:
    """The dimensions of transpose(transpose(x, inner), outer) as one transpose."""
    return tuple(inner[i] for i in outer)


def inverse(p: Sequence[int]) -> Ints:
    """The permutation that undoes p."""
    found = [0] * len(p)
    for i, target in enumerate(p):
        found[target] = i
    return tuple(found)


def is_identity(p: Sequence[int]) -> bool:
    """Whether p moves nothing."""
    return list(p) == list(range(len(p)))
