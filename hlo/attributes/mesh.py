"""Named device meshes, `mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0))`, and uses of their axes."""

from __future__ import annotations

import itertools
import math

import numpy as np
from msgspec import Struct

from hlo.attributes.escape import unquoted
from hlo.attributes.iota import Iota, build_iota
from hlo.attributes.tree import Tree, has, ints_of, key_of, subtrees, tokens
from hlo.errors import Violation

Ints = tuple[int, ...]


class Mesh(Struct, frozen=True):
    """Axes with names and sizes, and which device stands where (row-major over the axes).

    device: set for a maximal mesh (one device); axes is empty then.
    """

    axes: tuple[tuple[str, int], ...] = ()
    devices: Iota | Ints | None = None
    device: int | None = None

    @property
    def size(self) -> int:
        return math.prod(size for _, size in self.axes)

    def array(self) -> np.ndarray:
        """The devices in the mesh's shape."""
        sizes = tuple(size for _, size in self.axes)
        if self.devices is None:
            return np.arange(self.size).reshape(sizes)
        flat = self.devices.flat() if isinstance(self.devices, Iota) else np.array(self.devices)
        return flat.reshape(sizes)


class AxisRef(Struct, frozen=True):
    """An axis of a mesh (its number), or a part of it: `'y':(1)2` is (pre-size)size."""

    axis: int
    pre_size: int = 1
    size: int | None = None


def build_mesh(head: Tree, device_ids: Tree | None) -> Mesh:
    """head: rule mesh_head; device_ids: rule mesh_devices, where one was written."""
    (word,) = tokens(head, "IDENT")
    if word == "maximal_mesh":
        return _maximal_mesh(head, device_ids)
    if word != "mesh" or has(head, "ATTR"):
        raise Violation("attribute-value", "", word, "mesh['name'=size, ...]")
    axes = tuple(_axis(a) for a in subtrees(head, "mesh_axis"))
    if len({name for name, _ in axes}) != len(axes):
        raise Violation("attribute-value", "", "a mesh that repeats an axis", "distinct axis names")
    mesh = Mesh(axes)
    if device_ids is None:
        return mesh
    return Mesh(axes, _devices(device_ids, mesh.size))


def _maximal_mesh(head: Tree, device_ids: Tree | None) -> Mesh:
    if not has(head, "ATTR") or key_of(head) != "device_id" or device_ids is not None:
        raise Violation("attribute-value", "", "maximal_mesh", "maximal_mesh[device_id=N]")
    (device,) = ints_of(head)
    return Mesh(device=device)


def _axis(tree: Tree) -> tuple[str, int]:
    (name,) = tokens(tree, "STRING")
    (size,) = ints_of(tree)
    return unquoted(name), size


def _devices(tree: Tree, count: int) -> Iota | Ints | None:
    """None for the plain order 0, 1, ...: it is not printed."""
    if key_of(tree) != "device_ids":
        raise Violation("attribute-value", "", key_of(tree), "device_ids")
    if has(tree, "LSQB"):
        iota = build_iota(tree)
        return None if len(iota.dims) == 1 else iota
    ids = ints_of(subtrees(tree, "int_items")[0])
    ordered = sorted(ids)
    if len(ids) != count or ordered != list(range(count)) or list(ids) == ordered:
        raise Violation("attribute-value", "", "device_ids", f"another order of 0 to {count - 1}")
    return ids


def build_axes(tree: Tree, mesh: Mesh) -> tuple[AxisRef, ...]:
    """The axis references among a node's children."""
    return tuple(_axis_ref(a, mesh) for a in subtrees(tree, "axis_ref"))


def _axis_ref(tree: Tree, mesh: Mesh) -> AxisRef:
    name = unquoted(tokens(tree, "STRING")[0])
    names = [n for n, _ in mesh.axes]
    if name in names:
        axis = names.index(name)
    elif name.isdigit() and int(name) < len(names):
        axis = int(name)
    else:
        raise Violation("attribute-value", "", f"axis '{name}'", "one of " + ", ".join(names))
    if not has(tree, "COLON"):
        return AxisRef(axis)
    pre_size, size = ints_of(tree)
    whole = mesh.axes[axis][1]
    if pre_size < 1 or size < 2 or whole % (pre_size * size) or size >= whole:
        raise Violation(
            "attribute-value", "", f"'{name}':({pre_size}){size}", f"a proper part of {whole}"
        )
    return AxisRef(axis, pre_size, size)


def check_disjoint(axes: tuple[AxisRef, ...], mesh: Mesh) -> None:
    """No axis, and no part of one, is used twice."""
    used: dict[int, list[tuple[int, int]]] = {}
    for ref in axes:
        low, high = _extent(ref, mesh)
        of_axis = used.get(ref.axis, [])
        # One of size 1 has no part that another reference could share: it is there twice itself.
        if (low, high) in of_axis or any(low < h and lo < high for lo, h in of_axis):
            raise Violation(
                "attribute-value", "", f"axis '{mesh.axes[ref.axis][0]}' twice", "once at most"
            )
        used.setdefault(ref.axis, []).append((low, high))


def check_sorted(axes: tuple[AxisRef, ...]) -> None:
    """In the mesh's order, as the axes behind `manual=` and its like must be."""
    if any((b.axis, b.pre_size) < (a.axis, a.pre_size) for a, b in itertools.pairwise(axes)):
        raise Violation("attribute-value", "", "axes out of order", "the mesh's order")


def check_unmergeable(axes: tuple[AxisRef, ...], mesh: Mesh) -> None:
    """Neighbours are not two parts of one axis that one reference could name."""
    for a, b in itertools.pairwise(axes):
        if a.axis == b.axis and _extent(a, mesh)[1] == _extent(b, mesh)[0]:
            raise Violation(
                "attribute-value", "", f"parts of '{mesh.axes[a.axis][0]}'", "one merged part"
            )


def _extent(ref: AxisRef, mesh: Mesh) -> tuple[int, int]:
    if ref.size is None:
        return 1, mesh.axes[ref.axis][1]
    return ref.pre_size, ref.pre_size * ref.size


def mesh_text(mesh: Mesh) -> str:
    """The mesh with its device order where that is not 0, 1, 2, ..."""
    if mesh.device is not None:
        return f"maximal_mesh[device_id={mesh.device}]"
    axes = ",".join(f"'{name}'={size}" for name, size in mesh.axes)
    if mesh.devices is None:
        return f"mesh[{axes}]"
    if isinstance(mesh.devices, Iota):
        return f"mesh[{axes}], device_ids=({mesh.devices})"
    return f"mesh[{axes}], device_ids=({','.join(map(str, mesh.devices))})"


def axis_texts(axes: tuple[AxisRef, ...], mesh: Mesh) -> list[str]:
    """`'x'` for a whole axis, `'y':(1)2` for a part."""
    return [
        f"'{mesh.axes[a.axis][0]}'" + ("" if a.size is None else f":({a.pre_size}){a.size}")
        for a in axes
    ]
