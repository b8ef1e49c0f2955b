"""Broadcast, reshape, transpose, reverse, copy: compositions and identities."""

from __future__ import annotations

from math import prod

from hlo.indexing.affine import matched_runs
from hlo.ir.instruction import Instruction
from hlo.ir.permutation import compose, is_identity
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make
from hlo.ops.table import INDEX_MAPS, OPS, Opcodes, Trait, opcodes
from hlo.passes.patterns.matching import (
    ints,
    is_plain,
    same_array,
    splat,
    splat_literal,
)
from hlo.passes.rewriting import rewrite


@rewrite("reshape", "copy")
def move_to_own_shape(root: Instruction) -> Instruction | None:
    """reshape(x) => x,  copy(x) => x  where shape and layout stay"""
    (x,) = root.operands
    return x if x.shape.is_array and same_array(x.shape, root.shape) else None


@rewrite("reshape", operand="reshape")
def merge_reshapes(root: Instruction) -> Instruction | None:
    """reshape(reshape(x)) => reshape(x)"""
    (x,) = root.operands[0].operands
    if not is_plain(root.shape) or not is_plain(x.shape):
        return None
    return x if same_array(x.shape, root.shape) else make(root, "reshape", x, shape=root.shape)


@rewrite("transpose")
def transpose_identity(root: Instruction) -> Instruction | None:
    """transpose(x, 0 .. n-1) => x"""
    (x,) = root.operands
    if not is_identity(ints(root, "dimensions")):
        return None
    return x if same_array(x.shape, root.shape) else None


# What does not see in which layout an operand is.
_BLIND = opcodes(Trait.ELEMENTWISE | Trait.FUSES | INDEX_MAPS) - opcodes(
    Trait.FREE | Trait.SAME_LAYOUT
)


@rewrite("transpose")
def transpose_in_default_layout(root: Instruction) -> Instruction | None:
    """transpose(x) => transpose(x)  in the default layout, where nobody sees its own: JAX writes
    each transpose in the layout in which no byte moves
    """
    (x,) = root.operands
    plain = root.shape.without_layout()
    if is_plain(root.shape) or not is_plain(plain) or root.is_root:
        return None
    if any(u.opcode not in _BLIND and u.opcode not in ("dot", "convolution") for u in root.users):
        return None
    return make(root, "transpose", x, shape=plain, dimensions=root["dimensions"])


@rewrite("transpose", operand="transpose")
def merge_transposes(root: Instruction) -> Instruction | None:
    """transpose(transpose(x, p), q) => transpose(x, p[q])"""
    (inner,) = root.operands
    (x,) = inner.operands
    if not is_plain(root.shape):
        return None
    dimensions = compose(ints(inner, "dimensions"), ints(root, "dimensions"))
    return make(root, "transpose", x, shape=root.shape, dimensions=dimensions)


@rewrite("transpose")
def transpose_of_unit_dims(root: Instruction) -> Instruction | None:
    """transpose(x) => reshape(x)  where only dimensions of size 1 change places"""
    (x,) = root.operands
    moved = [d for d in ints(root, "dimensions") if x.shape.dims[d] != 1]
    if moved != sorted(moved) or not is_plain(root.shape) or not is_plain(x.shape):
        return None
    return make(root, "reshape", x, shape=root.shape)


@rewrite("reverse")
def reverse_nothing(root: Instruction) -> Instruction | None:
    """reverse(x, d) => x  where every d has size 1 or there is none"""
    (x,) = root.operands
    if any(x.shape.dims[d] > 1 for d in ints(root, "dimensions")):
        return None
    return x if same_array(x.shape, root.shape) else None


@rewrite("reverse", operand="reverse")
def merge_reverses(root: Instruction) -> Instruction | None:
    """reverse(reverse(x, a), b) => reverse(x, a xor b)"""
    (inner,) = root.operands
    (x,) = inner.operands
    both = set(ints(root, "dimensions")) ^ set(ints(inner, "dimensions"))
    if not same_array(x.shape, root.shape):
        return None
    return make(root, "reverse", x, shape=root.shape, dimensions=tuple(sorted(both))) if both else x


@rewrite("broadcast")
def broadcast_nothing(root: Instruction) -> Instruction | None:
    """broadcast(x, 0 .. n-1) => x  where no dimension is added"""
    (x,) = root.operands
    if not is_identity(ints(root, "dimensions")):
        return None
    return x if same_array(x.shape, root.shape) else None


@rewrite("broadcast")
def broadcast_as_transpose(root: Instruction) -> Instruction | None:
    """broadcast(x, p) => transpose(x)  where no dimension is added and p permutes"""
    (x,) = root.operands
    dimensions = ints(root, "dimensions")
    if len(dimensions) != root.shape.rank or is_identity(dimensions) or not is_plain(root.shape):
        return None
    order = tuple(dimensions.index(i) for i in range(root.shape.rank))
    return make(root, "transpose", x, shape=root.shape, dimensions=order)


@rewrite("broadcast")
def broadcast_as_reshape(root: Instruction) -> Instruction | None:
    """broadcast(x, d) => reshape(x)  where only dimensions of size 1 are added, d ascending"""
    (x,) = root.operands
    dimensions = ints(root, "dimensions")
    if x.shape.size != root.shape.size or list(dimensions) != sorted(dimensions):
        return None
    if x.shape.rank == root.shape.rank or not is_plain(root.shape) or not is_plain(x.shape):
        return None
    return make(root, "reshape", x, shape=root.shape)


@rewrite("broadcast", operand="broadcast")
def merge_broadcasts(root: Instruction) -> Instruction | None:
    """broadcast(broadcast(x, a), b) => broadcast(x, b[a])"""
    (inner,) = root.operands
    (x,) = inner.operands
    dimensions = compose(ints(root, "dimensions"), ints(inner, "dimensions"))
    return make(root, "broadcast", x, shape=root.shape, dimensions=dimensions)


@rewrite("broadcast", operand="reshape")
def broadcast_of_unit_dims(root: Instruction) -> Instruction | None:
    """broadcast(reshape(x), d) => broadcast(x, d')  where the reshape only adds dimensions of
    size 1
    """
    (inner,) = root.operands
    (x,) = inner.operands
    kept = added_units(x.shape.dims, inner.shape.dims)
    if kept is None or not is_plain(inner.shape) or not is_plain(x.shape):
        return None
    dimensions = compose(ints(root, "dimensions"), kept)
    return make(root, "broadcast", x, shape=root.shape, dimensions=dimensions)


def added_units(source: Ints, target: Ints) -> Ints | None:
    """Where source's dimensions stand in target, when target only has further dimensions of size
    1.
    """
    kept: list[int] = []
    for i, size in enumerate(target):
        if len(kept) < len(source) and size == source[len(kept)]:
            kept.append(i)
        elif size != 1:
            return None
    return tuple(kept) if len(kept) == len(source) else None


@rewrite("reshape", "transpose", "reverse", "slice", operand="broadcast")
def move_scalar_broadcast(root: Instruction) -> Instruction | None:
    """move(broadcast(s)) => broadcast(s)  for a scalar s, move a reshape, transpose,
    reverse or slice
    """
    (s,) = root.operands[0].operands
    if not s.shape.is_scalar or not is_plain(root.shape):
        return None
    return make(root, "broadcast", s, shape=root.shape, dimensions=())


@rewrite("transpose", operand="broadcast")
def transpose_of_broadcast(root: Instruction) -> Instruction | None:
    """transpose(broadcast(x, d), p) => broadcast(x, p^-1[d])"""
    (inner,) = root.operands
    (x,) = inner.operands
    if not is_plain(root.shape):
        return None
    order = ints(root, "dimensions")
    dimensions = tuple(order.index(d) for d in ints(inner, "dimensions"))
    return make(root, "broadcast", x, shape=root.shape, dimensions=dimensions)


@rewrite("reshape", operand="broadcast")
def reshape_of_broadcast(root: Instruction) -> Instruction | None:
    """reshape(broadcast(x, d)) => broadcast(reshape(x), d')  where what the reshape joins or parts
    is of x alone or repeated alone: rows copied beside a dimension of size 1 are copies of a row
    """
    (inner,) = root.operands
    (x,) = inner.operands
    if not is_plain(root.shape) or not is_plain(x.shape) or not root.shape.size:
        return None
    kept = [d for d in ints(inner, "dimensions") if inner.shape.dims[d] != 1]
    parts: dict[int, list[int]] = {}  # by the first of x's dimensions, where they stand in root
    for source, target in matched_runs(inner.shape.dims, root.shape.dims):
        real = [d for d in source if inner.shape.dims[d] != 1]
        own = [kept.index(d) for d in real if d in kept]
        if own and (len(own) < len(real) or own != list(range(own[0], own[0] + len(own)))):
            return None
        if own:
            parts[own[0]] = [d for d in target if root.shape.dims[d] != 1]
    mapped = tuple(d for first in sorted(parts) for d in parts[first])
    dims = tuple(root.shape.dims[d] for d in mapped)
    if dims != x.shape.dims:
        x = make(root, "reshape", x, shape=Shape.array(x.shape.dtype, dims))
    return make(root, "broadcast", x, shape=root.shape, dimensions=mapped)


UNARY = opcodes(Trait.ELEMENTWISE) & Opcodes(lambda opcode: OPS[opcode].arity == 1)


@rewrite(among=UNARY, operand="broadcast")
def sink_broadcast(root: Instruction) -> Instruction | None:
    """f(broadcast(x, d)) => broadcast(f(x), d)  for elementwise f: fewer elements to compute"""
    (inner,) = root.operands
    (x,) = inner.operands
    if x.shape.size >= root.shape.size or not is_plain(root.shape):
        return None
    shape = x.shape.without_layout().with_dtype(root.shape.dtype)
    own = {k: v for k, v in root.attributes.items() if k in OPS[root.opcode].attrs}
    small = make(root, root.opcode, x, shape=shape, **own)
    return make(root, "broadcast", small, shape=root.shape, dimensions=ints(inner, "dimensions"))


JOINING = opcodes(Trait.ELEMENTWISE) & Opcodes(lambda opcode: OPS[opcode].arity != 1)


@rewrite(among=JOINING, operand="broadcast")
def sink_broadcasts(root: Instruction) -> Instruction | None:
    """f(broadcast(x, d), broadcast(y, e), ..) => broadcast(f(x', y', ..), d + e)  for elementwise f
    where d and e leave a dimension of f out, and an iota counts one: coordinates of a grid
    """
    shape = root.shape
    if shape.size < 2 or not is_plain(shape):
        return None
    varying: set[int] = set()
    for operand in root.operands:
        dims = _varies_along(operand, shape)
        if dims is None or len(varying := varying | dims) == shape.rank:
            return None
    kept = tuple(sorted(varying))
    small = Shape.array(shape.dtype, [shape.dims[d] for d in kept])
    if small.size == shape.size:
        return None
    own = {k: v for k, v in root.attributes.items() if k in OPS[root.opcode].attrs}
    operands = [_along(operand, kept, small) for operand in root.operands]
    inner = make(root, root.opcode, *operands, shape=small, **own)
    return make(root, "broadcast", inner, shape=shape, dimensions=kept)


def _varies_along(operand: Instruction, shape: Shape) -> set[int] | None:
    """Along which dimensions an operand of an op of that shape may vary; None: along all."""
    if operand.shape.is_scalar:
        return set()
    if not is_plain(operand.shape) or operand.shape.dims != shape.dims:
        return None
    if operand.opcode == "broadcast":
        return {*ints(operand, "dimensions")}
    return {_counted(operand)} if operand.opcode == "iota" else None


def _counted(iota: Instruction) -> int:
    """The dimension that an iota counts."""
    dimension = iota["iota_dimension"]
    assert isinstance(dimension, int), "a dimension number"
    return dimension


def _along(operand: Instruction, kept: Ints, small: Shape) -> Instruction:
    """A broadcast or an iota over the dimensions that are kept alone; a scalar as it is."""
    if operand.shape.is_scalar:
        return operand
    shape = small.with_dtype(operand.shape.dtype)
    if operand.opcode == "iota":
        return make(operand, "iota", shape=shape, iota_dimension=kept.index(_counted(operand)))
    (x,) = operand.operands
    dims = tuple(kept.index(d) for d in ints(operand, "dimensions"))
    return make(operand, "broadcast", x, shape=shape, dimensions=dims)


@rewrite("iota")
def iota_of_one(root: Instruction) -> Instruction | None:
    """iota(d) => broadcast(0)  where dimension d has size 1"""
    return splat(root, 0) if root.shape.dims[_counted(root)] == 1 and is_plain(root.shape) else None


@rewrite("add")
def positions_in_one_iota(root: Instruction) -> Instruction | None:
    """iota(0) s0 + .. + iota(k) sk => reshape(iota)  where s are the strides of root's array

    One loop runs over the elements then, however few the last dimension has. The largest position
    has to be a number of the type.
    """
    shape = root.shape
    if not shape.dtype.is_integral or shape.rank < 2 or not is_plain(shape):
        return None
    if shape.size > 1 << (shape.dtype.bits - shape.dtype.is_signed):
        return None
    steps = _steps_along(root, 4 * shape.rank)
    strides = [prod(shape.dims[d + 1 :]) for d in range(shape.rank)]
    if steps is None or any(
        n > 1 and s != t for n, s, t in zip(shape.dims, steps, strides, strict=True)
    ):
        return None
    line = Shape.array(shape.dtype, (shape.size,))
    return make(root, "reshape", make(root, "iota", shape=line, iota_dimension=0), shape=shape)


def _steps_along(x: Instruction, most: int) -> Ints | None:
    """How much the integers of x grow from one place to the next along each dimension.

    None where they do not evenly, do not start at 0, or are made of more than `most` layers.
    """
    rank, operands = x.shape.rank, x.operands
    if most == 0 or not x.shape.is_array:
        return None
    if x.opcode == "iota":
        return tuple(int(d == x["iota_dimension"]) for d in range(rank))
    if x.opcode == "broadcast":
        inner = _steps_along(operands[0], most - 1)
        if inner is None:
            return None
        found = dict(zip(ints(x, "dimensions"), inner, strict=True))
        return tuple(found.get(d, 0) for d in range(rank))
    if x.opcode not in ("add", "multiply"):
        return None
    first = _steps_along(operands[0], most - 1)
    if first is None:
        return None
    if x.opcode == "multiply":
        factor = splat_literal(operands[1])
        return None if factor is None else tuple(int(factor) * step for step in first)
    second = _steps_along(operands[1], most - 1)
    return None if second is None else tuple(a + b for a, b in zip(first, second, strict=True))
