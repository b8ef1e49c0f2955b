"""Iota device lists: `[2,4]<=[4,2]T(1,0)`, the numbers 0, 1, ... reshaped, transposed, reshaped."""

from __future__ import annotations

import itertools
import math

import numpy as np
from msgspec import Struct

from hlo.attributes.tree import Tree, ints_of, subtrees, tokens
from hlo.errors import Violation

Ints = tuple[int, ...]


class Iota(Struct, frozen=True):
    """transpose(reshape(0 .. n-1, dims), permutation), flattened; made by `canonical_iota`."""

    dims: Ints
    permutation: Ints

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def is_permutation(self) -> bool:
        """XLA takes other numbers behind T as well, and prints them back."""
        return sorted(self.permutation) == list(range(len(self.dims)))

    def flat(self) -> np.ndarray:
        """The device numbers in order."""
        return np.arange(self.size).reshape(self.dims).transpose(self.permutation).reshape(-1)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dims))
        if len(self.dims) == 1:
            return f"[{dims}]"
        return f"[{dims}]T({','.join(map(str, self.permutation))})"


def build_iota(tree: Tree) -> Iota:
    """From a node with one or two int_items and the word T before the second: `[4,2]T(1,0)`."""
    lists = [ints_of(t) for t in subtrees(tree, "int_items")]
    if any(word != "T" for word in tokens(tree, "IDENT")):
        raise Violation("attribute-value", "", tokens(tree, "IDENT")[0], "T")
    return canonical_iota(lists[0], lists[1] if len(lists) > 1 else None)


def build_group_iota(tree: Tree) -> Iota:
    """As `build_iota`, for replica groups, where XLA does not count the transposition.

    It leaves out what is too much. What is too little it reads from beyond its memory, which
    prints as another number in every run: 0 here. It dies where that would meet a merge.
    """
    lists = [ints_of(t) for t in subtrees(tree, "int_items")]
    if len(lists) < 2 or len(lists[0]) == 1 or len(lists[0]) == len(lists[1]):
        return build_iota(tree)
    dims, permutation = lists[0], lists[1][: len(lists[0])]
    if len(permutation) == len(dims) and 0 <= min(lists[1]) <= max(lists[1]) < len(dims):
        return canonical_iota(dims, permutation)
    merges = any(b == a + 1 for a, b in itertools.pairwise(permutation))
    fits = 0 <= min(permutation) <= max(permutation) < len(dims)
    if len(permutation) == len(dims) or 1 in dims or merges or not fits:
        found = f"T({','.join(map(str, permutation))})"
        raise Violation("attribute-value", "", found, f"a permutation of {len(dims)} dimensions")
    return Iota(dims, permutation + (0,) * (len(dims) - len(permutation)))


def canonical_iota(dims: Ints, permutation: Ints | None) -> Iota:
    """Dims of size 1 dropped, dims that stay adjacent and ordered merged, until nothing changes.

    permutation None: none was written, which one dimension alone allows.
    """
    if permutation is None:
        if len(dims) != 1:
            raise Violation("attribute-value", "", "no T(...)", f"a transposition of {len(dims)}")
        permutation = (0,)
    elif len(dims) == 1 or len(permutation) != len(dims) or max(permutation) >= len(dims):
        raise Violation(
            "attribute-value",
            "",
            f"T({','.join(map(str, permutation))})",
            f"a permutation of {len(dims)} dimensions, none for one dimension",
        )
    if min(permutation) < 0:
        raise Violation("attribute-value", "", f"T with {min(permutation)}", "0 and more")
    return _merged(dims, permutation)


def _merged(dims: Ints, permutation: Ints) -> Iota:
    """XLA's steps, which also take what is no permutation (tile_assignment.cc)."""
    sizes, order = list(dims), list(permutation)
    while True:
        kept = [d for d, size in enumerate(sizes) if size != 1]
        moved = {d: k for k, d in enumerate(kept)}
        fewer = [moved[d] for d in order if d in moved]
        order = (fewer + order[len(fewer) :])[: len(kept)]
        sizes = [sizes[d] for d in kept]
        if not kept:
            return Iota((1,), (0,))
        if not _merge_runs(sizes, order):
            return Iota(tuple(sizes), tuple(order))


def _merge_runs(sizes: list[int], order: list[int]) -> bool:
    """Give the first dim of each run of adjacent ordered dims the size of all; the others 1."""
    base, changed = 0, False
    for k in range(1, len(order)):
        first, dim = order[base], order[k]
        if first + (k - base) == dim:
            sizes[first] *= sizes[dim]
            sizes[dim] = 1
            changed = True
        else:
            base = k
    return changed


def iota_of(flat: np.ndarray) -> Iota | None:
    """The iota whose flat form this is, if the greedy factoring into constant strides finds one.

    Levels are found from the innermost: the longest run of one stride, then likewise over every
    n-th element.
    """
    levels: list[tuple[int, int]] = []
    rest = flat
    while len(rest) > 1:
        steps = np.diff(rest)
        stride = int(steps[0])
        breaks = np.flatnonzero(steps != stride)
        run = int(breaks[0]) + 1 if len(breaks) else len(rest)
        if len(rest) % run:
            return None
        levels.append((stride, run))
        rest = rest[::run]
    if not levels:
        levels = [(1, 1)]
    levels.reverse()
    order = sorted(range(len(levels)), key=lambda k: -levels[k][0])
    dims = tuple(levels[k][1] for k in order)
    permutation = tuple(order.index(k) for k in range(len(levels)))
    found = Iota(dims, permutation)
    if found.size == len(flat) and np.array_equal(found.flat(), flat):
        return _merged(dims, permutation)
    return None
