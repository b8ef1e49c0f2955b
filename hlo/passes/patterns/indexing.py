"""Slices and updates whose start or extent is known, or of arrays that lie otherwise."""

from __future__ import annotations

from math import prod

import numpy as np

from hlo.analysis.turned_rows import lies_in_order
from hlo.attributes.slices import SliceDim, slice_dims
from hlo.indexing.queries import written_dims
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.permutation import inverse
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make, make_constant
from hlo.ops.table import Trait, opcodes
from hlo.passes.patterns.matching import (
    ints,
    is_constant_like,
    is_plain,
    literal_of,
    same_array,
    splat_literal,
)
from hlo.passes.rewriting import rewrite

_COMBINING = opcodes(Trait.ASSOCIATIVE)
_MOST_SEARCHED = 64  # Instructions behind an update that are looked at.


@rewrite("dynamic-slice")
def dynamic_slice_everything(root: Instruction) -> Instruction | None:
    """dynamic-slice(x, i) => x  where the slice is as large as x"""
    x = root.operands[0]
    return x if same_array(x.shape, root.shape) else None


@rewrite("dynamic-slice")
def dynamic_slice_at_constants(root: Instruction) -> Instruction | None:
    """dynamic-slice(x, c) => slice(x, clamp(0, c, n - size))  for constant indices"""
    x, *indices = root.operands
    starts = [splat_literal(i) if i.shape.is_scalar else None for i in indices]
    known = [int(s) for s in starts if s is not None]
    if len(known) != x.shape.rank or not is_plain(root.shape):
        return None
    sizes = ints(root, "dynamic_slice_sizes")
    limits = zip(known, sizes, x.shape.dims, strict=True)
    begins = [max(0, min(s, n - size)) for s, size, n in limits]
    taken = tuple(SliceDim(b, b + size) for b, size in zip(begins, sizes, strict=True))
    return make(root, "slice", x, shape=root.shape, slice=taken)


@rewrite("slice", operand="dynamic-update-slice")
def slice_of_update(root: Instruction) -> Instruction | None:
    """slice(dynamic-update-slice(x, u, c)) => slice'(u)  where it lies within the update;
    => slice(x)  where it lies beside it; for constant c

    Not where most of the array is updated and others than such slices read it all the same: x and u
    would be kept beside it; nor where only the update needs x, and may work in its place.
    """
    (updated,) = root.operands
    x, u, *indices = updated.operands
    begins = _constant_starts(indices, x.shape.dims, u.shape.dims)
    if begins is None or not is_plain(root.shape) or not is_plain(updated.shape):
        return None
    is_within = _is_within(root, begins, u.shape.dims)
    if is_within is None:
        return None
    is_kept = 2 * u.shape.size >= x.shape.size or (not is_within and _is_handed_over(updated))
    if is_kept and not _is_sliced(updated, begins, u.shape.dims):
        return None
    if not is_within:
        return make(root, "slice", x, shape=root.shape, slice=root["slice"])
    taken = zip(_taken(root), begins, strict=True)
    moved = tuple(SliceDim(d.start - b, d.limit - b, d.stride) for d, b in taken)
    return make(root, "slice", u, shape=root.shape, slice=moved)


def _is_handed_over(updated: Instruction) -> bool:
    """Whether an array in memory is read by its update, and by what that is made of, alone: then
    the update may work on it.
    """
    x, u, *_ = updated.operands
    if is_constant_like(x) or x.is_root:
        return False
    others = {user for user in x.users if user is not updated}
    waiting, seen = [u], {u, x}
    while others and waiting and len(seen) < _MOST_SEARCHED:
        top = waiting.pop()
        others.discard(top)
        fresh = [o for o in top.operands if o not in seen]
        seen.update(fresh)
        waiting += fresh
    return not others


def _taken(slice_: Instruction) -> tuple[SliceDim, ...]:
    taken = slice_["slice"]
    assert isinstance(taken, tuple), "SLICE is a tuple"
    return taken


def _is_within(slice_: Instruction, begins: Ints, sizes: Ints) -> bool | None:
    """Whether a slice lies within a box, False where it lies beside it, None for a bit of both."""
    places = list(zip(_taken(slice_), begins, sizes, strict=True))
    if all(b <= d.start and d.limit <= b + n for d, b, n in places):
        return True
    return False if any(d.limit <= b or b + n <= d.start for d, b, n in places) else None


def _is_sliced(updated: Instruction, begins: Ints, sizes: Ints) -> bool:
    """Whether nothing but slices within or beside the update reads what is updated."""
    return not updated.is_root and all(
        user.opcode == "slice" and _is_within(user, begins, sizes) is not None
        for user in updated.users
    )


def _constant_starts(indices: list[Instruction], dims: Ints, sizes: Ints) -> Ints | None:
    """Where an update begins, clamped, if its indices are constants."""
    starts = [splat_literal(i) if i.shape.is_scalar else None for i in indices]
    known = [int(s) for s in starts if s is not None]
    if len(known) != len(dims):
        return None
    return tuple(max(0, min(s, n - m)) for s, n, m in zip(known, dims, sizes, strict=True))


@rewrite("slice", "dynamic-slice", operand="transpose")
def slice_of_transpose(root: Instruction) -> Instruction | None:
    """slice(transpose(x, p), s) => reshape(slice(x, s'))  where slices alone read the transpose,
    and what is taken lies in x in the same order: one layer's matrix of a stack
    """
    turned, *starts = root.operands
    (x,) = turned.operands
    if any(u.opcode not in ("slice", "dynamic-slice") for u in turned.users):
        return None
    if any(turned in u.operands[1:] for u in turned.users):
        return None
    if turned.is_root or not (is_plain(x.shape) and is_plain(root.shape)):
        return None
    if not lies_in_order(turned, root.shape.dims):
        return None
    at = inverse(ints(turned, "dimensions"))
    sizes = tuple(root.shape.dims[d] for d in at)
    if root.opcode == "slice":
        own = slice_dims(root.attributes)
        part = make(root, "slice", x, slice=tuple(own[d] for d in at))
    else:
        part = make(root, "dynamic-slice", x, *(starts[d] for d in at), dynamic_slice_sizes=sizes)
    return make(root, "reshape", part, shape=root.shape)


@rewrite("dynamic-slice", operand="dynamic-update-slice")
def dynamic_slice_of_update(root: Instruction) -> Instruction | None:
    """dynamic-slice(dynamic-update-slice(x, u, i), i) => u  where it is as large as u"""
    updated, *indices = root.operands
    if updated.opcode != "dynamic-update-slice" or list(updated.operands[2:]) != indices:
        return None
    u = updated.operands[1]
    return u if same_array(u.shape, root.shape) else None


@rewrite("get-dimension-size")
def static_dimension_size(root: Instruction) -> Instruction | None:
    """get-dimension-size(x, d) => n  where dimension d always has size n"""
    x = root.operands[0].shape
    (d,) = ints(root, "dimensions")
    return (
        None
        if x.dynamic[d]
        else make_constant(root, Literal.of(np.array(x.dims[d], np.int32), root.shape))
    )


@rewrite("dynamic-update-slice")
def dynamic_update_everything(root: Instruction) -> Instruction | None:
    """dynamic-update-slice(x, u, i) => u  where u is as large as x"""
    u = root.operands[1]
    return u if same_array(u.shape, root.shape) else None


@rewrite("dynamic-update-slice")
def dynamic_update_nothing(root: Instruction) -> Instruction | None:
    """dynamic-update-slice(x, u, i) => x  where u has no elements"""
    x, u = root.operands[:2]
    return x if not u.shape.size and same_array(x.shape, root.shape) else None


@rewrite("gather")
def gather_one_slice_at_constants(root: Instruction) -> Instruction | None:
    """gather(x, c) => slice(x, clamp(0, c, n - size))  for one slice at constant starts"""
    x, indices = root.operands
    mapped = ints(root, "start_index_map")
    if root.get("operand_batching_dims") or not is_plain(root.shape) or not is_plain(x.shape):
        return None
    starts = _one_start(indices, mapped, x.shape.rank)
    sizes = ints(root, "slice_sizes")
    if starts is None or prod(sizes) != root.shape.size:
        return None
    taken = []
    for start, size, n in zip(starts, sizes, x.shape.dims, strict=True):
        begin = max(0, min(start, n - size))
        taken.append(SliceDim(begin, begin + size))
    cut = make(root, "slice", x, shape=x.shape.with_dims(sizes), slice=tuple(taken))
    return make(root, "reshape", cut, shape=root.shape)


@rewrite("scatter")
def scatter_one_window_at_constants(root: Instruction) -> Instruction | None:
    """scatter(x, c, u) => dynamic-update-slice(x, u, c)  or  (x, f(slice(x, c), u), c)

    One window at constant starts, wholly inside, that replaces what is there or is one op with it.
    """
    if len(root.operands) != 3 or not is_plain(root.shape) or root.get("input_batching_dims"):
        return None
    x, indices, u = root.operands
    combine = root["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    starts = _one_start(indices, ints(root, "scatter_dims_to_operand_dims"), x.shape.rank)
    if not replaces(combine) and not combines(combine, x, u):
        return None
    if starts is None or not is_plain(u.shape):
        return None
    window = tuple(1 if d is None else u.shape.dims[d] for d in written_dims(root))
    if prod(window) != u.shape.size or not all(
        0 <= s <= n - size for s, size, n in zip(starts, window, x.shape.dims, strict=True)
    ):
        return None
    if u.shape.dims != window:
        u = make(root, "reshape", u, shape=Shape.array(u.shape.dtype, window))
    if not replaces(combine):
        u = _combined(root, combine.root.opcode, starts, u)
    scalar = Shape.array(indices.shape.dtype)
    starts_at = [make_constant(root, Literal.of(np.asarray(s), scalar)) for s in starts]
    return make(root, "dynamic-update-slice", x, u, *starts_at, shape=root.shape)


def replaces(combine: Computation) -> bool:
    """Whether what is there is replaced by the update."""
    return combine.root is combine.parameters[1]


def combines(combine: Computation, x: Instruction, u: Instruction) -> bool:
    """Whether it is one op of what is there and the update, all of one type."""
    root = combine.root
    is_op = root.opcode in _COMBINING and list(root.operands) == list(combine.parameters)
    return is_op and len({x.shape.dtype, u.shape.dtype, root.shape.dtype}) == 1


def _combined(scatter: Instruction, opcode: str, starts: list[int], u: Instruction) -> Instruction:
    """What is in the window, combined with its update."""
    taken = tuple(SliceDim(s, s + n) for s, n in zip(starts, u.shape.dims, strict=True))
    return make(scatter, opcode, make(scatter, "slice", scatter.operands[0], slice=taken), u)


def _one_start(indices: Instruction, mapped: Ints, rank: int) -> list[int] | None:
    """Where a scatter's or a gather's one window begins in each dimension, if that is known."""
    if indices.shape.size != len(mapped):
        return None
    splat, literal = splat_literal(indices), literal_of(indices)
    if literal is not None:
        values = [int(v) for v in literal.array.reshape(-1)]
    elif splat is not None:
        values = [int(splat)] * len(mapped)
    else:
        return None
    starts = [0] * rank
    for dimension, value in zip(mapped, values, strict=True):
        starts[dimension] = value
    return starts


@rewrite("scatter")
def scatter_one_per_row(root: Instruction) -> Instruction | None:
    """scatter(splat, i, u) => select(iota = i, f(splat, u), splat)

    One element into each row of a new array: loops write it whole, and their users may hold them.
    """
    if len(root.operands) != 3 or not is_plain(root.shape) or not root.get("input_batching_dims"):
        return None
    x, indices, u = root.operands
    batch, along = ints(root, "input_batching_dims"), _dimension_of_rows(root)
    kind = indices.shape.dtype
    if along is None or splat_literal(x) is None or kind.int_range[1] < x.shape.dims[along] - 1:
        return None
    combine = root["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    if not replaces(combine) and not combines(combine, x, u):
        return None
    rows = tuple(x.shape.dims[d] for d in batch)
    whole = Shape.array(kind, x.shape.dims)
    starts_at = make(root, "reshape", indices, shape=Shape.array(kind, rows))
    starts_at = make(root, "broadcast", starts_at, shape=whole, dimensions=batch)
    new = make(root, "reshape", u, shape=Shape.array(u.shape.dtype, rows))
    new = make(root, "broadcast", new, shape=root.shape, dimensions=batch)
    if not replaces(combine):
        new = make(root, combine.root.opcode, x, new, shape=root.shape)
    numbers = make(root, "iota", shape=whole, iota_dimension=along)
    is_there = make(root, "compare", numbers, starts_at, direction="EQ")
    return make(root, "select", is_there, new, x, shape=root.shape)


def _dimension_of_rows(scatter: Instruction) -> int | None:
    """The dimension that the indices count, where each row of it has exactly one index."""
    x, indices, u = scatter.operands
    batch = ints(scatter, "input_batching_dims")
    mapped = ints(scatter, "scatter_dims_to_operand_dims")
    rows = tuple(x.shape.dims[d] for d in batch)
    sources = ints(scatter, "scatter_indices_batching_dims")
    is_in_order = list(batch) == sorted(batch) and list(sources) == sorted(sources)
    if len(mapped) != 1 or mapped[0] in batch or len(batch) != x.shape.rank - 1 or not batch:
        return None
    if not is_in_order or indices.shape.size != prod(rows) or u.shape.size != prod(rows):
        return None
    return mapped[0]
