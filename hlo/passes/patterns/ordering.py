"""Sorts of which only the first or the last elements are read."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.sort_orders import Order, recognised
from hlo.attributes.slices import SliceDim, slice_dims
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.permutation import inverse
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant, transposed
from hlo.passes.patterns.matching import ints, is_plain, literal_of, same_array, splat
from hlo.passes.rewriting import rewrite

_MOST_KEYED = 32  # Ops of a key's expression: it is written out for whole arrays.


@rewrite("sort")
def sort_of_one(root: Instruction) -> Instruction | None:
    """sort(x, d) => x  where dimension d has at most one element"""
    (x, *others) = root.operands
    (dimension,) = ints(root, "dimensions")
    if others or x.shape.dims[dimension] > 1 or not same_array(x.shape, root.shape):
        return None
    return x


@rewrite("slice", operand="sort")
def slice_of_sort(root: Instruction) -> Instruction | None:
    """slice(sort(x))  =>  slice(topk(x))  where slices of the first or of the last elements of each
    row, at most half of them, are all that is read
    """
    (sort,) = root.operands
    return _of_best(root, sort, 0)


@rewrite("slice", operand="get-tuple-element")
def slice_of_sort_of_several(root: Instruction) -> Instruction | None:
    """slice(sort(x, i, y))  =>  slice(topk(x)), and y gathered by its places, under the same
    condition; i, an iota along the rows, are the places themselves

    The sort has to compare one key of one operand, any expression of it, which is computed for all
    elements first. topk's order is total, and leaves equal keys in order: as a stable sort does,
    where the sort's order is total too; of others any order will do. The last elements, taken
    backwards, are the first in the opposite order of the rows reversed, so that of equal keys the
    last element comes first. Along another dimension than the last, rows are transposed before and
    the best ones after.
    """
    (part,) = root.operands
    (sort,) = part.operands
    number = part["index"]
    assert isinstance(number, int), "an element's number"
    return _of_best(root, sort, number) if sort.opcode == "sort" else None


class _Best(Struct, frozen=True):
    """The first k of each row of a sort, or the last ones."""

    sort: Instruction
    order: Order
    along: int
    k: int
    is_last: bool

    @property
    def count(self) -> int:
        return self.sort.operands[0].shape.dims[self.along]


def _of_best(root: Instruction, sort: Instruction, number: int) -> Instruction | None:
    best = _best_of(sort, root)
    if best is None:
        return None
    found = _element(best, number)
    taken = list(slice_dims(root.attributes))
    if best.is_last:
        begin, of = best.count - best.k, taken[best.along]
        taken[best.along] = SliceDim(of.start - begin, of.limit - begin, of.stride)
    return make(root, "slice", found, shape=root.shape, slice=tuple(taken))


def _best_of(sort: Instruction, root: Instruction) -> _Best | None:
    """Which elements of a sort are read, for one of the slices; None where others are, too."""
    comparator = sort["to_apply"]
    assert isinstance(comparator, Computation), "a sort has a comparator"
    orders = recognised(comparator)
    is_static = all(is_plain(x.shape) for x in (root, *sort.operands))
    if len(orders) != 1 or not is_static or not root.shape.size:
        return None
    (order,) = orders
    if sort.get("is_stable") and not order.total:
        return None  # 0 and -0 stay in order
    (along,) = ints(sort, "dimensions")
    count = sort.operands[0].shape.dims[along]
    first, last = _most_read(sort, along, count)
    if not 0 < 2 * (first + last) <= count or _keyed_ops(order) is None:
        return None
    is_last = slice_dims(root.attributes)[along].limit > first
    return _Best(sort, order, along, last if is_last else first, is_last)


def _most_read(sort: Instruction, along: int, count: int) -> tuple[int, int]:
    """How many of the first and of the last elements of each row slices read; all where anything
    else reads them."""
    parts = [sort] if sort.shape.is_array else sort.users
    first = last = 0
    for part in parts:
        is_read_whole = part.is_root or (part is not sort and part.opcode != "get-tuple-element")
        if is_read_whole or any(reader.opcode != "slice" for reader in part.users):
            return count, count
        for reader in part.users:
            if not reader.shape.size:
                continue
            of = slice_dims(reader.attributes)[along]
            if 2 * of.limit <= count:
                first = max(first, of.limit)
            else:
                last = max(last, count - of.start)
    return first, last


def _keyed_ops(order: Order) -> list[Instruction] | None:
    """The ops of a key's expression in order, none where the element itself is the key; None where
    it cannot be written for arrays."""
    if order.root is None:
        return []
    found: dict[Instruction, None] = {}
    waiting = [order.root]
    while waiting:
        top = waiting[-1]
        missing = [o for o in top.operands if o not in found and o is not order.parameter]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        found[top] = None
        is_known = top.opcode == "constant" and literal_of(top) is not None
        if len(found) > _MOST_KEYED or top.shape.dims or not (is_known or is_elementwise(top)):
            return None
    return list(found)


def _keys(best: _Best) -> Instruction:
    """The keys of all elements."""
    sort, order = best.sort, best.order
    x = sort.operands[order.operand]
    made = {order.parameter: x}
    for op in _keyed_ops(order) or ():
        shape = Shape.array(op.shape.dtype, x.shape.dims)
        literal = literal_of(op) if op.opcode == "constant" else None
        if literal is not None:
            scalar = make_constant(sort, literal)
            made[op] = make(sort, "broadcast", scalar, shape=shape, dimensions=())
        else:
            operands = [made[o] for o in op.operands]
            made[op] = make(sort, op.opcode, *operands, shape=shape, **op.attributes)
    return x if order.root is None else made[order.root]


def _element(best: _Best, number: int) -> Instruction:
    """The best elements of the sort's operand of a number, in the sort's order."""
    sort, along = best.sort, best.along
    keys = _keys(best)
    if best.is_last:
        keys = _reversed(keys, along)
    rank = keys.shape.rank
    order = (*(d for d in range(rank) if d != along), along)
    rows = transposed(keys, order)
    values = rows.shape.with_dims((*rows.shape.dims[:-1], best.k))
    shape = Shape.tuple((values, values.with_dtype(dt.S32)))
    largest = best.order.descending != best.is_last
    found = make(sort, "topk", rows, shape=shape, k=best.k, largest=largest)
    x = sort.operands[number]
    is_key = number == best.order.operand and best.order.root is None
    index = 0 if is_key else 1
    taken = make(sort, "get-tuple-element", found, index=index, shape=shape.elements[index])
    taken = transposed(taken, inverse(order))
    if not is_key:
        taken = _at_places(best, x, taken)
    return _reversed(taken, along) if best.is_last else taken


def _at_places(best: _Best, x: Instruction, places: Instruction) -> Instruction:
    """An operand's elements at the places in its rows."""
    sort, along = best.sort, best.along
    if best.is_last:
        last = splat(sort, np.int32(best.count - 1), places.shape)
        places = make(sort, "subtract", last, places)
    if _is_place(x, along, best.count):
        if x.shape.dtype is dt.S32:
            return places
        return make(sort, "convert", places, shape=places.shape.with_dtype(x.shape.dtype))
    others = tuple(d for d in range(x.shape.rank) if d != along)
    starts = make(sort, "reshape", places, shape=places.shape.with_dims((*places.shape.dims, 1)))
    return make(
        sort, "gather", x, starts, shape=places.shape.with_dtype(x.shape.dtype),
        offset_dims=(), collapsed_slice_dims=(along,), start_index_map=(along,),
        operand_batching_dims=others, start_indices_batching_dims=others,
        index_vector_dim=x.shape.rank, slice_sizes=(1,) * x.shape.rank,
    )  # fmt: skip


def _is_place(x: Instruction, along: int, count: int) -> bool:
    """Whether each element is its place in its row."""
    kind = x.shape.dtype
    if not kind.is_integral or kind.int_range[1] < count - 1:
        return False
    while x.opcode == "broadcast":
        dimensions = ints(x, "dimensions")
        if along not in dimensions:
            return False
        along = dimensions.index(along)
        (x,) = x.operands
    return x.opcode == "iota" and x["iota_dimension"] == along


def _reversed(x: Instruction, along: int) -> Instruction:
    return make(x, "reverse", x, dimensions=(along,))
