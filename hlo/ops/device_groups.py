"""Device groups: which devices take part in a collective together, in rank order.

    channel_id  use_global_device_ids   mode                           ids in groups
    no          false                   cross_replica                  replicas
    yes         absent                  cross_partition                partitions
    yes         false                   cross_replica_and_partition    replicas
    yes         true                    flattened_id                   devices

Device g = replica * partitions + partition. `absent` is the second column of ops that do not have
the attribute (all-to-all, permute, broadcast). Source: docs/control.md 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo.errors import Violation
from hlo.ops.shape_rules import Ints

if TYPE_CHECKING:
    from hlo.ops.context import Context

CROSS_REPLICA = "cross_replica"
CROSS_PARTITION = "cross_partition"
BOTH = "cross_replica_and_partition"
FLATTENED = "flattened_id"


def group_mode(channel_id: int | None, use_global_device_ids: bool | None) -> str:  # noqa: FBT001  # the attribute's value
    """The mode that the attributes select; None: the op has no use_global_device_ids."""
    if channel_id is None:
        return CROSS_REPLICA
    if use_global_device_ids is None:
        return CROSS_PARTITION
    return FLATTENED if use_global_device_ids else BOTH


def id_count(mode: str, replicas: int, partitions: int) -> int:
    """How many ids the groups of a mode speak of."""
    if mode == FLATTENED:
        return replicas * partitions
    return partitions if mode == CROSS_PARTITION else replicas


def own_group(mode: str, groups: tuple[Ints, ...], context: Context) -> Ints | None:
    """The devices of this device's group in rank order; None if no group has its id."""
    count = id_count(mode, context.replicas, context.partitions)
    if not groups:
        groups = (tuple(range(count)),)
    me = _own_id(mode, context)
    mine = next((g for g in groups if me in g), None)
    if mine is None:
        return None
    if not all(0 <= i < count for i in mine):
        found = f"such that ids go up to {max(mine)}"
        raise Violation("arguments", "replica_groups", found, f"below {count} in this run")
    return tuple(g for i in mine for g in _devices(mode, i, context))


def check_member(group: Ints | None, context: Context) -> Ints:
    """The group; an error where this device is in none."""
    if group is None:
        found = f"without replica {context.replica}, partition {context.partition}"
        raise Violation("attribute-value", "replica_groups", found, "every device in a group")
    return group


def _own_id(mode: str, context: Context) -> int:
    if mode == FLATTENED:
        return context.replica * context.partitions + context.partition
    return context.partition if mode == CROSS_PARTITION else context.replica


def _devices(mode: str, member: int, context: Context) -> list[int]:
    partitions = context.partitions
    if mode == FLATTENED:
        return [member]
    if mode == CROSS_PARTITION:
        return [context.replica * partitions + member]
    if mode == CROSS_REPLICA:
        return [member * partitions + context.partition]
    return [member * partitions + p for p in range(partitions)]
