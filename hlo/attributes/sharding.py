"""Shardings: how an array is cut over devices, in XLA's tile form or over a named mesh.

    {devices=[2,2]<=[4]}  {maximal device=1}  {{replicated}, {manual}}  {mesh['x'=2], [{'x'}, {}]}

Each form has its own file, which is imported when a program has a sharding of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, has, subtrees
from hlo.ir.shape import Shape, join_indexed

if TYPE_CHECKING:
    from hlo.attributes.mesh_sharding import MeshSharding
    from hlo.attributes.tile_sharding import TileSharding


class TupleSharding(Struct, frozen=True):
    """One sharding per leaf of a tuple shape."""

    elements: tuple[TileSharding | MeshSharding, ...]


Sharding: TypeAlias = "TileSharding | MeshSharding | TupleSharding"


def build_sharding(tree: Tree) -> Sharding:
    """From rule kind_sharding."""
    parts = [_single(t) for t in subtrees(tree, "tile_sharding", "mesh_sharding")]
    if has(tree, "LBRACE"):
        return TupleSharding(tuple(parts))
    (single,) = parts
    return single


def _single(tree: Tree) -> TileSharding | MeshSharding:
    if tree.data == "mesh_sharding":
        from hlo.attributes.mesh_sharding import build_mesh_sharding

        return build_mesh_sharding(tree)
    from hlo.attributes.tile_sharding import build_tile_sharding

    return build_tile_sharding(tree)


def repeated(sharding: Sharding, shape: Shape) -> Sharding:
    """A single sharding of a tuple shape, once for every leaf (an empty tuple: once)."""
    if isinstance(sharding, TupleSharding) or not shape.is_tuple:
        return sharding
    return TupleSharding((sharding,) * max(1, sum(1 for _ in shape.leaves())))


def sharding_text(sharding: Sharding, *, metadata: bool = True, reads_back: bool = True) -> str:
    """metadata: whether it is shown (not in the Short, Canonical and Fingerprint forms)."""
    if isinstance(sharding, TupleSharding):
        parts = [
            sharding_text(e, metadata=metadata, reads_back=reads_back) for e in sharding.elements
        ]
        return "{" + join_indexed(parts) + "}"
    from hlo.attributes.tile_sharding import TileSharding, tile_sharding_text

    if isinstance(sharding, TileSharding):
        return tile_sharding_text(sharding, metadata=metadata, reads_back=reads_back)
    from hlo.attributes.mesh_sharding import mesh_sharding_text

    return mesh_sharding_text(sharding, metadata=metadata)


SHARDING = AttributeKind("SHARDING", "kind_sharding", build_sharding, sharding_text)
