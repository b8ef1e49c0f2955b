"""Window arithmetic: sizes of results, and which element each window position reads.

Source: shared/OP_SEMANTICS.md section 10.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.attributes.window import Window, WindowDim
from hlo.errors import Violation
from hlo.ir.shape import UNBOUNDED
from hlo.ops.shape_rules import Ints

Array = np.ndarray
NO_WINDOW = Window(())


def check_window(window: Window, rank: int, rank_label: str, size_label: str) -> None:
    """One window dimension per dimension; sizes, strides and dilations of at least 1."""
    if len(window.dims) != rank:
        found = f"of {len(window.dims)} dimensions"
        raise Violation("attribute-value", "window", found, f"{rank} dimensions", rank_label)
    for d, w in enumerate(window.dims):
        least = min(w.size, w.stride, w.base_dilation, w.window_dilation)
        if least < 1:
            found = f"{least} as a size, stride or dilation of dimension {d}"
            raise Violation("attribute-value", "window", found, "at least 1", size_label)


def dilated(size: int, step: int) -> int:
    """Positions that `size` elements take with step - 1 holes between neighbours."""
    return 0 if size == 0 else (size - 1) * step + 1


def result_size(size: int, w: WindowDim) -> int:
    """How many windows fit along one dimension."""
    if size == UNBOUNDED:
        return UNBOUNDED
    padded = w.pad_low + dilated(size, w.base_dilation) + w.pad_high
    reach = dilated(w.size, w.window_dilation)
    if padded <= 0 or reach > padded:
        return 0
    return (padded - reach) // w.stride + 1


def result_sizes(dims: Ints, window: Window) -> Ints:
    """`result_size` of every dimension."""
    return tuple(result_size(n, w) for n, w in zip(dims, window.dims, strict=True))


class Reads(Struct, frozen=True, eq=False):
    """What one window position reads in every window: an index per dimension, and if it exists."""

    indices: tuple[Array, ...]
    inside: Array  # bool, of the result's sizes


def reads(dims: Ints, window: Window, position: Ints) -> Reads:
    """The element that position `position` of each window stands on."""
    rank = len(dims)
    indices, inside = [], np.ones((1,) * rank, bool)
    for d, (size, w, at) in enumerate(zip(dims, window.dims, position, strict=True)):
        outputs = np.arange(result_size(size, w))
        base = outputs * w.stride + at * w.window_dilation - w.pad_low
        index = base // w.base_dilation
        valid = (base >= 0) & (base % w.base_dilation == 0) & (index < size)
        along = [1] * rank
        along[d] = -1
        indices.append(np.where(valid, index, 0).reshape(along))
        inside = inside & valid.reshape(along)
    return Reads(tuple(indices), inside)


def dilated_and_padded(x: Array, window: Window, fill: object) -> Array:
    """x with holes and padding written out as `fill`; negative padding crops."""
    dims = [dilated(n, w.base_dilation) for n, w in zip(x.shape, window.dims, strict=True)]
    spread = np.full(dims, fill, x.dtype)
    spread[tuple(np.s_[:: w.base_dilation] for w in window.dims)] = x
    sizes = [max(n + w.pad_low + w.pad_high, 0) for n, w in zip(dims, window.dims, strict=True)]
    result = np.full(sizes, fill, x.dtype)
    source, target = [], []
    for n, size, w in zip(dims, sizes, window.dims, strict=True):
        first = max(0, -w.pad_low)
        last = max(first, min(n, size - w.pad_low))
        source.append(np.s_[first:last])
        target.append(np.s_[first + w.pad_low : last + w.pad_low])
    result[tuple(target)] = spread[tuple(source)]
    return result
