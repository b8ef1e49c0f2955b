"""Ops that read or write at an array of indices: gather, scatter.

Source: docs/semantics.md 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.errors import Violation
from hlo.ir.shape import UNBOUNDED, ProgramShape, Shape
from hlo.ops.attributes import Attributes, F
from hlo.ops.constraints import (
    check_count,
    check_dimensions,
    check_integral,
    check_rank,
    check_same_dims,
    check_sorted_dimensions,
    operand,
)
from hlo.ops.reducers import reducer_results
from hlo.ops.shape_rules import Ints, braces, check_array, check_arrays, text
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray


class GatherAttributes(Attributes, frozen=True, kw_only=True):
    offset_dims: Annotated[Ints, INTS]
    collapsed_slice_dims: Annotated[Ints, INTS]
    start_index_map: Annotated[Ints, INTS]
    operand_batching_dims: Annotated[Ints, INTS] = ()
    start_indices_batching_dims: Annotated[Ints, INTS] = ()
    index_vector_dim: Annotated[int, INT64]
    slice_sizes: Annotated[Ints, INTS]
    indices_are_sorted: Annotated[bool, BOOL] = False


class Gather(Op):
    """Slices of the operand at starts read from an array of indices, side by side.

    Let S be start_indices' dimensions (with a trailing 1 if index_vector_dim = rank). For a result
    index o: w = o at offset_dims, b = o elsewhere;
        p[start_index_map[k]] = S at b with k inserted at index_vector_dim, other p 0;
        p[d] = clamp(0, p[d], dim(operand, d) - slice_sizes[d]);
        p[operand_batching_dims[k]] = b at start_indices_batching_dims[k];
        result[o] = operand[p + w, expanded by 0 at collapsed and batching dimensions].

    C1: start_indices is integral. C2: 0 <= index_vector_dim <= rank(start_indices).
    C3: offset_dims ascending, distinct, in range of the result.
    C4: start_index_map has S[index_vector_dim] entries, distinct, in range.
    C5: collapsed_slice_dims ascending, distinct, in range. C6: operand_batching_dims likewise, as
    many as start_indices_batching_dims, which are distinct and in range of S.
    C7: slice_sizes has rank(operand) = offset_dims + collapsed_slice_dims + operand_batching_dims
    entries. C8: 0 <= slice_sizes[d] <= dim(operand, d).
    C9: sizes at collapsed and batching dimensions are at most 1.
    C10: batching dimensions are neither collapsed nor mapped, and are as large as the indices'.
    Source: openxla.org/xla/operation_semantics, "Gather"; StableHLO spec "gather".
    """

    opcode = "gather"
    arity = 2
    record = GatherAttributes
    traits = Trait.MOVEMENT | Trait.PICKS
    takes_operand_shapes = True

    @staticmethod
    def infer(x: Shape, indices: Shape, *, attrs: GatherAttributes) -> Shape:
        check_array(x, "operand 0", "C1")
        check_array(indices, "operand 1", "C1")
        check_integral(indices, "operand 1", "C1")
        starts = _index_dims(indices, attrs.index_vector_dim, "C2")
        rank = len(attrs.offset_dims) + len(starts) - 1
        check_sorted_dimensions("offset_dims", attrs.offset_dims, rank, "C3")
        _check_mapped_dims(
            "start_index_map", attrs.start_index_map, starts[attrs.index_vector_dim], x, "C4"
        )
        check_sorted_dimensions("collapsed_slice_dims", attrs.collapsed_slice_dims, x.rank, "C5")
        _check_batching(
            ("operand_batching_dims", attrs.operand_batching_dims),
            ("start_indices_batching_dims", attrs.start_indices_batching_dims),
            x.rank, len(starts), "C6",
        )  # fmt: skip
        _check_slice_sizes(x, attrs)
        window = _window_dims(x.rank, attrs.collapsed_slice_dims, attrs.operand_batching_dims)
        dims, dynamic = [0] * rank, [False] * rank
        for at, d in zip(attrs.offset_dims, window, strict=True):
            dims[at] = attrs.slice_sizes[d]
            dynamic[at] = x.dynamic[d] and attrs.slice_sizes[d] == x.dims[d]
        batch = [d for d in range(len(starts)) if d != attrs.index_vector_dim]
        positions = [at for at in range(rank) if at not in attrs.offset_dims]
        for at, d in zip(positions, batch, strict=True):
            dims[at] = starts[d]
            dynamic[at] = indices.dynamic[d]
        return x.with_dims(dims, dynamic)

    @staticmethod
    def check(x: Shape, indices: Shape, *, attrs: GatherAttributes, shape: Shape) -> None:
        batching, vector = attrs.operand_batching_dims, attrs.index_vector_dim
        _check_disjoint("collapsed_slice_dims", attrs.collapsed_slice_dims, batching, "C10")
        _check_disjoint("start_index_map", attrs.start_index_map, batching, "C10")
        _check_batching_sizes(
            x, _index_dims(indices, vector, "C2"), batching,
            ("start_indices_batching_dims", attrs.start_indices_batching_dims), vector, "C10",
        )  # fmt: skip

    @staticmethod
    def evaluate(
        x: Array, indices: Array, *, attrs: GatherAttributes, operand_shapes: tuple[Shape, ...]
    ) -> Array:
        from hlo.ops.extents import bounded

        dims = operand_shapes[0].dims
        window = _window_dims(len(dims), attrs.collapsed_slice_dims, attrs.operand_batching_dims)
        vectors = _index_vectors(indices, attrs.index_vector_dim)
        batch = vectors.shape[:-1]
        starts = {
            d: _clamped(vectors[..., k], dims[d] - max(attrs.slice_sizes[d], 1))
            for k, d in enumerate(attrs.start_index_map)
        }
        batching = zip(attrs.operand_batching_dims, attrs.start_indices_batching_dims, strict=True)
        for d, place in batching:
            starts[d] = _along(batch, place - (place > attrs.index_vector_dim))
        positions = [
            at for at in range(len(batch) + len(attrs.offset_dims)) if at not in attrs.offset_dims
        ]
        labels = dict(zip(window, attrs.offset_dims, strict=True))
        return _gathered(
            bounded(x, dims, attrs.slice_sizes), starts, attrs.slice_sizes, positions, labels, batch
        )


def _gathered(
    x: Array,
    starts: dict[int, Array],
    sizes: Ints,
    positions: list[int],
    labels: dict[int, int],
    batch: Ints,
) -> Array:
    """x at starts + offsets. positions: result positions of batch dimensions; labels: of window
    ones.

    Window dimensions that are taken whole move as blocks; only the others are indexed.
    """
    whole = [d for d in labels if d not in starts]
    part = [d for d in labels if d in starts]
    indexed = [d for d in range(x.ndim) if d not in whole]
    axes = batch + tuple(sizes[d] for d in part)
    if x.size == 0 or 0 in axes:
        core = np.zeros(axes + tuple(min(x.shape[d], sizes[d]) for d in whole), x.dtype)
    else:
        index = [
            _offset(starts.get(d), part.index(d) if d in part else -1, sizes[d], batch, len(part))
            for d in indexed
        ]
        blocks = tuple(np.s_[: min(x.shape[d], sizes[d])] for d in whole)
        moved = x.transpose(*indexed, *whole)[(np.s_[:],) * len(indexed) + blocks]
        core = np.broadcast_to(moved[tuple(index)], axes + moved.shape[len(indexed) :])
    order = [*positions, *(labels[d] for d in part), *(labels[d] for d in whole)]
    return core.transpose(np.argsort(order))


def _offset(start: Array | None, axis: int, size: int, batch: Ints, parts: int) -> Array:
    """start + 0, 1, .. size-1 along window axis `axis` (-1: no axis), after the batch axes."""
    index = np.zeros((1,) * (len(batch) + parts), np.int64)
    if start is not None:
        index = index + start.reshape(start.shape + (1,) * parts)
    if axis >= 0:
        along = [1] * parts
        along[axis] = size
        index = index + np.arange(size).reshape(along)
    return index


def _index_vectors(indices: Array, index_vector_dim: int) -> Array:
    """The start indices with the index vector as last axis."""
    if index_vector_dim == indices.ndim:
        return indices[..., None]
    return np.moveaxis(indices, index_vector_dim, -1)


def _clamped(starts: Array, largest: int) -> Array:
    """In [0, largest], by the indices' own signedness."""
    if starts.dtype == np.uint64:
        starts = np.minimum(starts, np.uint64(max(largest, 0)))
    return np.clip(starts.astype(np.int64), 0, max(largest, 0))


def _along(batch: Ints, axis: int) -> Array:
    """The batch index's component `axis`, for every batch index."""
    shape = [1] * len(batch)
    shape[axis] = -1
    return np.broadcast_to(np.arange(batch[axis]).reshape(shape), batch)


def _window_dims(rank: int, collapsed: Ints, batching: Ints) -> list[int]:
    return [d for d in range(rank) if d not in collapsed and d not in batching]


def _index_dims(indices: Shape, index_vector_dim: int, label: str) -> Ints:
    if not 0 <= index_vector_dim <= indices.rank:
        expected = f"at least 0 and at most {indices.rank}"
        raise Violation(
            "attribute-value", "index_vector_dim", f"{index_vector_dim}", expected, label
        )
    return indices.dims + ((1,) if index_vector_dim == indices.rank else ())


def _check_mapped_dims(at: str, mapped: Ints, count: int, x: Shape, label: str) -> None:
    if count != UNBOUNDED and len(mapped) != count:
        expected = f"{count} entries, as the index vector has"
        raise Violation("attribute-value", at, braces(mapped), expected, label)
    check_dimensions(at, mapped, x.rank, label)


def _check_batching(
    of_operand: tuple[str, Ints], of_indices: tuple[str, Ints], rank: int, starts: int, label: str
) -> None:
    check_sorted_dimensions(*of_operand, rank, label)
    check_dimensions(*of_indices, starts, label)
    check_count(*of_indices, len(of_operand[1]), label)


def _check_slice_sizes(x: Shape, attrs: GatherAttributes) -> None:
    sizes, offsets = attrs.slice_sizes, attrs.offset_dims
    collapsed, batching = attrs.collapsed_slice_dims, attrs.operand_batching_dims
    check_count("slice_sizes", sizes, x.rank, "C7")
    if x.rank != len(offsets) + len(collapsed) + len(batching):
        found = f"{braces(offsets)} beside {len(collapsed)} collapsed, {len(batching)} batching"
        expected = f"{x.rank} in all, the rank of {text(x)}"
        raise Violation("attribute-value", "offset_dims", found, expected, "C7")
    for d, (size, dim) in enumerate(zip(sizes, x.dims, strict=True)):
        if size < 0 or (dim != UNBOUNDED and size > dim):
            found = f"{braces(sizes)}, {size} in dimension {d}"
            expected = f"at least 0 and at most {dim} ({text(x)})"
            raise Violation("attribute-value", "slice_sizes", found, expected, "C8")
        if d in (*collapsed, *batching) and size > 1:
            found = f"{braces(sizes)}, {size} in the collapsed or batching dimension {d}"
            raise Violation("attribute-value", "slice_sizes", found, "at most 1", "C9")


def _check_disjoint(at: str, dims: Ints, others: Ints, label: str) -> None:
    shared = set(dims) & set(others)
    if shared:
        expected = f"nothing of the batching dimensions {braces(others)}"
        raise Violation("attribute-value", at, braces(dims), expected, label)


def _check_batching_sizes(
    x: Shape,
    starts: Ints,
    of_operand: Ints,
    of_indices: tuple[str, Ints],
    index_vector_dim: int,
    label: str,
) -> None:
    at, dims = of_indices
    if index_vector_dim in dims:
        expected = f"no index_vector_dim ({index_vector_dim})"
        raise Violation("attribute-value", at, braces(dims), expected, label)
    for d, s in zip(of_operand, dims, strict=True):
        if x.dims[d] != starts[s]:
            found = f"{braces(dims)}, of size {starts[s]}"
            expected = f"size {x.dims[d]}, as dimension {d} of {text(x)}"
            raise Violation("attribute-value", at, found, expected, label)


class ScatterAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    update_window_dims: Annotated[Ints, INTS]
    inserted_window_dims: Annotated[Ints, INTS]
    scatter_dims_to_operand_dims: Annotated[Ints, INTS]
    input_batching_dims: Annotated[Ints, INTS] = ()
    scatter_indices_batching_dims: Annotated[Ints, INTS] = ()
    index_vector_dim: Annotated[int, INT64]
    indices_are_sorted: Annotated[bool, BOOL] = False
    unique_indices: Annotated[bool, BOOL] = False
    to_apply: Annotated[F, COMPUTATION]


class Scatter(Op):
    """The operands with updates combined into windows at starts read from an array of indices.

    For every scatter position (the non-window dimensions of updates, row-major): p from the indices
    as in gather, not clamped; a window that does not lie wholly inside is skipped; else for every
    window offset w: result[p + w] = f(result[p + w], update). Applied in this order.

    C1: indices are integral, 0 <= index_vector_dim <= rank. C2: rank(updates) = rank(S) - 1 +
    update_window_dims. C3: update_window_dims ascending, distinct, in range of updates.
    C4: inserted_window_dims ascending, distinct, in range. C5: rank(operand) = update_window_dims +
    inserted_window_dims + input_batching_dims. C6: scatter_dims_to_operand_dims has
    S[index_vector_dim] entries, distinct, in range. C7: input_batching_dims ascending, distinct, in
    range, as many as scatter_indices_batching_dims, which are distinct and in range of S.
    C8: updates' window dimensions are at most the operand's. C9: updates' other dimensions are the
    indices'. C10: f is a reducer of n current values and n updates (R1 to R5 of reduce).
    C11: as gather's C10; all operands have equal dimensions, all updates too; 2n + 1 operands.
    Source: openxla.org/xla/operation_semantics, "Scatter"; StableHLO spec "scatter".
    """

    opcode = "scatter"
    record = ScatterAttributes
    traits = Trait.APPLIES
    family = KernelFamily.SCATTER

    @staticmethod
    def infer(*operands: Shape, attrs: ScatterAttributes[ProgramShape]) -> Shape:
        inputs, indices, updates = _scatter_operands(operands)
        x = inputs[0]
        check_integral(indices, operand(len(inputs)), "C1")
        starts = _index_dims(indices, attrs.index_vector_dim, "C1")
        check_sorted_dimensions("inserted_window_dims", attrs.inserted_window_dims, x.rank, "C4")
        _check_mapped_dims(
            "scatter_dims_to_operand_dims", attrs.scatter_dims_to_operand_dims,
            starts[attrs.index_vector_dim], x, "C6",
        )  # fmt: skip
        _check_batching(
            ("input_batching_dims", attrs.input_batching_dims),
            ("scatter_indices_batching_dims", attrs.scatter_indices_batching_dims),
            x.rank, len(starts), "C7",
        )  # fmt: skip
        inserted, batching = attrs.inserted_window_dims, attrs.input_batching_dims
        window = _window_dims(x.rank, inserted, batching)
        if x.rank != len(attrs.update_window_dims) + len(inserted) + len(batching):
            found, expected = braces(attrs.update_window_dims), f"{len(window)} entries"
            raise Violation("attribute-value", "update_window_dims", found, expected, "C5")
        _check_disjoint("inserted_window_dims", inserted, batching, "C5")
        batch = tuple(n for d, n in enumerate(starts) if d != attrs.index_vector_dim)
        for k, update in enumerate(updates, start=len(inputs) + 1):
            _check_update(update, x, batch, window, attrs.update_window_dims, operand(k))
        results = reducer_results(attrs.to_apply, updates, [s.with_dims(()) for s in inputs])
        shapes = [s.with_dtype(r.dtype) for s, r in zip(inputs, results, strict=True)]
        return Shape.tuple(shapes) if len(shapes) > 1 else shapes[0]

    @staticmethod
    def check(*operands: Shape, attrs: ScatterAttributes[ProgramShape], shape: Shape) -> None:
        inputs, indices, updates = _scatter_operands(operands)
        at, vector = "scatter_dims_to_operand_dims", attrs.index_vector_dim
        _check_disjoint(at, attrs.scatter_dims_to_operand_dims, attrs.input_batching_dims, "C11")
        _check_batching_sizes(
            inputs[0], _index_dims(indices, vector, "C1"), attrs.input_batching_dims,
            ("scatter_indices_batching_dims", attrs.scatter_indices_batching_dims), vector, "C11",
        )  # fmt: skip
        for k, x in enumerate(inputs):
            check_same_dims(x, inputs[0], operand(k), "C11")
            check_same_dims(updates[k], updates[0], operand(len(inputs) + 1 + k), "C11")

    @staticmethod
    def evaluate(*operands: Array, attrs: ScatterAttributes[Callee]) -> object:
        from hlo.ops.accumulation import accumulated_at

        n = len(operands) // 2
        inputs, indices, updates = operands[:n], operands[n], operands[n + 1 :]
        dims = inputs[0].shape
        window = _window_dims(len(dims), attrs.inserted_window_dims, attrs.input_batching_dims)
        vectors = _index_vectors(indices, attrs.index_vector_dim)
        batch = vectors.shape[:-1]
        moved = [_positions_first(u, attrs.update_window_dims) for u in updates]
        sizes = dict(zip(window, moved[0].shape[len(batch) :], strict=True))
        starts = {
            d: _exact(vectors[..., k], dims[d])
            for k, d in enumerate(attrs.scatter_dims_to_operand_dims)
        }
        batching = zip(attrs.input_batching_dims, attrs.scatter_indices_batching_dims, strict=True)
        for d, place in batching:
            starts[d] = _along(batch, place - (place > attrs.index_vector_dim))
        targets, inside = _targets(dims, starts, window, sizes, batch)
        extents = (inside.size, math.prod(sizes.values()))
        chosen = [m.reshape(extents)[inside].reshape(-1) for m in moved]
        results = accumulated_at(attrs.to_apply, inputs, targets, chosen)
        return results if n > 1 else results[0]


def _scatter_operands(
    operands: Sequence[Shape],
) -> tuple[Sequence[Shape], Shape, Sequence[Shape]]:
    if len(operands) % 2 == 0 or len(operands) < 3:
        expected = "an odd number of them, at least 3"
        raise Violation("arity", "operands", f"{len(operands)}", expected, "C11")
    check_arrays(operands, "C1")
    n = len(operands) // 2
    return operands[:n], operands[n], operands[n + 1 :]


def _check_update(
    update: Shape, x: Shape, batch: Ints, window: list[int], window_dims: Ints, at: str
) -> None:
    rank = len(batch) + len(window_dims)
    check_rank(update, rank, at, "C2")
    check_sorted_dimensions("update_window_dims", window_dims, rank, "C3")
    for place, d in zip(window_dims, window, strict=True):
        if update.dims[place] > x.dims[d]:  # `?` is below any size, in XLA as here
            expected = (
                f"at most {x.dims[d]} in window dimension {place} (dimension {d} of {text(x)})"
            )
            raise Violation("shape-mismatch", at, text(update), expected, "C8")
    others = [n for d, n in enumerate(update.dims) if d not in window_dims]
    for have, want in zip(others, batch, strict=True):
        if have != want and UNBOUNDED not in (have, want):
            expected = f"{braces(batch)} in its scatter dimensions, as the indices"
            raise Violation("shape-mismatch", at, text(update), expected, "C9")


def _positions_first(update: Array, window_dims: Ints) -> Array:
    others = [d for d in range(update.ndim) if d not in window_dims]
    return update.transpose(*others, *window_dims)


def _exact(starts: Array, beyond: int) -> Array:
    """As int64; an unsigned index that is too large for it becomes `beyond`."""
    if starts.dtype == np.uint64:
        starts = np.minimum(starts, np.uint64(beyond))
    return starts.astype(np.int64)


def _targets(
    dims: Ints, starts: dict[int, Array], window: list[int], sizes: dict[int, int], batch: Ints
) -> tuple[Array, Array]:
    """Linear indices of all elements of the windows that lie inside; which windows do."""
    inside = np.ones(batch, bool)
    first = np.zeros(batch, np.int64)
    strides = np.cumprod([1, *dims[:0:-1]], dtype=np.int64)[::-1][: len(dims)]
    for d, dim in enumerate(dims):
        start = starts.get(d, np.zeros(batch, np.int64))
        inside &= (start >= 0) & (start <= dim - sizes.get(d, 1))
        first += np.clip(start, 0, dim) * strides[d]
    offsets = np.zeros((), np.int64)
    for d in window:
        offsets = offsets[..., None] + np.arange(sizes[d]) * strides[d]
    inside = inside.reshape(-1)
    return (first.reshape(-1)[inside][:, None] + offsets.reshape(1, -1)).reshape(-1), inside
