"""dot, convolution: transposes folded into dimension numbers, kernels turned, empty operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec.structs import replace

from hlo.analysis.decisions import without_zeros
from hlo.analysis.factors import STREAMED_ROWS
from hlo.attributes.dim_labels import DimLabels
from hlo.indexing.queries import operand_dims
from hlo.ir.instruction import Instruction
from hlo.ir.layout import Layout
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.making import make
from hlo.passes.patterns.matching import ints, is_plain, splat
from hlo.passes.rewriting import rewrite

MOST_JOINED = 8
FEW_TIMES = 8  # So often elements are gathered in the time in which they are packed.
TURNED_ELEMENTS = 16  # Of a matrix: of a smaller one whole lines are as near.
TURNED_USES = 4  # How often each element is multiplied: a transpose reads and writes it once.
COPIED_BYTES = COMMON.first_cache.bytes  # A smaller copy costs less than a product more.


@rewrite("dot", "convolution")
def contract_nothing(root: Instruction) -> Instruction | None:
    """dot(x, y) => 0, convolution(x, y) => 0  where x or y has no elements"""
    x, y = root.operands[:2]
    if (x.shape.size and y.shape.size) or not root.shape.size or not is_plain(root.shape):
        return None
    return splat(root, 0)


@rewrite("convolution")
def kernel_beside_lanes(root: Instruction) -> Instruction | None:
    """convolution(x, w) => convolution(x, transpose(w)) with labels that say so
    where groups have few features, and w's output features then lie side by side
    (analysis/direct_convolution.py)
    """
    labels = root.get("dim_labels")
    grouped = {root.get("feature_group_count"), root.get("batch_group_count")} - {None, 1}
    if not grouped or not isinstance(labels, DimLabels) or len(root.operands) != 2:
        return None
    x, w = root.operands
    o = labels.rhs_output_feature
    if o == w.shape.rank - 1 or not is_plain(w.shape):
        return None
    # Most programs have no such convolutions, and start without this.
    from hlo.analysis.direct_convolution import is_direct, is_direct_as

    if is_direct(root):
        return None
    order = (*(d for d in range(w.shape.rank) if d != o), o)
    at = {d: place for place, d in enumerate(order)}
    moved = replace(
        labels,
        rhs_input_feature=at[labels.rhs_input_feature],
        rhs_output_feature=at[o],
        rhs_spatial=tuple(at[d] for d in labels.rhs_spatial),
    )
    dims = tuple(w.shape.dims[d] for d in order)
    if not is_direct_as(root, moved, dims):
        return None
    turned = make(root, "transpose", w, dimensions=order)
    attributes = {**root.attributes, "dim_labels": moved}
    return make(root, "convolution", x, turned, shape=root.shape, **attributes)


def _dims(root: Instruction, name: str) -> tuple[int, ...]:
    return ints(root, name) if name in root.attributes else ()


def is_best_turned(
    factor: Shape, batch: Sequence[int], contracted: Sequence[int], other: Shape
) -> bool:
    """Whether neighbours are of different matrices, which are large enough and meet enough of the
    other factor to be put one after the other. In the default layout.
    """
    longer = [d for d, size in enumerate(factor.dims) if size > 1]
    if len(longer) < 2 or longer[-1] not in batch:
        return False
    batches = prod(factor.dims[d] for d in batch)
    uses = other.size // max(1, batches * prod(factor.dims[d] for d in contracted))
    return factor.size >= TURNED_ELEMENTS * batches and uses >= TURNED_USES


@rewrite("dot", operand="transpose")
def dot_of_transpose(root: Instruction) -> Instruction | None:
    """dot(transpose(x, p), y) => dot(x, y) with dimensions p[d], reshaped
    where the free dims keep their order, those of size 1 aside, and matrices do not come to lie
    across each other
    """
    for side, x in zip(("lhs", "rhs"), root.operands, strict=True):
        if x.opcode != "transpose" or not is_plain(x.operands[0].shape):
            continue
        order = ints(x, "dimensions")
        contracting = _dims(root, f"{side}_contracting_dims")
        batch = _dims(root, f"{side}_batch_dims")
        shared, contracted = ([order[d] for d in dims] for dims in (batch, contracting))
        other = root.operands[1 if side == "lhs" else 0].shape
        if is_best_turned(x.operands[0].shape, shared, contracted, other):
            continue
        free = [order[d] for d in range(len(order)) if d not in contracting and d not in batch]
        longer = [d for d in free if x.operands[0].shape.dims[d] != 1]
        if longer != sorted(longer) or not (free == longer or is_plain(root.shape)):
            continue
        attributes = dict(root.attributes)
        attributes[f"{side}_contracting_dims"] = tuple(order[d] for d in contracting)
        if batch:
            attributes[f"{side}_batch_dims"] = tuple(order[d] for d in batch)
        operands = [o.operands[0] if o is x else o for o in root.operands]
        if root.operands[0] is root.operands[1]:
            operands = [x.operands[0], x] if side == "lhs" else [x, x.operands[0]]
        if free == sorted(free):
            return make(root, "dot", *operands, shape=root.shape, **attributes)
        begin = len(batch) if side == "lhs" else root.shape.rank - len(free)
        sizes = [x.operands[0].shape.dims[d] for d in sorted(free)]
        dims = list(root.shape.dims)
        dims[begin : begin + len(free)] = sizes
        made = make(root, "dot", *operands, shape=root.shape.with_dims(dims), **attributes)
        return make(root, "reshape", made, shape=root.shape)
    return None


@rewrite("dot", operand="reshape")
def dot_of_merged_batches(root: Instruction) -> Instruction | None:
    """dot(reshape(x), reshape(y)) => reshape(dot(x, y'))  where the reshapes merge dimensions into
    one of batches, and all that reads the dot reshapes it: PyTorch's products of heads meet what is
    computed for each head in its own dimensions, of a single batch too, so that no reshape stands
    between scores
    """
    if not root.users or root.is_root or any(user.opcode != "reshape" for user in root.users):
        return None
    sides = [_dims(root, f"{side}_batch_dims") for side in ("lhs", "rhs")]
    if not all(is_plain(i.shape) for i in (root, *root.operands)) or root.get("algorithm"):
        return None
    for number, (x, places) in enumerate(zip(root.operands, sides, strict=True)):
        for k, place in enumerate(places):
            merged = _merged_into(x, place)
            if merged:
                return _with_batches(root, k, merged, number)
    return None


def _merged_into(x: Instruction, place: int) -> tuple[int, ...]:
    """The sizes of which a reshape makes one dimension, all others staying; empty where it does
    something else."""
    if x.opcode != "reshape":
        return ()
    source, dims = x.operands[0].shape, x.shape.dims
    more = source.rank - x.shape.rank
    merged = source.dims[place : place + more + 1]
    stays = (
        source.dims[:place] + source.dims[place + more + 1 :] == dims[:place] + dims[place + 1 :]
    )
    is_merge = more > 0 and stays and is_plain(source) and prod(merged) == dims[place] > 0
    return merged if is_merge else ()


def _with_batches(root: Instruction, k: int, sizes: tuple[int, ...], merging: int) -> Instruction:
    """The product whose k-th batch dimension is as many as there are sizes. merging: the operand
    whose reshape has them."""
    more = len(sizes) - 1
    attributes, operands = dict(root.attributes), []
    for number, side in enumerate(("lhs", "rhs")):
        x, batches = root.operands[number], _dims(root, f"{side}_batch_dims")
        at = batches[k]
        dims = x.shape.dims[:at] + sizes + x.shape.dims[at + 1 :]
        split = make(root, "reshape", x, shape=x.shape.with_dims(dims))
        operands.append(x.operands[0] if number == merging else split)
        moved = {d: d if d < at else d + more for d in range(x.shape.rank)}
        parts = tuple(range(at, at + more + 1))
        attributes[f"{side}_batch_dims"] = tuple(
            part for n, d in enumerate(batches) for part in (parts if n == k else (moved[d],))
        )
        contracting = _dims(root, f"{side}_contracting_dims")
        attributes[f"{side}_contracting_dims"] = tuple(moved[d] for d in contracting)
    shape = root.shape.with_dims(root.shape.dims[:k] + sizes + root.shape.dims[k + 1 :])
    dot = make(root, "dot", *operands, shape=shape, **attributes)
    return make(root, "reshape", dot, shape=root.shape)


@rewrite("dot", operand="concatenate")
def dot_of_concatenate(root: Instruction) -> Instruction | None:
    """dot(x, concatenate(y, z)) => concatenate(dot(x, y), dot(x, z))
    where few rows meet y and z, whose free dim is joined for nobody else

    What is copied are results, and not the factor, for which few rows wait.
    """
    if not is_plain(root.shape) or root.get("sparsity") or root.operands[0] is root.operands[1]:
        return None
    own, contracted = operand_dims(root)
    depth = prod(root.operands[0].shape.dims[left] for left, _ in contracted if left is not None)
    for side, joined in enumerate(root.operands):
        if joined.opcode != "concatenate" or len(joined.users) != 1:
            continue
        (dim,) = ints(joined, "dimensions")
        at = next((n for n, pair in enumerate(own) if pair[side] == dim), None)
        free = zip(root.shape.dims, own, strict=True)
        rows = prod(n for n, pair in free if pair[side] is None)
        if at is None or own[at][1 - side] is not None or len(joined.operands) > MOST_JOINED:
            continue
        if 4 * rows > depth or rows > STREAMED_ROWS or joined.shape.size_bytes < COPIED_BYTES:
            continue
        parts = []
        for part in joined.operands:
            dims = (*root.shape.dims[:at], part.shape.dims[dim], *root.shape.dims[at + 1 :])
            factors = (part, root.operands[1]) if side == 0 else (root.operands[0], part)
            shape = root.shape.with_dims(dims)
            parts.append(make(root, "dot", *factors, shape=shape, **root.attributes))
        return make(root, "concatenate", *parts, shape=root.shape, dimensions=(at,))
    return None


@rewrite("dot")
def product_of_columns(root: Instruction) -> Instruction | None:
    """dot(x, y) => x * y, each turned to the order of the result and broadcast
    where every contracted dim is 1, or nothing is contracted, and no factor is gathered for many
    rows

    The one product of each element is the sum. Who reads a factor in an order that is not its own,
    or that lies otherwise, reads through the transpose: a product of elements fuses with what is
    around it.
    """
    x, y = root.operands
    contracted = [x.shape.dims[d] for d in _dims(root, "lhs_contracting_dims")]
    if any(size != 1 for size in contracted) or not is_plain(root.shape):
        return None
    if x.shape.dtype != root.shape.dtype or y.shape.dtype != root.shape.dtype:
        return None
    if not all(map(is_plain if contracted else _is_in_some_order, (x.shape, y.shape))):
        return None
    batch = len(_dims(root, "lhs_batch_dims"))
    middle = x.shape.rank - len(contracted)
    factors = [(x, _places(root, x, "lhs", batch)), (y, _places(root, y, "rhs", middle))]
    if any(_is_read_across(root, *factor) for factor in factors):
        return None
    return make(root, "multiply", *(_spread(root, *factor) for factor in factors), shape=root.shape)


def _is_in_some_order(shape: Shape) -> bool:
    """A static array that lies in memory as it is, its dimensions in whatever order."""
    layout = shape.layout
    return not shape.is_dynamic and layout is not None and layout == Layout(layout.minor_to_major)


def _places(dot: Instruction, x: Instruction, side: str, first: int) -> dict[int, int]:
    """Which dimension of the result each dim of a factor is that is not contracted; its free dims
    begin at the first of them."""
    gone, shared = (_dims(dot, f"{side}_{kind}_dims") for kind in ("contracting", "batch"))
    free = [d for d in range(x.shape.rank) if d not in (*gone, *shared)]
    places = dict(zip(shared, range(len(shared)), strict=True))
    places |= {d: first + k for k, d in enumerate(free)}
    return {d: places[d] for d in sorted(places)}


def _is_read_across(dot: Instruction, x: Instruction, places: dict[int, int]) -> bool:
    """Whether vectors of results would gather a factor's elements one by one, for many rows each:
    a product turns them once, when it packs them. For 40 rows of f32 0.75 of the time, of c64 0.4;
    for 7 rows it is 1.2 to 2 times."""
    longer = [place for d, place in places.items() if x.shape.dims[d] > 1]
    last = max((k for k, n in enumerate(dot.shape.dims) if n > 1), default=0)
    is_across = last in longer and longer[-1] != last
    few = FEW_TIMES // 2 if x.shape.dtype.is_complex else FEW_TIMES
    return is_across and dot.shape.size > few * x.shape.size


def _spread(dot: Instruction, x: Instruction, places: dict[int, int]) -> Instruction:
    """A factor, without the dims of one element that are contracted, at every index of the
    result."""
    at = list(places.values())
    if len(at) < x.shape.rank:
        x = make(dot, "reshape", x, shape=x.shape.with_dims(x.shape.dims[d] for d in places))
    if at != sorted(at):
        order = tuple(sorted(range(len(at)), key=at.__getitem__))
        x = make(dot, "transpose", x, dimensions=order)
    return make(dot, "broadcast", x, shape=dot.shape, dimensions=tuple(sorted(at)))


@rewrite("transpose", operand="dot")
def transpose_of_dot(root: Instruction) -> Instruction | None:
    """transpose(dot(x, y), p) => transpose(dot(y, x), q)
    where a free dim of x, longer than 1, becomes the last one, nobody else reads the dot, and no
    transpose reads the result

    Rows are then moved whole, or nothing is. Two transposes are one, which may be none: a result
    that is wanted in the order in which the dot makes it.
    """
    return None if _is_turned_again(root) else exchanged_dot(root)


def exchanged_dot(root: Instruction) -> Instruction | None:
    """What `transpose_of_dot` gives, whoever reads the transpose."""
    (dot,) = root.operands
    if dot.opcode != "dot" or len(dot.users) != 1 or not is_plain(dot.shape):
        return None
    order = ints(root, "dimensions")
    x, y = dot.operands
    batch = len(_dims(dot, "lhs_batch_dims"))
    middle = x.shape.rank - len(_dims(dot, "lhs_contracting_dims"))  # where those of y begin
    longer = [d for d in order if dot.shape.dims[d] != 1]
    if not longer or not batch <= longer[-1] < middle:
        return None
    if not is_plain(root.shape.without_layout()):
        return None
    exchanged = (*range(batch), *range(middle, dot.shape.rank), *range(batch, middle))
    after = tuple(exchanged.index(d) for d in order)
    if after == tuple(range(len(after))):
        return make(root, "dot", y, x, shape=root.shape, **exchanged_attributes(dot))
    shape = dot.shape.with_dims(dot.shape.dims[d] for d in exchanged)
    made = make(root, "dot", y, x, shape=shape, **exchanged_attributes(dot))
    return make(root, "transpose", made, shape=root.shape, dimensions=after)


def _is_turned_again(value: Instruction) -> bool:
    return any(user.opcode == "transpose" for user in value.users)


def exchanged_attributes(dot: Instruction) -> dict[str, object]:
    """The attributes of the product of the same two in the other order."""
    attributes = dict(without_zeros(dot))
    for kind in ("contracting", "batch"):
        for side, other in (("lhs", "rhs"), ("rhs", "lhs")):
            attributes.pop(f"{side}_{kind}_dims", None)
            found = _dims(dot, f"{other}_{kind}_dims")
            if found or kind == "contracting":
                attributes[f"{side}_{kind}_dims"] = found
    precision = attributes.get("operand_precision")
    if isinstance(precision, tuple):
        attributes["operand_precision"] = precision[::-1]
    return attributes
