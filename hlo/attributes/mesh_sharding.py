"""Shardings over a named mesh: `{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2, ?}], replicated={'x'}}`."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from msgspec import Struct

from hlo.attributes.mesh import (
    AxisRef,
    Mesh,
    axis_texts,
    build_axes,
    build_mesh,
    check_disjoint,
    check_sorted,
    check_unmergeable,
    mesh_text,
)
from hlo.attributes.metadata import Metadata, build_metadata, metadata_text
from hlo.attributes.tree import Tree, has, is_empty, key_of, subtrees, tokens, unknown_field
from hlo.errors import Violation

_REDUCTIONS = ("max", "min")
_AXES = ("replicated", "unreduced", "manual")


class MeshDim(Struct, frozen=True):
    """The axes that cut one dimension; open: more may be added (`?`)."""

    axes: tuple[AxisRef, ...] = ()
    open: bool = False


class MeshSharding(Struct, frozen=True):
    """A sharding by the axes of a mesh of devices.

    kind: "replicated", "manual", "unreduced", "maximal" or "tiled" (by `dims`).
    """

    mesh: Mesh
    kind: str
    dims: tuple[MeshDim, ...] = ()
    replicated: tuple[AxisRef, ...] = ()
    unreduced: tuple[AxisRef, ...] = ()
    manual: tuple[AxisRef, ...] = ()
    metadata: tuple[Metadata, ...] = ()
    reduction: str = ""  # of the unreduced axes: "" is a sum; newer XLA also writes max


def build_mesh_sharding(tree: Tree) -> MeshSharding:
    """From rule mesh_sharding, checked: no axis is used twice."""
    devices = subtrees(tree, "mesh_devices")
    mesh = build_mesh(subtrees(tree, "mesh_head")[0], devices[0] if devices else None)
    rests = subtrees(tree, "mesh_rest")
    if (mesh.device is not None) == bool(rests):
        raise Violation(
            "attribute-value", "", mesh_text(mesh), "mesh[...], [...] or maximal_mesh[...] alone"
        )
    return _rest(rests[0], mesh) if rests else MeshSharding(mesh, "maximal")


def _rest(rest: Tree, mesh: Mesh) -> MeshSharding:
    kind = next((w.lower() for w in ("REPLICATED", "MANUAL", "UNREDUCED") if has(rest, w)), "tiled")
    dims: tuple[MeshDim, ...] = ()
    for part in subtrees(rest, "mesh_dims"):
        dims = tuple(_dim(d, mesh) for d in subtrees(part, "mesh_dim"))
    axes: dict[str, tuple[AxisRef, ...]] = {}
    metadata: tuple[Metadata, ...] = ()
    reduction = ""
    for field in subtrees(rest, "mesh_field"):
        key = key_of(field)
        if key == "metadata" and subtrees(field, "metadata_items"):
            items = subtrees(field, "metadata_items")[0]
            metadata += tuple(build_metadata(t) for t in subtrees(items, "kind_metadata"))
        elif kind == "tiled" and key in _AXES and (subtrees(field, "mesh_axes") or is_empty(field)):
            more = (a for t in subtrees(field, "mesh_axes") for a in build_axes(t, mesh))
            axes[key] = (*axes.get(key, ()), *more)
            reduction = _reduction(key, field) or reduction
        else:
            raise unknown_field(key, (*_AXES, "metadata"))
    sharding = MeshSharding(mesh, kind, dims, **axes, metadata=metadata, reduction=reduction)
    _check(sharding)
    return _whole(sharding)


def _whole(s: MeshSharding) -> MeshSharding:
    """Without dimensions, all axes manual or all unreduced: `{mesh[...], manual}` is the same."""
    every = tuple(AxisRef(axis) for axis in range(len(s.mesh.axes)))
    return _over_all(s, lambda axes: axes == every)


def _shown(s: MeshSharding) -> MeshSharding:
    """So it is printed over all devices, too: axes of size 1 hold none apart, whoever names them.
    Messages keep which axes are named.
    """
    return _over_all(s, lambda axes: prod(_size(a, s.mesh) for a in axes) == s.mesh.size)


def _over_all(s: MeshSharding, is_all: Callable[[tuple[AxisRef, ...]], bool]) -> MeshSharding:
    if s.kind == "tiled" and not s.dims and not s.reduction:
        for kind, axes in (("unreduced", s.unreduced), ("manual", s.manual)):
            if axes and is_all(axes):
                return MeshSharding(s.mesh, kind, metadata=s.metadata)
    return s


def _size(ref: AxisRef, mesh: Mesh) -> int:
    _, whole = mesh.axes[ref.axis]
    return whole if ref.size is None else ref.size


def _reduction(key: str, field: Tree) -> str:
    """`unreduced=max{...}`: how the devices' values belong together."""
    words = tokens(field, "IDENT")
    if words and (key != "unreduced" or words[0] not in _REDUCTIONS):
        raise Violation(
            "attribute-value", "", f"{key}={words[0]}{{...}}", f"unreduced={_REDUCTIONS[0]}{{...}}"
        )
    return words[0] if words else ""


def _dim(tree: Tree, mesh: Mesh) -> MeshDim:
    return MeshDim(build_axes(tree, mesh), has(tree, "QUESTION"))


def _check(s: MeshSharding) -> None:
    if s.kind in ("manual", "unreduced") and not s.mesh.axes:  # XLA's process ends here
        raise Violation("attribute-value", "", f"{s.kind} over mesh[]", "a mesh with axes")
    lists = [*(d.axes for d in s.dims), s.replicated, s.unreduced, s.manual]
    check_disjoint(tuple(a for axes in lists for a in axes), s.mesh)
    for axes in lists:
        check_unmergeable(axes, s.mesh)
    for axes in lists[len(s.dims) :]:
        check_sorted(axes)


def mesh_sharding_text(s: MeshSharding, *, metadata: bool = True) -> str:
    """metadata: whether it is shown."""
    s = _shown(s)
    texts = [mesh_text(s.mesh)]
    others = s.replicated + s.unreduced + s.manual
    if s.kind == "tiled" and (s.dims or others):
        texts.append("[" + ", ".join(_dim_text(d, s.mesh) for d in s.dims) + "]")
    elif s.kind != "maximal":
        texts.append("replicated" if s.kind == "tiled" else s.kind)
    for key, axes in (
        ("replicated", s.replicated),
        ("unreduced", s.unreduced),
        ("manual", s.manual),
    ):
        if axes:
            word = s.reduction if key == "unreduced" else ""
            texts.append(f"{key}={word}{{{', '.join(axis_texts(axes, s.mesh))}}}")
    if metadata and s.metadata:
        texts.append("metadata={" + ", ".join(metadata_text(m) for m in s.metadata) + "}")
    return "{" + ", ".join(texts) + "}"


def _dim_text(dim: MeshDim, mesh: Mesh) -> str:
    return "{" + ", ".join(axis_texts(dim.axes, mesh) + (["?"] if dim.open else [])) + "}"
