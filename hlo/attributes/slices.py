"""Ranges of slice: `{[0:4:2], [0:2:1]}`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, ints_of, subtrees


class SliceDim(Struct, frozen=True):
    """One dimension: start <= index < limit, every stride-th."""

    start: int
    limit: int
    stride: int = 1


def slice_dims(attributes: Mapping[str, object]) -> tuple[SliceDim, ...]:
    """What a slice with these attributes takes of each dimension."""
    value = attributes["slice"]
    assert isinstance(value, tuple), "a slice has one entry per dimension"
    return value


def _slice(tree: Tree) -> tuple[SliceDim, ...]:
    return tuple(SliceDim(*ints_of(dim)) for dim in subtrees(tree, "slice_dim"))


def slice_text(dims: tuple[SliceDim, ...]) -> str:
    """Strides for all dimensions when one is not 1, else for none."""
    if any(d.stride != 1 for d in dims):
        ranges = (f"[{d.start}:{d.limit}:{d.stride}]" for d in dims)
    else:
        ranges = (f"[{d.start}:{d.limit}]" for d in dims)
    return "{" + ", ".join(ranges) + "}"


SLICE = AttributeKind("SLICE", "kind_slice", _slice, slice_text)
