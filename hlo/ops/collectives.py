"""Ops in which the devices of a group take part together.

Rank order is the order inside the written group. `-start` does the work, `-done` hands it on.
What depends on the numbers of replicas and partitions is checked in hlo/verifier/collectives.py.
Source: docs/control.md 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.enums import COLLECTIVE_MODE
from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.replica_groups import REPLICA_GROUPS, ListGroups, ReplicaGroups
from hlo.attributes.scalars import BOOL, INT64
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.shape import ProgramShape, Shape, compatible
from hlo.ops.applying import applied
from hlo.ops.attributes import Attributes, F
from hlo.ops.axis_reductions import combined, operations
from hlo.ops.collective_shapes import (
    bare_shape,
    check_reduction,
    gathered_shape,
    multiple,
    parts,
)
from hlo.ops.constraints import check_count, check_dimension, check_operand_count, operand
from hlo.ops.device_groups import check_member, group_mode, own_group
from hlo.ops.numerics.representation import dtype_of, rounded, widen, wrapped
from hlo.ops.shape_rules import Ints, check_arrays, text
from hlo.ops.table import Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee
    from hlo.ops.context import Context

Array = np.ndarray


class ChannelAttributes(Attributes, frozen=True):
    """Of all collectives."""

    channel_id: Annotated[int | None, INT64, "given"] = None


class GroupAttributes(ChannelAttributes, frozen=True):
    """Of those whose members are written as groups."""

    replica_groups: Annotated[ReplicaGroups, REPLICA_GROUPS, "always"] = ListGroups()


class LaidOutAttributes(GroupAttributes, frozen=True):
    """Of those that may fix the layout of their operands."""

    constrain_layout: Annotated[bool, BOOL] = False


class AllGatherAttributes(LaidOutAttributes, frozen=True, kw_only=True):
    """Of all-gather and its start."""

    dimensions: Annotated[Ints, INTS]
    use_global_device_ids: Annotated[bool, BOOL] = False


class AllGather(Op):
    """The group's operands concatenated along one dimension in rank order; n operands, n results.

    C1: at least one operand, all arrays. C2: one dimension, of operands and results.
    C3: a result's size along it is a multiple of the operand's, the same for all; others are equal.
    """

    opcode = "all-gather"
    record = AllGatherAttributes
    inferable = False
    traits = Trait.COLLECTIVE
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: AllGatherAttributes, shape: Shape) -> Shape:
        return gathered_shape(xs, attrs.dimensions, shape)

    @staticmethod
    def evaluate(*xs: Array, attrs: AllGatherAttributes, shape: Shape, context: Context) -> object:
        mode = group_mode(attrs.channel_id, attrs.use_global_device_ids)
        group = check_member(own_group(mode, attrs.replica_groups.groups(), context), context)
        every = context.exchange(group, xs)
        gathered = [np.concatenate(column, attrs.dimensions[0]) for column in _columns(every)]
        _check_group_fits(gathered, shape, len(group))
        return _bare(gathered)


class AllGatherStart(Op):
    """(operands, all-gather's result): the start of an asynchronous all-gather.

    C1-C3: as all-gather. C4: the written shape is a pair.
    """

    opcode = "all-gather-start"
    record = AllGatherAttributes
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT
    done = "all-gather-done"
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: AllGatherAttributes, shape: Shape) -> Shape:
        if len(shape.elements) != 2:
            raise Violation("shape-mismatch", "result", text(shape), "(operands, results)", "C4")
        return Shape.tuple(
            (bare_shape(xs), gathered_shape(xs, attrs.dimensions, shape.elements[1]))
        )

    @staticmethod
    def evaluate(*xs: Array, attrs: AllGatherAttributes, shape: Shape, context: Context) -> object:
        gathered = AllGather.evaluate(*xs, attrs=attrs, shape=shape.elements[1], context=context)
        return _bare(xs), gathered


class AllGatherDone(Op):
    """The second element of an all-gather-start's result.

    C1: the operand is a pair.
    """

    opcode = "all-gather-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT

    @staticmethod
    def infer(x: Shape) -> Shape:
        return _second(x, exactly=True)

    @staticmethod
    def evaluate(x: tuple[object, ...]) -> object:
        return x[1]


class ReducingAttributes(LaidOutAttributes, frozen=True):
    """Of collectives that reduce."""

    use_global_device_ids: Annotated[bool, BOOL] = False
    mode: Annotated[str | None, COLLECTIVE_MODE, "never"] = None


class AllReduceAttributes(ReducingAttributes, Generic[F], frozen=True, kw_only=True):
    """Of all-reduce and its start."""

    to_apply: Annotated[F, COMPUTATION]


class AllReduce(Op):
    """Each operand reduced over the group by f, in rank order, with equal bits on all devices.

    C1: at least one operand, all arrays. C2: f takes two scalars of the operands' element type and
    returns one. Sums begin with 0; narrow floats are reduced in f32 and rounded once.
    """

    opcode = "all-reduce"
    record = AllReduceAttributes
    inferable = False
    traits = Trait.COLLECTIVE | Trait.APPLIES
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: AllReduceAttributes[ProgramShape]) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C1")
        return bare_shape(xs)

    @staticmethod
    def check(*xs: Shape, attrs: AllReduceAttributes[ProgramShape], shape: Shape) -> None:
        check_reduction(xs, attrs.to_apply)

    @staticmethod
    def evaluate(*xs: Array, attrs: AllReduceAttributes[Callee], context: Context) -> object:
        if context.replicas * context.partitions == 1:
            return _bare(xs)  # whatever the groups: XLA takes out all-reduces of one device
        grouping = group_mode(attrs.channel_id, attrs.use_global_device_ids)
        group = check_member(own_group(grouping, attrs.replica_groups.groups(), context), context)
        every = context.exchange(group, xs)
        return _bare([_reduced(attrs.to_apply, column) for column in _columns(every)])


class AllReduceStart(Op):
    """The start of an asynchronous all-reduce, of all-reduce's own shape.

    C1, C2: as all-reduce.
    """

    opcode = "all-reduce-start"
    record = AllReduceAttributes
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT | Trait.APPLIES
    done = "all-reduce-done"
    takes_context = True
    infer = AllReduce.infer
    check = AllReduce.check
    evaluate = AllReduce.evaluate


class AllReduceDone(Op):
    """The value of an all-reduce-start."""

    opcode = "all-reduce-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT

    @staticmethod
    def infer(x: Shape) -> Shape:
        return x

    @staticmethod
    def evaluate(x: object) -> object:
        return x


class ReduceScatterAttributes(ReducingAttributes, Generic[F], frozen=True, kw_only=True):
    dimensions: Annotated[Ints, INTS]
    to_apply: Annotated[F, COMPUTATION]


class ReduceScatter(Op):
    """An all-reduce of which rank k keeps block k of as many equal blocks as the group has members.

    C1: at least one operand, all arrays. C2: as all-reduce. C3: one dimension, in range. C4: the
    operand's size along it is a multiple of the result's, which is not 0; other sizes are equal.
    """

    opcode = "reduce-scatter"
    record = ReduceScatterAttributes
    inferable = False
    traits = Trait.COLLECTIVE
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: ReduceScatterAttributes[ProgramShape], shape: Shape) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C1")
        check_count("dimensions", attrs.dimensions, 1, "C3")
        results = parts(shape, len(xs))
        scattered = [
            multiple(r, x, attrs.dimensions[0], ("result", operand(k)), "C3", "C4")
            for k, (x, r) in enumerate(zip(xs, results, strict=True))
        ]
        shards = {whole.dims[attrs.dimensions[0]] // max(part.dims[attrs.dimensions[0]], 1)
                  for whole, part in zip(xs, scattered, strict=True)}  # fmt: skip
        if len(shards) > 1:
            raise Violation("shape-mismatch", "result", text(shape), "one number of blocks", "C4")
        return bare_shape(scattered)

    @staticmethod
    def check(*xs: Shape, attrs: ReduceScatterAttributes[ProgramShape], shape: Shape) -> None:
        check_reduction(xs, attrs.to_apply)

    @staticmethod
    def evaluate(
        *xs: Array, attrs: ReduceScatterAttributes[Callee], shape: Shape, context: Context
    ) -> object:
        grouping = group_mode(attrs.channel_id, attrs.use_global_device_ids)
        group = check_member(own_group(grouping, attrs.replica_groups.groups(), context), context)
        every = context.exchange(group, xs)
        rank = group.index(context.replica * context.partitions + context.partition)
        columns = [_reduced(attrs.to_apply, column) for column in _columns(every)]
        blocks = [_block(c, attrs.dimensions[0], len(group), rank) for c in columns]
        _check_group_fits(blocks, shape, len(group))
        return _bare(blocks)


class AllToAllAttributes(LaidOutAttributes, frozen=True):
    dimensions: Annotated[Ints | None, INTS, "given"] = None


class AllToAll(Op):
    """Block k of every member goes to rank k, which lines the blocks up in rank order.

    With `dimensions`: one operand, cut into equal blocks along it and put together along it.
    Without: as many operands as members; y[j] on rank i is operand i of rank j.
    C1: at least one operand, all arrays. C2: with dimensions, one of them, in range, one operand.
    C3: without, operands of equal shapes. C4: no bounded dynamic dimension with dimensions.
    """

    opcode = "all-to-all"
    record = AllToAllAttributes
    inferable = False
    traits = Trait.COLLECTIVE
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: AllToAllAttributes) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C1")
        if attrs.dimensions is None:
            for k, x in enumerate(xs):
                if not compatible(x, xs[0]):
                    raise Violation("shape-mismatch", operand(k), text(x), text(xs[0]), "C3")
            return Shape.tuple(xs)
        check_count("dimensions", attrs.dimensions, 1, "C2")
        check_dimension("dimensions", attrs.dimensions[0], xs[0].rank, "C2")
        if len(xs) != 1:
            raise Violation("arity", "operands", f"{len(xs)}", "1 beside dimensions", "C2")
        if xs[0].is_dynamic:
            raise Violation("shape-mismatch", "operand 0", text(xs[0]), "static dimensions", "C4")
        return xs[0]

    @staticmethod
    def evaluate(*xs: Array, attrs: AllToAllAttributes, context: Context) -> object:
        mode = group_mode(attrs.channel_id, None)
        group = check_member(own_group(mode, attrs.replica_groups.groups(), context), context)
        rank = group.index(context.replica * context.partitions + context.partition)
        every = context.exchange(group, xs)
        if attrs.dimensions is None:
            if len(xs) != len(group):
                raise Violation("arity", "operands", f"{len(xs)}", f"{len(group)}, one per member")
            return tuple(values[rank] for values in every)  # type: ignore[index]  # operands
        (along,) = attrs.dimensions
        blocks = [_block(values[0], along, len(group), rank) for values in every]  # type: ignore[index]  # operands
        return np.concatenate(blocks, along)


class CollectiveBroadcastAttributes(GroupAttributes, frozen=True):
    has_dynamic_root: Annotated[bool, BOOL] = False


class CollectiveBroadcast(Op):
    """Everyone in a group gets the value of its first member; zeros outside of groups.

    has_dynamic_root: a last operand s32[n] gives the root's rank for each of the n before it.
    C1: at least one operand, all arrays. C2: a dynamic root's operand is s32[n].
    """

    opcode = "collective-broadcast"
    record = CollectiveBroadcastAttributes
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: CollectiveBroadcastAttributes) -> Shape:
        check_operand_count(xs, 2 if attrs.has_dynamic_root else 1, "C1")
        check_arrays(xs, "C1")
        if not attrs.has_dynamic_root:
            return bare_shape(xs)
        n = len(xs) - 1
        if xs[n].dtype is not dt.S32 or xs[n].dims != (n,):
            raise Violation("shape-mismatch", operand(n), text(xs[n]), f"s32[{n}]", "C2")
        return bare_shape(xs[:n])

    @staticmethod
    def evaluate(*xs: Array, attrs: CollectiveBroadcastAttributes, context: Context) -> object:
        sent = xs[:-1] if attrs.has_dynamic_root else xs
        roots = xs[-1].tolist() if attrs.has_dynamic_root else [0] * len(sent)
        group = own_group(
            group_mode(attrs.channel_id, None), attrs.replica_groups.groups(), context
        )
        if group is None:
            return _bare([np.zeros_like(x) for x in sent])
        every = context.exchange(group, sent)
        for root in roots:
            if not 0 <= root < len(group):
                found, expected = f"a root of rank {root}", f"below {len(group)}"
                raise Violation("arguments", operand(len(sent)), found, expected, "C2")
        return _bare([every[root][k] for k, root in enumerate(roots)])


def _check_group_fits(values: Sequence[Array], shape: Shape, members: int) -> None:
    """The written shape is for a group of this size."""
    for value, part in zip(values, parts(shape, len(values)), strict=True):
        if value.shape != part.dims and not part.is_dynamic:
            expected = f"a number that gives {text(part)}"
            raise Violation("arguments", "replica_groups", f"a group of {members}", expected)


def _second(x: Shape, *, exactly: bool) -> Shape:
    if len(x.elements) < 2 or (exactly and len(x.elements) != 2):
        raise Violation("shape-mismatch", "operand 0", text(x), "(operands, results)", "C1")
    return x.elements[1]


def _bare(values: Sequence[object]) -> object:
    return values[0] if len(values) == 1 else tuple(values)


def _columns(every: Sequence[object]) -> list[list[Array]]:
    """Per operand the values of all members, from per member the values of all operands."""
    return [list(column) for column in zip(*every, strict=True)]


def _reduced(f: Callee, values: Sequence[Array]) -> Array:
    if len(values) == 1:
        return values[0]  # bit by bit, as XLA, which takes such collectives out
    simple = operations(f.computation, 1)
    if simple is None:
        total = values[0]
        for value in values[1:]:
            (total,) = applied(f, (total, value))
        return total
    dtype = dtype_of(values[0])
    total = widen(values[0])
    if simple[0] == "add":  # -0 + -0 is +0, as in a sum that begins with 0
        total = combined("add", np.zeros((), total.dtype), total)
    for value in values[1:]:
        total = combined(simple[0], total, widen(value))
    if dtype.is_float:
        return rounded(total, dtype)
    return wrapped(total, dtype) if dtype.is_integral else total


def _block(x: Array, along: int, count: int, rank: int) -> Array:
    if x.shape[along] % count:
        found = f"of size {x.shape[along]} in dimension {along}"
        raise Violation("shape-mismatch", "operand 0", found, f"a multiple of {count}")
    return np.split(x, count, along)[rank]
