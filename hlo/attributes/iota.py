"""Iota device lists: `[2,4]<=[4,2]T(1,0)`, the numbers 0, 1, ... reshaped, transposed, reshaped."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from hlo.errors import Violation

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Iota:
    """transpose(reshape(0 .. n-1, dims), permutation), flattened; made by `canonical_iota`."""

    dims: Ints
    permutation: Ints

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    def flat(self) -> np.ndarray:
        """The device numbers in order."""
        return np.arange(self.size).reshape(self.dims).transpose(self.permutation).reshape(-1)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.dims))
        if len(self.dims) == 1:
            return f"[{dims}]"
        return f"[{dims}]T({','.join(map(str, self.permutation))})"


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
    if sorted(permutation) != list(range(len(dims))):
        return Iota(dims, permutation)
    return _merged(dims, permutation)


def _merged(dims: Ints, permutation: Ints) -> Iota:
    kept = [d for d, size in enumerate(dims) if size != 1]
    order = [d for d in permutation if dims[d] != 1]
    if not kept:
        return Iota((1,), (0,))
    after = dict(itertools.pairwise(kept))
    runs: list[list[int]] = []
    for d in order:
        if runs and after.get(runs[-1][-1]) == d:
            runs[-1].append(d)
        else:
            runs.append([d])
    sorted_runs = sorted(runs)
    sizes = tuple(math.prod(dims[d] for d in run) for run in sorted_runs)
    return Iota(sizes, tuple(sorted_runs.index(run) for run in runs))


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
