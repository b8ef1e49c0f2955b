"""Tiles of a sharding and their subgroups, made canonical as XLA does (HLO_TEXT.md 7.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hlo.attributes.iota import Iota, iota_of

Ints = tuple[int, ...]
SUBGROUP_TYPES = ("maximal", "manual", "unreduced", "replicated")  # in canonical order
_WHOLE = ("manual", "replicated", "unreduced")  # types that may take all the devices


@dataclass(frozen=True, slots=True)
class Tile:
    """dims: how often each dimension is cut, then one entry per subgroup type.

    devices in row-major order of dims. XLA accepts any number of them.
    """

    dims: Ints
    devices: Ints | Iota
    subgroups: tuple[str, ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether there is exactly one device for each place."""
        count = self.devices.size if isinstance(self.devices, Iota) else len(self.devices)
        return math.prod(self.dims) == count


def canonical_tile(tile: Tile) -> tuple[str, Tile | None]:
    """("tiled", tile), or a kind without devices: the whole tile is one subgroup."""
    if not tile.subgroups:
        return "tiled", tile
    data_rank = len(tile.dims) - len(tile.subgroups)
    types = set(tile.subgroups)
    if len(types) == 1 and types <= set(_WHOLE) and math.prod(tile.dims[:data_rank]) == 1:
        return tile.subgroups[0], None
    merged = _merged(tile, data_rank)
    if merged.subgroups == ("replicated",) and _is_all(merged):
        return "replicated", None
    if merged.subgroups and merged.subgroups[-1] == "replicated" and merged.is_full:
        return "tiled", _sorted_groups(merged)
    return "tiled", merged


def _is_all(tile: Tile) -> bool:
    count = tile.devices.size if isinstance(tile.devices, Iota) else len(tile.devices)
    return len(tile.dims) == 1 or tile.dims[-1] == count


def _merged(tile: Tile, data_rank: int) -> Tile:
    """Subgroups of size 1 dropped, the others ordered by type, equal types merged."""
    kept = [k for k in range(data_rank, len(tile.dims)) if tile.dims[k] != 1]
    order = sorted(kept, key=lambda k: SUBGROUP_TYPES.index(tile.subgroups[k - data_rank]))
    sizes: dict[str, int] = {}
    for k in order:
        name = tile.subgroups[k - data_rank]
        sizes[name] = sizes.get(name, 1) * tile.dims[k]
    dims = (*tile.dims[:data_rank], *sizes.values())
    devices = tile.devices
    if order != kept and tile.is_full:
        dropped = [k for k in range(data_rank, len(tile.dims)) if k not in kept]
        axes = (*range(data_rank), *order, *dropped)
        devices = _like(devices, _flat(devices).reshape(tile.dims).transpose(axes).reshape(-1))
    return Tile(dims, devices, tuple(sizes))


def _sorted_groups(tile: Tile) -> Tile:
    groups = _flat(tile.devices).reshape(-1, tile.dims[-1])
    ordered = np.sort(groups, axis=1)
    if np.array_equal(ordered, groups):
        return tile
    return Tile(tile.dims, _like(tile.devices, ordered.reshape(-1)), tile.subgroups)


def _flat(devices: Ints | Iota) -> np.ndarray:
    return devices.flat() if isinstance(devices, Iota) else np.array(devices, dtype=np.int64)


def _like(devices: Ints | Iota, flat: np.ndarray) -> Ints | Iota:
    """An iota again where the input was one and it can be; an explicit list stays one."""
    found = iota_of(flat) if isinstance(devices, Iota) else None
    return found if found is not None else tuple(flat.tolist())
