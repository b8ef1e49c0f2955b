"""Run-time extents of dynamic dimensions.

A value with bounded dynamic dimensions (`<=n`) is an array cut to its run-time extents: elements
beyond them do not exist, so that ops on whole arrays need no masks.
Source: docs/control.md 4.
"""

from __future__ import annotations

import math

import numpy as np

from hlo.errors import Violation
from hlo.ir.shape import Shape

Ints = tuple[int, ...]


def reshaped_extents(bounds: Ints, extents: Ints, shape: Shape, inferred: int) -> Ints:
    """The extents of a reshape's result, for an operand of `bounds` cut to `extents`.

    Both sides are cut into smallest groups of equal products; in each, one dimension of the result
    (the declared dynamic one, `inferred`, or the most major that is not 1) takes what is left.
    """
    result = list(shape.dims)
    for sources, targets in reshape_groups(bounds, shape.dims):
        if all(extents[d] == bounds[d] for d in sources):
            continue
        free = free_dimension(targets, shape, inferred)
        others = math.prod(shape.dims[d] for d in targets if d != free)
        result[free] = math.prod(extents[d] for d in sources) // others if others else 0
    if math.prod(result) != math.prod(extents):
        raise Violation(
            "shape-mismatch", "operand 0", f"an array of {math.prod(extents)} elements",
            f"{math.prod(result)}, to become {shape}",
        )  # fmt: skip
    return tuple(result)


def reshape_groups(bounds: Ints, dims: Ints) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of dimensions on both sides of a reshape with equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(bounds) or j < len(dims):
        sources, targets, left, right = [], [], 1, 1
        while True:
            if i < len(bounds) and (left <= right or j == len(dims)):
                sources.append(i)
                left *= bounds[i]
                i += 1
            elif j < len(dims):
                targets.append(j)
                right *= dims[j]
                j += 1
            if (left == right and targets) or (i == len(bounds) and j == len(dims)):
                break
        groups.append((sources, targets))
    return groups


def free_dimension(targets: list[int], shape: Shape, inferred: int) -> int:
    """The dimension of a group that takes what is left at run time."""
    if inferred in targets:
        return inferred
    dynamic = [d for d in targets if shape.dynamic[d]]
    wide = dynamic or [d for d in targets if shape.dims[d] != 1] or targets
    if not wide:
        raise Violation("unsupported", "result", f"{shape}", "a dimension that can be dynamic")
    return wide[0]


def filled_to(x: np.ndarray, dims: Ints) -> np.ndarray:
    """x, cut to its extents, in an array of larger dimensions, zeros elsewhere."""
    if x.shape == dims:
        return x
    result = np.zeros(dims, x.dtype)
    result[tuple(np.s_[:n] for n in x.shape)] = x
    return result


def bounded(x: np.ndarray, dims: Ints, sizes: Ints) -> np.ndarray:
    """x out to its bounds, zeros beyond its extents, but in dimensions that are taken whole."""
    if x.shape == dims:
        return x
    columns = zip(x.shape, dims, sizes, strict=True)
    return filled_to(x, tuple(n if size == dim else dim for n, dim, size in columns))


def cut_pairs(
    x: np.ndarray, y: np.ndarray, x_dims: Ints, y_dims: Ints
) -> tuple[np.ndarray, np.ndarray]:
    """x and y with paired dimensions of one size: the smaller one, where run-time sizes differ."""
    pairs = list(zip(x_dims, y_dims, strict=True))
    sizes = [min(x.shape[a], y.shape[b]) for a, b in pairs]
    cuts = []
    for value, dims in ((x, x_dims), (y, y_dims)):
        size_of = dict(zip(dims, sizes, strict=True))
        cuts.append(value[tuple(np.s_[: size_of.get(d)] for d in range(value.ndim))])
    return cuts[0], cuts[1]
