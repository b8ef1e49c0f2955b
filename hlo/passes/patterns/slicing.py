"""Slice, pad and concatenate."""

from __future__ import annotations

from hlo.attributes.slices import SliceDim, slice_dims
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import has_one_user, ints, is_plain, same_array
from hlo.passes.rewriting import rewrite


@rewrite("slice")
def slice_everything(root: Instruction) -> Instruction | None:
    """slice(x) => x  where it takes all of x"""
    (x,) = root.operands
    return x if same_array(x.shape, root.shape) else None


@rewrite("slice", operand="slice")
def merge_slices(root: Instruction) -> Instruction | None:
    """slice(slice(x, s, u), t, v) => slice(x, s + t*u, u*v)"""
    (inner,) = root.operands
    (x,) = inner.operands
    merged = tuple(
        SliceDim(
            min(a.start + b.start * a.stride, a.limit),  # beyond it where nothing is taken
            min(a.start + b.limit * a.stride, a.limit),
            a.stride * b.stride,
        )
        for a, b in zip(slice_dims(inner.attributes), slice_dims(root.attributes), strict=True)
    )
    return make(root, "slice", x, shape=root.shape, slice=merged)


@rewrite("slice", operand="concatenate")
def slice_of_concatenate(root: Instruction) -> Instruction | None:
    """slice(concatenate(.., xi, ..)) => slice(xi)  where it lies within xi"""
    (joined,) = root.operands
    (dimension,) = ints(joined, "dimensions")
    wanted = slice_dims(root.attributes)[dimension]
    begin = 0
    for x in joined.operands:
        end = begin + x.shape.dims[dimension]
        if begin <= wanted.start and wanted.limit <= end and wanted.start < wanted.limit:
            moved = list(slice_dims(root.attributes))
            moved[dimension] = SliceDim(wanted.start - begin, wanted.limit - begin, wanted.stride)
            return make(root, "slice", x, shape=root.shape, slice=tuple(moved))
        begin = end
    return None


@rewrite("slice", operand="reverse")
def slice_of_reverse(root: Instruction) -> Instruction | None:
    """slice(reverse(x, d)) => reverse(slice'(x), d)  where slices alone read the reverse"""
    (inner,) = root.operands
    (x,) = inner.operands
    if any(user.opcode != "slice" for user in inner.users):
        return None
    dimensions = ints(inner, "dimensions")
    mirrored = tuple(
        _mirrored(s, n, taken) if d in dimensions else s
        for d, (n, taken, s) in enumerate(
            zip(x.shape.dims, root.shape.dims, slice_dims(root.attributes), strict=True)
        )
    )
    part = make(root, "slice", x, slice=mirrored, shape=root.shape)
    return make(root, "reverse", part, shape=root.shape, dimensions=dimensions)


def _mirrored(s: SliceDim, size: int, taken: int) -> SliceDim:
    """The same elements counted from the other end; taken: how many there are."""
    if not taken:
        return SliceDim(0, 0)
    last = s.start + (taken - 1) * s.stride
    return SliceDim(size - 1 - last, size - s.start, s.stride)


@rewrite("concatenate")
def concatenate_one(root: Instruction) -> Instruction | None:
    """concatenate(x) => x"""
    if len(root.operands) != 1:
        return None
    (x,) = root.operands
    return x if same_array(x.shape, root.shape) else None


@rewrite("concatenate")
def concatenate_empty(root: Instruction) -> Instruction | None:
    """concatenate(.., x, ..) => concatenate(.., ..)  where x has no elements"""
    kept = [x for x in root.operands if x.shape.size]
    if len(kept) == len(root.operands) or not kept or root.shape.is_dynamic:
        return None
    return make(root, "concatenate", *kept, shape=root.shape, dimensions=ints(root, "dimensions"))


@rewrite("concatenate", operand="concatenate")
def merge_concatenates(root: Instruction) -> Instruction | None:
    """concatenate(a, concatenate(b, c)) => concatenate(a, b, c)  along one dimension, used once"""
    dimensions = ints(root, "dimensions")
    flat: list[Instruction] = []
    for x in root.operands:
        nested = x.opcode == "concatenate" and has_one_user(x) and x["dimensions"] == dimensions
        flat += x.operands if nested else (x,)
    if len(flat) == len(root.operands):
        return None
    return make(root, "concatenate", *flat, shape=root.shape, dimensions=dimensions)


@rewrite("pad")
def pad_nothing(root: Instruction) -> Instruction | None:
    """pad(x, v, 0_0x..) => x"""
    x = root.operands[0]
    padding = root["padding"]
    assert isinstance(padding, tuple), "padding has one entry per dimension"
    if any(p.low or p.high or p.interior for p in padding):
        return None
    return x if same_array(x.shape, root.shape) else None


@rewrite("pad")
def pad_of_nothing(root: Instruction) -> Instruction | None:
    """pad(x, v) => broadcast(v)  where x has no elements"""
    x, v = root.operands
    if x.shape.size or not is_plain(root.shape):
        return None
    return make(root, "broadcast", v, shape=root.shape, dimensions=())
