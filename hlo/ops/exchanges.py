"""Collectives whose members exchange parts of their own choosing: permute, ragged all-to-all.

Source: docs/control.md 2.7 and 2.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from hlo.attributes.ints import INTS, INTS_LIST
from hlo.errors import Violation
from hlo.ir.shape import Shape
from hlo.ops.collectives import ChannelAttributes, GroupAttributes
from hlo.ops.constraints import check_integral, check_operand_count, operand
from hlo.ops.device_groups import CROSS_PARTITION, check_member, group_mode, own_group
from hlo.ops.shape_rules import Ints, check_arrays, dims_agree, same_type, text
from hlo.ops.table import Op, Trait

if TYPE_CHECKING:
    from hlo.ops.context import Context

Array = np.ndarray
IntsList = tuple[Ints, ...]


class PermuteAttributes(ChannelAttributes, frozen=True, kw_only=True):
    """Of collective-permute and its start."""

    source_target_pairs: Annotated[IntsList, INTS_LIST]
    slice_sizes: Annotated[IntsList, INTS_LIST] = ()


class CollectivePermute(Op):
    """result on target t = operand on source s for each pair {s,t}; zeros on other devices.

    Ids are replicas without channel_id, partitions of the own replica with it. In place (four
    operands: input, output, input and output start indices; slice_sizes): the output with the
    source's slices of its input written over it.
    C1: at least one operand. C2: pairs of ids, each source and each target at most once.
    C3: with slice_sizes, four operands.
    """

    opcode = "collective-permute"
    record = PermuteAttributes
    inferable = False
    traits = Trait.COLLECTIVE
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: PermuteAttributes) -> Shape:
        check_operand_count(xs, 1, "C1")
        _check_pairs(attrs.source_target_pairs, max(len(attrs.slice_sizes), 1))
        if attrs.slice_sizes:
            _check_in_place(len(xs))
            return xs[1]
        check_arrays(xs, "C1")
        return xs[0] if len(xs) == 1 else Shape.tuple(xs)

    @staticmethod
    def evaluate(*xs: object, attrs: PermuteAttributes, context: Context) -> object:
        mode = group_mode(attrs.channel_id, None)
        group = own_group(mode, (), context)
        assert group is not None, "the group of all has every device"
        me = context.partition if mode == CROSS_PARTITION else context.replica
        every = context.exchange(group, xs)
        count = len(group)
        if any(not 0 <= i < count for pair in attrs.source_target_pairs for i in pair):
            found = f"{attrs.source_target_pairs}"
            raise Violation("arguments", "source_target_pairs", found, f"ids below {count}")
        if attrs.slice_sizes:
            return _permuted_in_place(every, me, attrs.source_target_pairs, attrs.slice_sizes)
        source = next((s for s, t in attrs.source_target_pairs if t == me), None)
        results = tuple(np.zeros_like(x) for x in xs) if source is None else every[source]
        return results[0] if len(xs) == 1 else results  # type: ignore[index]  # operands


class CollectivePermuteStart(Op):
    """(operand, result, context...): the start of an asynchronous collective-permute.

    C1-C3: as collective-permute. C4: the written shape is a tuple of two or more.
    """

    opcode = "collective-permute-start"
    record = PermuteAttributes
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT
    done = "collective-permute-done"
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: PermuteAttributes, shape: Shape) -> Shape:
        if len(shape.elements) < 2:
            expected = "(operand, result, context...)"
            raise Violation("shape-mismatch", "result", text(shape), expected, "C4")
        result = CollectivePermute.infer(*xs, attrs=attrs)
        given = xs[0] if attrs.slice_sizes else result
        return Shape.tuple((given, result, *shape.elements[2:]))

    @staticmethod
    def evaluate(*xs: object, attrs: PermuteAttributes, shape: Shape, context: Context) -> object:
        result = CollectivePermute.evaluate(*xs, attrs=attrs, context=context)
        given = xs[0] if len(xs) == 1 or attrs.slice_sizes else xs
        states = (np.zeros(s.dims, s.dtype.numpy) for s in shape.elements[2:])
        return given, result, *states


class CollectivePermuteDone(Op):
    """The second element of a collective-permute-start's result.

    C1: the operand is a tuple of two or more.
    """

    opcode = "collective-permute-done"
    arity = 1
    inferable = False
    traits = Trait.COLLECTIVE | Trait.SIDE_EFFECT

    @staticmethod
    def infer(x: Shape) -> Shape:
        if len(x.elements) < 2:
            expected = "(operand, result, context...)"
            raise Violation("shape-mismatch", "operand 0", text(x), expected, "C1")
        return x.elements[1]

    @staticmethod
    def evaluate(x: tuple[object, ...]) -> object:
        return x[1]


_RAGGED_OPERANDS = 6


class RaggedAllToAllAttributes(GroupAttributes, frozen=True):
    dimensions: Annotated[Ints | None, INTS, "never"] = None


class RaggedAllToAll(Op):
    """Slices of unequal sizes along dimension 0 from every member to every member.

    Operands: input, output, input_offsets, send_sizes, output_offsets, recv_sizes. For ranks i, j:
    y_j[output_offsets_i[j] : + send_sizes_i[j]] = input_i[input_offsets_i[j] : + send_sizes_i[j]],
    over a copy of output_j; recv_sizes_j[i] = send_sizes_i[j].
    C1: six arrays. C2: offsets and sizes are integral, of one shape, of rank 1 or 2. C3: input and
    output have one element type and equal sizes but in dimension 0.
    """

    opcode = "ragged-all-to-all"
    arity = None
    record = RaggedAllToAllAttributes
    inferable = False
    traits = Trait.COLLECTIVE
    takes_context = True

    @staticmethod
    def infer(*xs: Shape, attrs: RaggedAllToAllAttributes) -> Shape:
        if len(xs) != _RAGGED_OPERANDS:
            raise Violation("arity", "operands", f"{len(xs)}", f"{_RAGGED_OPERANDS}", "C1")
        check_arrays(xs, "C1")
        data, output = xs[:2]
        for k, x in enumerate(xs[2:], start=2):
            check_integral(x, operand(k), "C2")
            if x.rank not in (1, 2) or x.dims != xs[2].dims:
                expected = "rank 1 or 2, the same for all offsets and sizes"
                raise Violation("shape-mismatch", operand(k), text(x), expected, "C2")
        if (
            not data.rank
            or not output.rank
            or not dims_agree(data.dims[1:], output.dims[1:])
            or not same_type(data.dtype, output.dtype)
        ):
            expected = f"the sizes of {text(data)} but for dimension 0"
            raise Violation("shape-mismatch", "operand 1", text(output), expected, "C3")
        return output

    @staticmethod
    def evaluate(*xs: Array, attrs: RaggedAllToAllAttributes, context: Context) -> Array:
        mode = group_mode(attrs.channel_id, None)
        group = check_member(own_group(mode, attrs.replica_groups.groups(), context), context)
        rank = group.index(context.replica * context.partitions + context.partition)
        every = context.exchange(group, xs)
        result = np.array(xs[1])
        taken = np.zeros(len(result), bool)
        expected = _per_member(xs[5], len(group))
        for i, sent in enumerate(every):
            assert isinstance(sent, tuple), "what a member deposits: its six operands"
            data, _, offsets, sizes, targets, _ = sent
            parts = zip(
                *(_per_member(a, len(group))[rank] for a in (offsets, sizes, targets)),
                expected[i],
                strict=True,
            )
            for start, size, target, wanted in parts:
                _check_ragged(data, result, taken, (start, size, target, wanted))
                taken[target : target + size] = True
                result[target : target + size] = data[start : start + size]
        return result


def _check_pairs(pairs: IntsList, most: int) -> None:
    for pair in pairs:
        if len(pair) != 2 or min(pair) < 0:
            found = "{" + ",".join(map(str, pair)) + "}"
            raise Violation(
                "attribute-value", "source_target_pairs", found, "{source,target}", "C2"
            )
    for side, name in enumerate(("source", "target")):
        ids = [pair[side] for pair in pairs]
        twice = next((i for i in ids if ids.count(i) > most), None) if len(ids) > most else None
        if twice is not None:
            found = f"such that {name} {twice} appears {ids.count(twice)} times"
            raise Violation(
                "attribute-value", "source_target_pairs", found, f"at most {most}", "C2"
            )


def _check_in_place(operands: int) -> None:
    if operands != 4:
        raise Violation("arity", "operands", f"{operands}", "4 beside slice_sizes", "C3")


def _permuted_in_place(
    every: tuple[object, ...], me: int, pairs: IntsList, slice_sizes: IntsList
) -> object:
    """The k-th pair of a target writes its k-th slice; the k-th of a source reads its k-th."""
    mine = every[me]
    assert isinstance(mine, tuple), "what a member deposits: its four operands"
    _, output, _, indices = mine
    single = not isinstance(output, tuple)
    results = [np.array(b) for b in ((output,) if single else output)]
    written, read = 0, dict.fromkeys(range(len(every)), 0)
    for source, target in pairs:
        if target == me:
            sent = every[source]
            assert isinstance(sent, tuple), "what a member deposits: its four operands"
            data, _, starts, _ = sent
            k = written
            sizes = slice_sizes[min(k, len(slice_sizes) - 1)]
            buffer = data[min(k, len(data) - 1)] if isinstance(data, tuple) else data
            begin = _slice_at(starts, read[source], buffer.shape, sizes)
            place = min(k, len(results) - 1)
            results[place][_slice_at(indices, k, results[place].shape, sizes)] = buffer[begin]
            written += 1
        read[source] += 1
    return results[0] if single else tuple(results)


def _slice_at(indices: tuple[object, ...], k: int, dims: Ints, sizes: Ints) -> tuple[slice, ...]:
    if indices and isinstance(indices[0], tuple):
        indices = indices[min(k, len(indices) - 1)]  # type: ignore[assignment]  # nested tuples
    starts = (max(0, min(int(i), n - m)) for i, n, m in zip(indices, dims, sizes, strict=True))  # type: ignore[call-overload]  # scalars
    return tuple(np.s_[s : s + m] for s, m in zip(starts, sizes, strict=True))


def _per_member(numbers: Array, members: int) -> list[list[int]]:
    """Offsets or sizes per rank: one each, or several in an array of rank 2."""
    if len(numbers) % members:
        found = f"{len(numbers)} entries"
        raise Violation("shape-mismatch", "operand 2", found, f"a multiple of {members}")
    return [list(map(int, part.reshape(-1))) for part in np.split(numbers, members)]


def _check_ragged(data: Array, result: Array, taken: Array, part: tuple[int, ...]) -> None:
    start, size, target, wanted = part
    if size != wanted:
        raise Violation("arguments", "operand 5", f"{wanted} elements", f"{size}, as are sent")
    if start < 0 or size < 0 or start + size > len(data):
        found, expected = f"{size} elements from {start}", f"inside of {len(data)}"
        raise Violation("arguments", "operand 2", found, expected)
    if target < 0 or target + size > len(result):
        found, expected = f"{size} elements at {target}", f"inside of {len(result)}"
        raise Violation("arguments", "operand 4", found, expected)
    if taken[target : target + size].any():
        found = f"{size} elements at {target}, over others"
        raise Violation("arguments", "operand 4", found, "parts that do not overlap")
