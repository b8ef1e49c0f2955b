"""Window arithmetic: sizes of results, and which element each window position reads.

Source: docs/semantics.md 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

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


def trimmed(dims: Ints, window: Window) -> Window:
    """The window without the positions at its ends that meet no element, wherever it stands.

    It has as many positions as before, and reduces the same elements there in the same order.
    """
    sizes = zip(dims, window.dims, strict=True)
    return Window(tuple(_trimmed(n, w) for n, w in sizes))


def _trimmed(size: int, w: WindowDim) -> WindowDim:
    """One dimension: position k of window o stands at o * stride + k * window_dilation -
    pad_low."""
    count = result_size(size, w)
    if size <= 0 or count <= 0:
        return w
    step = w.window_dilation
    first = max(0, -((count - 1) * w.stride - w.pad_low) // step)
    last = min(w.size - 1, ((size - 1) * w.base_dilation + w.pad_low) // step)
    first = min(first, w.size - 1)
    kept = max(1, last - first + 1)  # one that meets nothing, where none meets anything
    if kept >= w.size:
        return w
    low = w.pad_low - first * step
    end = (count - 1) * w.stride + dilated(kept, step)
    high = end - low - dilated(size, w.base_dilation)
    return replace(w, size=kept, pad_low=low, pad_high=high)


MOST_WRITTEN = 1 << 10  # positions an element or result
MOST_POSITIONS = 1 << 32  # Positions of a window that are walked, beside which few meet an element.
MOST_EXTENT = 1 << 62  # The most positions and reaches: their sums are 64-bit numbers.


def check_places(dims: Ints, window: Window) -> None:
    """Raises Violation where positions of a window are no 64-bit numbers."""
    for size, w in zip(dims, window.dims, strict=True):
        padded = abs(w.pad_low) + abs(w.pad_high) + dilated(max(size, 0), w.base_dilation)
        reach = dilated(w.size, w.window_dilation)
        most = max(padded, reach, result_size(size, w) * w.stride)
        if most > MOST_EXTENT:
            found = f"of {most} places in a dimension"
            raise Violation("limit", "window", found, f"at most {MOST_EXTENT}")


def check_walk(dims: Ints, window: Window) -> None:
    """Raises Violation where a window is too long to be walked: where it has more positions between
    the first and the last element that it meets than there are elements, by far.
    """
    check_places(dims, window)
    walked = math.prod(w.size for w in trimmed(dims, window).dims)
    if walked > max(MOST_POSITIONS, 64 * math.prod(max(1, n) for n in dims)):
        found = f"of {walked} positions between the elements that it meets"
        raise Violation("limit", "window", found, f"at most {MOST_POSITIONS}, or 64 an element")


def met_positions(size: int, w: WindowDim) -> Sequence[int]:
    """Positions in order that meet an element under some window, and at most the window's size."""
    count = result_size(size, w)
    if w.size <= size * count:
        return range(w.size)
    starts = [o * w.stride - w.pad_low for o in range(count)]
    steps = (i * w.base_dilation - place for i in range(size) for place in starts)
    found = {k // w.window_dilation for k in steps if k % w.window_dilation == 0}
    return sorted(k for k in found if 0 <= k < w.size)


def is_sparse(dims: Ints, window: Window) -> bool:
    """Whether holes and padding, written out, would be far more than the elements are."""
    padded = math.prod(
        max(0, dilated(n, w.base_dilation) + w.pad_low + w.pad_high)
        for n, w in zip(dims, window.dims, strict=True)
    )
    return padded > MOST_WRITTEN * (math.prod(dims) + math.prod(result_sizes(dims, window)) + 1)


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
