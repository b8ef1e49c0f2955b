"""Replica groups of collectives: explicit lists, an iota, or axes of a mesh."""

from __future__ import annotations

import itertools
import math

from msgspec import Struct

from hlo.attributes.ints import ints_list_text, ints_text
from hlo.attributes.iota import Iota, build_group_iota
from hlo.attributes.kind import AttributeKind
from hlo.attributes.mesh import (
    AxisRef,
    Mesh,
    axis_texts,
    build_axes,
    build_mesh,
    check_disjoint,
    check_unmergeable,
    mesh_text,
)
from hlo.attributes.tree import Tree, ints_of, subtrees
from hlo.errors import HloError, Violation

Ints = tuple[int, ...]
LARGEST = 1 << 24  # devices that are listed one by one


class ListGroups(Struct, frozen=True):
    """Groups as written; none: all devices are one group."""

    lists: tuple[Ints, ...] = ()

    def groups(self) -> tuple[Ints, ...]:
        return self.lists

    @property
    def can_expand(self) -> bool:
        return True

    def __str__(self) -> str:
        return ints_list_text(self.lists)


class IotaGroups(Struct, frozen=True):
    """count groups of size devices each, cut from an iota."""

    count: int
    size: int
    iota: Iota

    def groups(self) -> tuple[Ints, ...]:
        if not self.can_expand:
            raise HloError("unsupported", f"replica groups {self}, expected groups that fit")
        flat = self.iota.flat().tolist()
        begins = range(0, len(flat), self.size or 1)  # groups without members are none, as in XLA
        return tuple(tuple(flat[k : k + self.size]) for k in begins)

    @property
    def can_expand(self) -> bool:
        """Whether the iota has as many devices as the groups; XLA reads other ones too."""
        fits = self.count * self.size == self.iota.size and min(self.count, self.size) >= 0
        return fits and self.iota.is_permutation and self.iota.size <= LARGEST

    def __str__(self) -> str:
        return f"[{self.count},{self.size}]<={self.iota}"


class MeshGroups(Struct, frozen=True):
    """Devices that differ only in the named axes are a group."""

    mesh: Mesh
    axes: tuple[AxisRef, ...]

    @property
    def members(self) -> int:
        """Devices in a group."""
        sizes = (self.mesh.axes[a.axis][1] if a.size is None else a.size for a in self.axes)
        return math.prod(sizes)

    def groups(self) -> tuple[Ints, ...]:
        if not self.can_expand:
            raise HloError("unsupported", f"replica groups {self}, expected groups that fit")
        if not self.mesh.size:
            return ()
        sizes, place = _factored(self.mesh, self.axes)
        grouped = [place[(a.axis, a.pre_size)] for a in self.axes]
        others = [k for k in range(len(sizes)) if k not in grouped]
        array = self.mesh.array().reshape(sizes).transpose((*others, *grouped))
        return tuple(tuple(g) for g in array.reshape(-1, self.members).tolist())

    @property
    def can_expand(self) -> bool:
        """Whether the devices fill the mesh."""
        devices = self.mesh.devices
        fits = not isinstance(devices, Iota) or (
            devices.size == self.mesh.size and devices.is_permutation
        )
        return fits and all(size >= 0 for _, size in self.mesh.axes) and self.mesh.size <= LARGEST

    def __str__(self) -> str:
        return f"{mesh_text(self.mesh)} {{{','.join(axis_texts(self.axes, self.mesh))}}}"


ReplicaGroups = ListGroups | IotaGroups | MeshGroups


def _factored(
    mesh: Mesh, axes: tuple[AxisRef, ...]
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """The mesh's sizes with every axis cut where a reference cuts it, and where each part lies."""
    sizes: list[int] = []
    place: dict[tuple[int, int], int] = {}
    for number, (_, whole) in enumerate(mesh.axes):
        cuts = {1, whole}
        for ref in axes:
            if ref.axis == number and ref.size is not None:
                cuts |= {ref.pre_size, ref.pre_size * ref.size}
        ordered = sorted(cuts)
        for low, high in itertools.pairwise(ordered):
            place[(number, low)] = len(sizes)
            sizes.append(high // low)
        if whole == 1:
            place[(number, 1)] = len(sizes)
            sizes.append(1)
    return sizes, place


def _replica_groups(tree: Tree) -> ReplicaGroups:
    if lists := subtrees(tree, "kind_ints_list"):
        return ListGroups(tuple(ints_of(t) for t in subtrees(lists[0], "kind_ints")))
    if iotas := subtrees(tree, "iota"):
        dims = ints_of(subtrees(tree, "int_items")[0])
        if len(dims) != 2:
            raise Violation("attribute-value", "", f"[{len(dims)} numbers]", "[groups,size]")
        return IotaGroups(*dims, build_group_iota(iotas[0]))
    return _mesh_groups(tree)


def _mesh_groups(tree: Tree) -> MeshGroups:
    devices = subtrees(tree, "mesh_devices")
    mesh = build_mesh(subtrees(tree, "mesh_head")[0], devices[0] if devices else None)
    axes = build_axes(subtrees(tree, "mesh_axes")[0], mesh)
    check_disjoint(axes, mesh)
    check_unmergeable(axes, mesh)
    found = MeshGroups(mesh, axes)
    if found.members < 2:
        raise Violation(
            "attribute-value", "", f"groups of {found.members} device", "2 or more devices"
        )
    return found


def replica_groups_text(groups: ReplicaGroups | None, *, expanded: bool = False) -> str:
    """None: one group of all. expanded: as explicit lists (the Fingerprint form)."""
    groups = groups or ListGroups()
    if expanded and groups.can_expand:
        return "{" + ",".join(ints_text(g) for g in groups.groups()) + "}"
    return str(groups)


REPLICA_GROUPS = AttributeKind(
    "REPLICA_GROUPS", "kind_replica_groups", _replica_groups, replica_groups_text
)
