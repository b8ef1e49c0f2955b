"""Shardings in tile form: `{devices=[2,2]<=[4]}`, `{maximal device=1}`, `{replicated}`.

Made canonical where they are read (docs/text.md 7.1), so equal values print equally.
"""

from __future__ import annotations

import math

from msgspec import Struct

from hlo.attributes.iota import Iota, build_iota
from hlo.attributes.metadata import Metadata, build_metadata, metadata_text
from hlo.attributes.subgroups import LARGEST, SUBGROUP_TYPES, Tile, canonical_tile
from hlo.attributes.tree import Tree, has, ints_of, is_empty, key_of, subtrees, token_type
from hlo.errors import Violation

Ints = tuple[int, ...]
_WORDS = ("REPLICATED", "MAXIMAL", "MANUAL", "UNKNOWN", "UNREDUCED")  # the first written one wins


class TileSharding(Struct, frozen=True):
    """A sharding by an array of devices.

    kind: "replicated", "manual", "unknown", "unreduced", "maximal" (on `device`) or "tiled".

    shard_group: ("shard_as" or "shard_like", number).
    """

    kind: str
    device: int = 0
    tile: Tile | None = None
    shard_group: tuple[str, int] | None = None
    metadata: tuple[Metadata, ...] = ()


class _Items(Struct):
    """The items of a tile form as they were written, the last of each kind."""

    words: set[str]
    dims: Ints = ()
    devices: Ints | Iota = ()
    subgroups: tuple[str, ...] = ()
    last_replicated: bool = False
    shard_group: tuple[str, int] | None = None
    metadata: tuple[Metadata, ...] = ()


def build_tile_sharding(tree: Tree) -> TileSharding:
    """From rule tile_sharding."""
    items = _Items(set())
    for item in subtrees(tree, "sharding_item"):
        _read_item(item, items)
    word = next((w for w in _WORDS if w in items.words), "")
    rest = {"shard_group": items.shard_group, "metadata": items.metadata}
    if word == "MAXIMAL":
        return TileSharding("maximal", _one_device(items.devices), None, **rest)  # type: ignore[arg-type]  # the keys are its fields
    if word:
        if not isinstance(items.devices, Iota) and items.devices:  # XLA overlooks an iota here
            raise Violation("attribute-value", "", f"{word.lower()} with devices", "no devices")
        return TileSharding(word.lower(), **rest)  # type: ignore[arg-type]  # the keys are its fields
    kind, tile = canonical_tile(_tile(items))
    return TileSharding(kind, 0, tile, **rest)  # type: ignore[arg-type]  # the keys are its fields


def _read_item(item: Tree, items: _Items) -> None:
    head = token_type(item.children[0])
    if head in _WORDS:
        items.words.add(head)
    elif head == "LAST_TILE_DIM_REPLICATE":
        items.last_replicated = True
    elif head in ("SHARD_AS", "SHARD_LIKE"):
        word = items.shard_group[0] if items.shard_group else ""
        items.shard_group = ("shard_as" if word == "shard_as" else head.lower(), ints_of(item)[0])
    else:
        _read_field(key_of(item), item, items)


def _read_field(key: str, item: Tree, items: _Items) -> None:
    lists = [ints_of(t) for t in subtrees(item, "int_items")]
    if key == "device" and has(item, "INT"):
        items.devices = ints_of(item)
    elif key == "devices" and lists and not items.dims:
        items.dims = lists[0]
        iotas = subtrees(item, "iota")
        items.devices = build_iota(iotas[0]) if iotas else lists[1]
    elif key == "last_tile_dims" and subtrees(item, "subgroup"):
        types = [str(t.children[0].value) for t in subtrees(item, "subgroup")]  # type: ignore[attr-defined]  # tokens
        items.subgroups = tuple(types)
    elif key == "last_tile_dims" and is_empty(item):
        items.subgroups = ()
    elif key == "metadata" and subtrees(item, "metadata_items"):
        items.metadata += build_metadata_items(subtrees(item, "metadata_items")[0])
    else:
        raise Violation(
            "attribute-value", "", f"an item {key}", "device, devices, last_tile_dims or metadata"
        )


def build_metadata_items(tree: Tree) -> tuple[Metadata, ...]:
    """One metadata, or a list of them."""
    return tuple(build_metadata(t) for t in subtrees(tree, "kind_metadata"))


def _one_device(devices: Ints | Iota) -> int:
    if isinstance(devices, Iota) or len(devices) != 1:
        raise Violation("attribute-value", "", "maximal without exactly one device", "device=N")
    return devices[0]


def _tile(items: _Items) -> Tile:
    if not items.dims:
        raise Violation("attribute-value", "", "a sharding without devices", "devices=[...]...")
    odd = isinstance(items.devices, Iota) and not items.subgroups and not items.last_replicated
    if min(items.dims) < 0 and not odd:  # of an iota XLA looks at nothing
        raise Violation("attribute-value", "", f"a tile of {min(items.dims)}", "0 or more")
    if items.subgroups and items.last_replicated:
        raise Violation("attribute-value", "", "last_tile_dim_replicate", "last_tile_dims alone")
    subgroups = ("replicated",) if items.last_replicated else items.subgroups
    if len(subgroups) > len(items.dims):
        raise Violation(
            "attribute-value",
            "",
            f"{len(subgroups)} last_tile_dims",
            f"at most {len(items.dims)}, the tile's dimensions",
        )
    assert all(t in SUBGROUP_TYPES for t in subgroups), "the grammar allows these words only"
    return Tile(items.dims, _fitting(items), subgroups)


def _fitting(items: _Items) -> Ints | Iota:
    """The devices; a list that is too short is filled with 0, as XLA does.

    XLA writes a longer list past its memory: up to three entries, or one more than an even
    count, go into what rounding up has left there and are dropped; of more it mostly dies.
    """
    devices = items.devices
    if isinstance(devices, Iota):
        return devices
    count = math.prod(items.dims)
    if not 2 <= len(devices) <= max(3, count | 1):
        expected = f"{count}, the product of the tile" if count >= 2 else "2 or more"
        raise Violation("attribute-value", "", f"{len(devices)} devices", expected)
    if count > LARGEST:
        raise Violation("attribute-value", "", f"a tile of {count}", f"at most {LARGEST} devices")
    return devices[:count] + (0,) * (count - len(devices))


def tile_sharding_text(s: TileSharding, *, metadata: bool = True, reads_back: bool = True) -> str:
    """As XLA prints it. metadata: whether it is shown; reads_back: in a form that XLA reads."""
    texts = [s.kind]
    if s.kind == "maximal":
        texts = [f"maximal device={s.device}"]
    elif s.tile is not None:
        texts = _tile_text(_readable(s.tile) if reads_back else s.tile)
    if s.shard_group is not None:
        texts.append(f"{s.shard_group[0]} {s.shard_group[1]}")
    if metadata and s.metadata:
        texts.append(f"metadata={metadata_items_text(s.metadata)}")
    return "{" + " ".join(texts) + "}"


def _readable(tile: Tile) -> Tile:
    """XLA would read a tile that is all one unreduced subgroup as `{unreduced}`.

    A further subgroup of size 1 keeps it from that, and is dropped again. A list of fewer than
    two devices it would refuse; a surplus one is dropped.
    """
    if not isinstance(tile.devices, Iota) and len(tile.devices) < 2:
        tile = Tile(tile.dims, (*tile.devices, 0, 0)[:2], tile.subgroups)
    if tile.subgroups == ("unreduced",) and math.prod(tile.dims[:-1]) == 1:
        return Tile((*tile.dims, 1), tile.devices, ("unreduced", "replicated"))
    return tile


def _tile_text(tile: Tile) -> list[str]:
    if isinstance(tile.devices, Iota):
        devices = f"<={tile.devices}"
    else:
        devices = ",".join(map(str, tile.devices))
    texts = [f"devices=[{','.join(map(str, tile.dims))}]{devices}"]
    if tile.subgroups == ("replicated",):
        texts.append("last_tile_dim_replicate")
    elif tile.subgroups:
        texts.append("last_tile_dims={" + ", ".join(tile.subgroups) + "}")
    return texts


def metadata_items_text(items: tuple[Metadata, ...]) -> str:
    """One as itself, several in braces."""
    texts = [metadata_text(m) for m in items]
    return texts[0] if len(texts) == 1 else "{" + ", ".join(texts) + "}"
