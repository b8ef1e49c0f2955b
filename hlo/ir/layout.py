"""Layout: how an array's logical dimensions lie in memory, with all that text can carry."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from hlo.ir.dtype import DType

COMBINE = -1  # a tile dimension written `*`


class SplitConfig(Struct, frozen=True):
    """`SC(dimension:i,j)`: where a dimension is split."""

    dimension: int
    indices: tuple[int, ...]


class Layout(Struct, frozen=True):
    """minor_to_major[0] is the fastest-varying logical dimension. Text: docs/text.md 3.3.

    index_type and pointer_type hold a DType, or None where text has no such property.
    """

    minor_to_major: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    tail_padding: int = 1
    index_type: DType | None = None
    pointer_type: DType | None = None
    element_size: int = 0
    memory_space: int = 0
    split_configs: tuple[SplitConfig, ...] = ()
    dynamic_prefix_bytes: int = 0

    @property
    def is_default_order(self) -> bool:
        """Row-major: the last dimension is the fastest."""
        return self.minor_to_major == tuple(range(len(self.minor_to_major) - 1, -1, -1))


@lru_cache(maxsize=64)
def default_layout(rank: int) -> Layout:
    """Row-major, no properties."""
    return Layout(tuple(range(rank - 1, -1, -1)))
