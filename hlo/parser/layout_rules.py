"""What XLA asks of the layouts of arrays inside a tuple's written shape, or one that it makes.

Of others it asks nothing.
"""

from __future__ import annotations

import itertools
import math

from hlo.ir.layout import SplitConfig
from hlo.ir.shape import UNBOUNDED, Shape, stored

_LARGEST = (1 << 63) - 1  # sizes are counted in 64 bits


def layout_problem(shape: Shape) -> str:
    """What is wrong with an array, "" when it is right (or no array)."""
    layout = shape.layout
    if not shape.is_array or layout is None:
        return ""
    if not layout.is_default_order and sorted(layout.minor_to_major) != list(range(shape.rank)):
        return "a layout that is no permutation of its dimensions"
    return _property_problem(shape) if _fits(shape) else "a size beyond 64 bits"


def _fits(shape: Shape) -> bool:
    sizes = [n for n in shape.dims if n != UNBOUNDED]
    counts = itertools.accumulate(sizes, lambda a, b: a * b)
    if any(n > _LARGEST for n in counts):
        return False
    return math.prod(sizes) * shape.dtype.item_bytes <= _LARGEST


def _property_problem(shape: Shape) -> str:
    layout = shape.layout
    assert layout is not None, "an array's"
    if any(0 in tile or not tile for tile in layout.tiles):
        return "an empty tile"
    if layout.index_type is not None or layout.pointer_type is not None:
        return "an index or pointer type"
    if layout.element_size < 0:
        return "a negative element size"
    if not all(_splits_well(shape, split) for split in layout.split_configs):
        return "a split outside its dimension"
    if len({split.dimension for split in layout.split_configs}) < len(layout.split_configs):
        return "a dimension that is split twice"
    return ""


def _splits_well(shape: Shape, split: SplitConfig) -> bool:
    """Its dimension is counted as they lie in memory, from the major one on."""
    if not 0 <= split.dimension < shape.rank:
        return False
    inside = (0, *split.indices, stored(shape).dims[split.dimension])
    return not split.indices or all(a < b for a, b in itertools.pairwise(inside))
