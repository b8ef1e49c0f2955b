"""Padding of pad: `low_high` or `low_high_interior` per dimension, joined by `x`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, int64, tokens


class PaddingDim(Struct, frozen=True):
    """One dimension. Edges may be negative (they crop); interior stands between two elements."""

    low: int
    high: int
    interior: int = 0


def _padding(tree: Tree) -> tuple[PaddingDim, ...]:
    dims = [dim for text in tokens(tree, "PAD") for dim in text.split("x")]
    return tuple(PaddingDim(*(int64(n) for n in dim.split("_"))) for dim in dims)


def padding_text(dims: tuple[PaddingDim, ...]) -> str:
    """Three numbers for every dimension when one has interior padding, else two."""
    if any(d.interior for d in dims):
        return "x".join(f"{d.low}_{d.high}_{d.interior}" for d in dims)
    return "x".join(f"{d.low}_{d.high}" for d in dims)


PADDING = AttributeKind("PADDING", "kind_padding", _padding, padding_text)
