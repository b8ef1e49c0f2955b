"""Shardings, meshes and replica groups as messages, in both directions.

Sharding --sharding_message--> OpSharding --sharding_text--> the text that the parser reads
"""

from __future__ import annotations

from hlo.attributes.iota import Iota
from hlo.attributes.mesh import AxisRef, Mesh
from hlo.attributes.mesh_sharding import MeshSharding
from hlo.attributes.metadata import Metadata, metadata_text
from hlo.attributes.replica_groups import IotaGroups, ListGroups, MeshGroups, ReplicaGroups
from hlo.attributes.sharding import Sharding, TupleSharding
from hlo.attributes.tile_sharding import TileSharding, metadata_items_text
from hlo.errors import HloError
from hlo.formats.message import Message
from hlo.formats.metadata_message import metadata_message, metadata_of_message
from hlo.ir.shape import join_indexed

KINDS = {
    "replicated": "REPLICATED", "maximal": "MAXIMAL", "tiled": "OTHER", "manual": "MANUAL",
    "unknown": "UNKNOWN", "unreduced": "UNREDUCED",
}  # fmt: skip
WORDS = {word: kind for kind, word in KINDS.items()}
AXES = (("replicated", "replicated_axes"), ("unreduced", "unreduced_axes"),
        ("manual", "manual_axes"))  # fmt: skip


# -- writing -----------------------------------------------------------------------------------


def sharding_message(sharding: Sharding) -> Message:
    """The message of a sharding."""
    made = Message("OpSharding")
    if isinstance(sharding, TupleSharding):
        made.set_word("type", "TUPLE")
        made["tuple_shardings"] = [sharding_message(part) for part in sharding.elements]
        return made
    if isinstance(sharding, MeshSharding):
        made["named_sharding"] = _named(sharding)
        return made
    made.set_word("type", KINDS[sharding.kind])
    _put_metadata(made, sharding.metadata)
    if sharding.kind == "maximal":
        made["tile_assignment_devices"] = [sharding.device]
    _put_tile(made, sharding)
    word, number = sharding.shard_group or ("", -1)
    if number >= 0:  # XLA keeps no group of another number
        made["is_shard_group"], made["shard_group_id"] = True, number
        made.set_word("shard_group_type", word.removeprefix("shard_").upper())
    return made


def _put_metadata(made: Message, metadata: tuple[Metadata, ...]) -> None:
    if metadata:
        made["metadata"] = [metadata_message(m) for m in metadata]


def _put_tile(made: Message, sharding: TileSharding) -> None:
    tile = sharding.tile
    if tile is None:
        return
    made["tile_assignment_dimensions"] = list(tile.dims)
    if isinstance(tile.devices, Iota):
        made["iota_reshape_dims"] = list(tile.devices.dims)
        made["iota_transpose_perm"] = list(tile.devices.permutation)
    else:
        made["tile_assignment_devices"] = list(tile.devices)
    if tile.subgroups == ("replicated",):
        made["replicate_on_last_tile_dim"] = True
    elif tile.subgroups:
        numbers = Message("OpSharding")
        kinds = []
        for subgroup in tile.subgroups:
            numbers.set_word("type", KINDS[subgroup])
            kinds.append(numbers.number("type"))
        made["last_tile_dims"] = kinds


def _named(sharding: MeshSharding) -> Message:
    made = Message("NamedShardingProto", mesh=mesh_message(sharding.mesh))
    for dim in sharding.dims:
        made.add("dim_shardings", axes=_axes(dim.axes), is_closed=not dim.open)
    every = tuple(AxisRef(k) for k in range(len(sharding.mesh.axes)))
    for name, field in AXES:
        axes = every if sharding.kind == name != "replicated" else getattr(sharding, name)
        if axes:
            made[field] = _axes(axes)
    _put_metadata(made, sharding.metadata)
    return made


def mesh_message(mesh: Mesh) -> Message:
    """The message of a mesh."""
    made = Message("MeshProto")
    for name, size in mesh.axes:
        made.add("axes", name=name, size=size)
    if mesh.device is not None:
        made["device_ids"] = [mesh.device]
    elif isinstance(mesh.devices, Iota):
        iota = made.put("iota_transform")
        iota["reshape_dims"] = list(mesh.devices.dims)
        iota["transpose_perm"] = list(mesh.devices.permutation)
    elif mesh.devices is not None:
        made["device_ids"] = list(mesh.devices)
    return made


def _axes(axes: tuple[AxisRef, ...]) -> list[Message]:
    made = []
    for axis in axes:
        made.append(Message("AxisRefProto", mesh_axis_index=axis.axis))
        if axis.size is not None:
            part = made[-1].put("sub_axis_info")
            part["pre_size"], part["size"] = axis.pre_size, axis.size
    return made


def put_groups(made: Message, groups: ReplicaGroups) -> None:
    """Set an instruction's replica groups, in the form that they have."""
    if isinstance(groups, ListGroups):
        held = made.put("collective_device_list")
        for group in groups.lists:
            held.add("replica_groups", replica_ids=list(group))
    elif isinstance(groups, IotaGroups):
        held = made.put("iota_collective_device_list")
        held["num_replica_groups"], held["num_devices_per_group"] = groups.count, groups.size
        held["iota_reshape_dims"] = list(groups.iota.dims)
        held["iota_transpose_perm"] = list(groups.iota.permutation)
    else:
        assert isinstance(groups, MeshGroups), "the third form"
        held = made.put("mesh_axes_replica_group_list")
        held["mesh"], held["axes"] = mesh_message(groups.mesh), _axes(groups.axes)


# -- reading -----------------------------------------------------------------------------------


def sharding_text(message: Message) -> str:
    """The text of a sharding; tuples of shardings are flat."""
    if message.word("type") == "TUPLE":
        parts = [_single_text(part) for part in message.children("tuple_shardings")]
        return "{" + join_indexed(parts) + "}"
    return _single_text(message)


def _single_text(message: Message) -> str:
    if "named_sharding" in message:
        return _named_text(message.child("named_sharding"))
    kind = WORDS.get(message.word("type"))
    if kind is None:
        raise HloError("message", "a tuple of shardings in another, expected a flat one")
    devices = message.numbers("tile_assignment_devices")
    texts = [kind]
    if kind == "maximal":
        texts = [f"maximal device={devices[0] if len(devices) == 1 else '?'}"]
    elif kind == "tiled":
        texts = _tile_texts(message, devices)
    if message.flag("is_shard_group"):
        word = message.word("shard_group_type").lower()
        texts.append(f"shard_{word} {message.number('shard_group_id')}")
    metadata = tuple(metadata_of_message(m) for m in message.children("metadata"))
    if metadata:
        texts.append(f"metadata={metadata_items_text(metadata)}")
    return "{" + " ".join(texts) + "}"


def _tile_texts(message: Message, devices: list[int]) -> list[str]:
    dims = _joined(message.numbers("tile_assignment_dimensions"))
    iota = message.numbers("iota_reshape_dims")
    there = f"<={iota_text(iota, message.numbers('iota_transpose_perm'))}" if iota else ""
    texts = [f"devices=[{dims}]{there or _joined(devices)}"]
    if message.flag("replicate_on_last_tile_dim"):
        texts.append("last_tile_dim_replicate")
    kinds = message.numbers("last_tile_dims")
    if kinds:
        words = [WORDS.get(Message("OpSharding", type=kind).word("type"), "") for kind in kinds]
        texts.append("last_tile_dims={" + ", ".join(words) + "}")
    return texts


def iota_text(dims: list[int], permutation: list[int]) -> str:
    """`[4,2]T(1,0)`."""
    text = f"[{_joined(dims)}]"
    return text if len(dims) == 1 else f"{text}T({_joined(permutation)})"


def _joined(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _named_text(message: Message) -> str:
    mesh = message.child("mesh")
    names = [axis.text("name") for axis in mesh.children("axes")]
    texts = [mesh_text(mesh)]
    dims = [
        "{" + ", ".join(_axis_texts(d.children("axes"), names) + _open(d)) + "}"
        for d in message.children("dim_shardings")
    ]
    lists = [(key, _axis_texts(message.children(field), names)) for key, field in AXES]
    if names or dims or not message.child("mesh").numbers("device_ids"):
        whole = not dims and not any(axes for _, axes in lists)
        texts.append("replicated" if whole else f"[{', '.join(dims)}]")
    texts += [f"{key}={{{', '.join(axes)}}}" for key, axes in lists if axes]
    metadata = [metadata_text(metadata_of_message(m)) for m in message.children("metadata")]
    if metadata:
        texts.append("metadata={" + ", ".join(metadata) + "}")
    return "{" + ", ".join(texts) + "}"


def _open(dim: Message) -> list[str]:
    return [] if dim.flag("is_closed") else ["?"]


def mesh_text(mesh: Message) -> str:
    """The text of a mesh; one without axes and with one device is maximal."""
    axes = [f"'{a.text('name')}'={a.number('size')}" for a in mesh.children("axes")]
    devices = mesh.numbers("device_ids")
    if not axes and len(devices) == 1:
        return f"maximal_mesh[device_id={devices[0]}]"
    if any("'" in axis[1:].partition("'=")[0] for axis in axes):
        raise HloError("message", "a mesh with a quotation mark in an axis's name, expected none")
    text = f"mesh[{','.join(axes)}]"
    if "iota_transform" in mesh:
        iota = mesh.child("iota_transform")
        dims, permutation = iota.numbers("reshape_dims"), iota.numbers("transpose_perm")
        return f"{text}, device_ids=({iota_text(dims, permutation)})"
    return f"{text}, device_ids=({_joined(devices)})" if devices else text


def _axis_texts(axes: list[Message], names: list[str]) -> list[str]:
    texts = []
    for axis in axes:
        number = axis.number("mesh_axis_index")
        if not 0 <= number < len(names):
            raise HloError("message", f"axis {number} of a mesh, expected 0 to {len(names) - 1}")
        part = ""
        if "sub_axis_info" in axis:
            info = axis.child("sub_axis_info")
            part = f":({info.number('pre_size')}){info.number('size')}"
        texts.append(f"'{names[number]}'{part}")
    return texts


def groups_text(message: Message) -> str:
    """The text of an instruction's replica groups; empty where it has none."""
    if "iota_collective_device_list" in message:
        held = message.child("iota_collective_device_list")
        counts = f"[{held.number('num_replica_groups')},{held.number('num_devices_per_group')}]"
        dims, order = held.numbers("iota_reshape_dims"), held.numbers("iota_transpose_perm")
        return f"{counts}<={iota_text(dims, order)}"
    if "mesh_axes_replica_group_list" in message:
        held = message.child("mesh_axes_replica_group_list")
        names = [axis.text("name") for axis in held.child("mesh").children("axes")]
        axes = ",".join(_axis_texts(held.children("axes"), names))
        return f"{mesh_text(held.child('mesh'))} {{{axes}}}"
    held = message.child("collective_device_list")
    groups = held.children("replica_groups") or message.children("replica_groups")
    return "{" + ",".join("{" + _joined(g.numbers("replica_ids")) + "}" for g in groups) + "}"
