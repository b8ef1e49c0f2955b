"""Tiles of a sharding and their subgroups, made canonical as XLA does (docs/text.md 7.1)."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np
from msgspec import Struct

from hlo.attributes.iota import Iota, canonical_iota, iota_of
from hlo.errors import Violation

Ints = tuple[int, ...]
LARGEST = 1 << 24  # places that are listed one by one
SUBGROUP_TYPES = ("maximal", "manual", "unreduced", "replicated")  # in canonical order
_WHOLE = ("manual", "replicated", "unreduced")  # types that may take all the devices


class Tile(Struct, frozen=True):
    """Devices as an array that cuts a value, with subgroups behind its dimensions.

    dims: how often each dimension is cut, then one entry per subgroup type.

    devices in row-major order of dims; XLA takes an iota of any size.
    """

    dims: Ints
    devices: Ints | Iota
    subgroups: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    def flat(self) -> np.ndarray | None:
        """The device of each place; None for an iota that does not fit."""
        devices = self.devices
        if not isinstance(devices, Iota):
            return np.array(devices, dtype=np.int64)
        if self.size > LARGEST or (len(devices.dims) > 1 and devices.size != self.size):
            return None
        if len(devices.dims) == 1:
            return np.arange(self.size)
        return devices.flat() if devices.is_permutation else None


def canonical_tile(tile: Tile) -> tuple[str, Tile | None]:
    """("tiled", tile), or a kind without devices: the whole tile is one subgroup."""
    if not tile.subgroups:
        return "tiled", tile
    data_rank = len(tile.dims) - len(tile.subgroups)
    types = set(tile.subgroups)
    if len(types) == 1 and types <= set(_WHOLE) and math.prod(tile.dims[:data_rank]) == 1:
        return tile.subgroups[0], None
    merged = _merged(tile, data_rank)
    if merged.subgroups == ("manual",) and merged.dims[-1] == merged.size:
        return "manual", None
    if merged.subgroups and merged.subgroups[-1] == "replicated":
        if len(merged.dims) == 1 or merged.dims[-1] == merged.size:
            return "replicated", None
        return "tiled", _sorted_groups(merged)
    return "tiled", merged


def _merged(tile: Tile, data_rank: int) -> Tile:
    """Subgroups of size 1 dropped, the others ordered by type, equal types merged."""
    kept = [k for k in range(data_rank, len(tile.dims)) if tile.dims[k] != 1]
    order = sorted(kept, key=lambda k: SUBGROUP_TYPES.index(tile.subgroups[k - data_rank]))
    sizes: dict[str, int] = {}
    for k in order:
        name = tile.subgroups[k - data_rank]
        sizes[name] = sizes.get(name, 1) * tile.dims[k]
    dims = (*tile.dims[:data_rank], *sizes.values())
    flat = tile.flat() if order != kept else None
    if flat is None:
        return Tile(dims, tile.devices, tuple(sizes))
    dropped = [k for k in range(data_rank, len(tile.dims)) if k not in kept]
    axes = (*range(data_rank), *order, *dropped)
    if not tile.size and isinstance(tile.devices, Iota):
        return Tile(dims, canonical_iota(tile.dims, axes), tuple(sizes))
    moved = flat.reshape(tile.dims).transpose(axes).reshape(-1)
    return Tile(dims, _like(tile.devices, moved, tile.dims), tuple(sizes))


def _sorted_groups(tile: Tile) -> Tile:
    if isinstance(tile.devices, Iota) and tile.devices.size % tile.dims[-1]:
        raise Violation(
            "attribute-value", "", f"{tile.devices.size} devices", f"groups of {tile.dims[-1]}"
        )
    flat = tile.flat()
    if flat is None:
        return tile
    if not tile.size and isinstance(tile.devices, Iota):
        if len(tile.devices.dims) == 1:  # XLA dies
            expected = f"groups of {tile.dims[-1]}"
            raise Violation("attribute-value", "", "no devices", expected)
        return tile
    groups = flat.reshape(-1, tile.dims[-1])
    ordered = np.sort(groups, axis=1)
    if np.array_equal(ordered, groups) and _is_kept(tile.devices, groups.shape):
        return tile
    devices = _like(tile.devices, ordered.reshape(-1), groups.shape)
    return Tile(tile.dims, devices, tile.subgroups)


def _like(devices: Ints | Iota, flat: np.ndarray, dims: Ints) -> Ints | Iota:
    """An iota again where the input was one that the dims do not cut across; else a list."""
    if isinstance(devices, Iota) and _is_aligned(devices, dims):
        found = iota_of(flat)
        if found is not None:
            return found
    return tuple(flat.tolist())


def _is_kept(devices: Ints | Iota, dims: Ints) -> bool:
    return not isinstance(devices, Iota) or _is_aligned(devices, dims)


def _is_aligned(iota: Iota, dims: Ints) -> bool:
    """Whether the iota's dims and these have a common refinement, which XLA needs."""
    if len(iota.dims) == 1:
        return True
    ends = {
        *itertools.accumulate((iota.dims[d] for d in iota.permutation), operator.mul),
        *itertools.accumulate(dims, operator.mul),
    }
    return all(b % a == 0 for a, b in itertools.pairwise(sorted(ends)))
