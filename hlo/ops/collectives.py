"""Ops in which several devices take part. Source: shared/OP_SEMANTICS_CONTROL.md section 2."""

from __future__ import annotations

from hlo.attributes.enums import COLLECTIVE_MODE
from hlo.attributes.ints import INTS, INTS_LIST
from hlo.attributes.names import COMPUTATION
from hlo.attributes.replica_groups import REPLICA_GROUPS
from hlo.attributes.scalars import BOOL, INT64
from hlo.ops.table import Attr, Op, Trait

CHANNEL = {"channel_id": Attr(INT64, None, "given")}
GROUPS = {
    **CHANNEL,
    "replica_groups": Attr(REPLICA_GROUPS, None, "always"),
}
LAYOUT = {"constrain_layout": Attr(BOOL, False)}
GLOBAL_IDS = {"use_global_device_ids": Attr(BOOL, False)}
MODE = {"mode": Attr(COLLECTIVE_MODE, None, "never")}
DIMENSIONS = {"dimensions": Attr(INTS)}
TO_APPLY = {"to_apply": Attr(COMPUTATION)}


class ReplicaId(Op):
    """The number of the executing replica, u32[]."""

    opcode = "replica-id"
    arity = 0


class PartitionId(Op):
    """The number of the executing partition, u32[]."""

    opcode = "partition-id"
    arity = 0


class AllGather(Op):
    """The group's operands concatenated along one dimension in rank order."""

    opcode = "all-gather"
    attrs = {**GROUPS, **LAYOUT, **DIMENSIONS, **GLOBAL_IDS}
    inferable = False
    traits = Trait.COLLECTIVE


class AllGatherStart(Op):
    """(operands, all-gather's result): the start of an asynchronous all-gather."""

    opcode = "all-gather-start"
    attrs = {**GROUPS, **LAYOUT, **DIMENSIONS, **GLOBAL_IDS}
    inferable = False
    traits = Trait.COLLECTIVE


class AllGatherDone(Op):
    """The second element of an all-gather-start's result."""

    opcode = "all-gather-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE


class AllReduce(Op):
    """The elementwise reduction of each operand over the group, in rank order, equal on all devices."""

    opcode = "all-reduce"
    attrs = {**GROUPS, **LAYOUT, **GLOBAL_IDS, **MODE, **TO_APPLY}
    inferable = False
    traits = Trait.COLLECTIVE


class AllReduceStart(Op):
    """The start of an asynchronous all-reduce, of all-reduce's own shape."""

    opcode = "all-reduce-start"
    attrs = {**GROUPS, **LAYOUT, **GLOBAL_IDS, **MODE, **TO_APPLY}
    inferable = False
    traits = Trait.COLLECTIVE


class AllReduceDone(Op):
    """The value of an all-reduce-start."""

    opcode = "all-reduce-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE


class ReduceScatter(Op):
    """An all-reduce of which rank k keeps block k of as many equal blocks as the group has members."""

    opcode = "reduce-scatter"
    attrs = {**GROUPS, **LAYOUT, **GLOBAL_IDS, **MODE, **DIMENSIONS, **TO_APPLY}
    inferable = False
    traits = Trait.COLLECTIVE


class AllToAll(Op):
    """Block k of every member goes to rank k, which lines them up in rank order."""

    opcode = "all-to-all"
    attrs = {**GROUPS, **LAYOUT, "dimensions": Attr(INTS, None, "given")}
    inferable = False
    traits = Trait.COLLECTIVE


class RaggedAllToAll(Op):
    """Slices of unequal sizes along dimension 0 from every member to every member."""

    opcode = "ragged-all-to-all"
    attrs = {**GROUPS, **LAYOUT, "dimensions": Attr(INTS, None, "never")}
    inferable = False
    traits = Trait.COLLECTIVE


class CollectiveBroadcast(Op):
    """Everyone in a group gets the value of its first member; zeros outside groups."""

    opcode = "collective-broadcast"
    attrs = {**GROUPS, "has_dynamic_root": Attr(BOOL, False)}
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT


class CollectivePermute(Op):
    """result on target t = operand on source s for each pair (s, t); zeros on other devices."""

    opcode = "collective-permute"
    attrs = {**CHANNEL, "source_target_pairs": Attr(INTS_LIST), "slice_sizes": Attr(INTS_LIST, ())}
    inferable = False
    traits = Trait.COLLECTIVE


class CollectivePermuteStart(Op):
    """(operand, result, context...): the start of an asynchronous collective-permute."""

    opcode = "collective-permute-start"
    attrs = {**CHANNEL, "source_target_pairs": Attr(INTS_LIST), "slice_sizes": Attr(INTS_LIST, ())}
    inferable = False
    traits = Trait.COLLECTIVE


class CollectivePermuteDone(Op):
    """The second element of a collective-permute-start's result."""

    opcode = "collective-permute-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE
