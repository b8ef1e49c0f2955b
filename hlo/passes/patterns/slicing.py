"""Slice, pad and concatenate; slices of what is sorted."""

from __future__ import annotations

from hlo.attributes.slices import SliceDim, slice_dims
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
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


@rewrite("slice", operand="get-tuple-element")
def slice_of_sort(root: Instruction) -> Instruction | None:
    """slice(sort(x, iota))  =>  slice(topk(x))  where slices of the first half of each row at most
    are all that is read, and x alone is compared, by a total order; equal ones of a stable sort
    stay in order, as topk's do, of others any order will do
    """
    (part,) = root.operands
    (sort,) = part.operands
    if sort.opcode != "sort" or len(sort.operands) != 2:
        return None
    x, places = sort.operands
    (along,) = ints(sort, "dimensions")
    if along != x.shape.rank - 1 or not is_plain(x.shape) or not _is_place(places, along):
        return None
    largest = _largest_first(sort)
    k = _most_read(sort, along)
    if largest is None or k is None or 2 * k > x.shape.dims[-1]:
        return None
    values = x.shape.with_dims((*x.shape.dims[:-1], k))
    elements = (values, values.with_dtype(dt.S32))
    best = make(sort, "topk", x, shape=Shape.tuple(elements), k=k, largest=largest)
    number = part["index"]
    assert isinstance(number, int)
    first = make(part, "get-tuple-element", best, index=number, shape=elements[number])
    return make(root, "slice", first, shape=root.shape, slice=root["slice"])


def _is_place(places: Instruction, along: int) -> bool:
    """Whether each element is its place in its row, as topk gives it."""
    is_iota = places.opcode == "iota" and places["iota_dimension"] == along
    return is_iota and places.shape.dtype is dt.S32 and is_plain(places.shape)


def _largest_first(sort: Instruction) -> bool | None:
    """Whether a sort's first operand descends; None where it is not what is compared alone, or
    by no total order."""
    comparator = sort["to_apply"]
    assert isinstance(comparator, Computation)
    compare = comparator.root
    if compare.opcode != "compare" or compare.get("direction") not in ("LT", "GT"):
        return None
    is_total = not compare.operands[0].shape.dtype.is_float or compare.get("type") == "TOTALORDER"
    if sort.get("is_stable") and not is_total:
        return None  # 0 and -0 stay in order
    order = compare.operands
    if order not in (comparator.parameters[:2], comparator.parameters[1::-1]):
        return None
    return (compare["direction"] == "GT") == (order == comparator.parameters[:2])


def _most_read(sort: Instruction, along: int) -> int | None:
    """How many elements of each row are read, where slices are all that reads a sort."""
    limits = []
    for part in sort.users:
        if part.opcode != "get-tuple-element" or part.is_root:
            return None
        for reader in part.users:
            if reader.opcode != "slice":
                return None
            limits.append(slice_dims(reader.attributes)[along].limit)
    return max(limits, default=0) or None
