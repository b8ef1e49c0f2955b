"""Steps for reshapes: what is valid stands in front and without gaps, in row-major order.

Where no larger dimension stands before the one that a size cuts, it does so already; else each
element is fetched from where its number among the valid ones says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.extents import free_dimension, reshape_groups
from hlo.ops.making import make
from hlo.passes.padding.scope import Made, Scope, Sizes, UnsupportedError, static

LARGEST = 2**31 - 1


def reshape(p: Scope, old: Instruction) -> Made:
    """In each group of dimensions, one of the result takes what the others leave."""
    (x,) = old.operands
    given, sizes = p.sizes_of(x), Sizes()
    inferred = old.attributes.get("inferred_dimension", -1)
    assert isinstance(inferred, int), "inferred_dimension is an int"
    bounds, dims, in_front = x.shape.dims, old.shape.dims, True
    for sources, targets in reshape_groups(bounds, dims):
        sized = [d for d in sources if d in given]
        if not sized:
            continue
        if not targets:  # Only sizes of 1 are left: the reference judges any other size.
            for d in sized:
                p.agreed(p.number(old, bounds[d]), given[d])
            continue
        free = free_dimension(targets, old.shape, inferred)
        before = [bounds[d] for d in sources if d < sized[0]] + [
            dims[d] for d in targets if d < free
        ]
        in_front &= len(sized) == 1 and all(n == 1 for n in before)
        more = math.prod(bounds[d] for d in sources if d not in sized)
        less = math.prod(dims[d] for d in targets if d != free)
        sizes[free] = _scaled(p, _product(old, [given[d] for d in sized]), more, less)
    if in_front:
        return p.again(old), sizes
    return _packed(p, old, sizes), sizes


def dynamic_reshape(p: Scope, old: Instruction) -> Made:
    """The sizes are given; as many elements must be valid as before."""
    x, *given = old.operands
    sizes = {d: p.value(size) for d, size in enumerate(given)}
    for d, size in sizes.items():
        bound = p.number(old, old.shape.dims[d])
        p.agreed(make(old, "clamp", p.number(old, 0), size, bound), size)
    if not old.shape.size:
        raise UnsupportedError
    before = [_wide(old, p.size(x, d)) for d in range(x.shape.rank)]
    after = [_wide(old, size) for size in sizes.values()]
    p.agreed(*(_product(old, side) if side else _whole(p, old, 1) for side in (before, after)))
    return _packed(p, old, sizes), sizes


def _scaled(p: Scope, size: Instruction, more: int, less: int) -> Instruction:
    """size more / less, which the program assumes to be whole."""
    if less in (more, 0):
        return size
    total = make(size, "multiply", size, p.number(size, more))
    rest = make(total, "remainder", total, p.number(size, less))
    p.agreed(rest, p.number(rest, 0))
    return make(total, "divide", total, p.number(size, less))


def _product(like: Instruction, factors: Sequence[Instruction]) -> Instruction:
    total = factors[0]
    for factor in factors[1:]:
        total = make(like, "multiply", total, factor)
    return total


def _wide(like: Instruction, size: Instruction) -> Instruction:
    return make(like, "convert", size, shape=Shape.array(dt.S64, ()))


def _whole(p: Scope, like: Instruction, value: int, dtype: DType = dt.S64) -> Instruction:
    return p.constant(like, value, dtype)


def _packed(p: Scope, old: Instruction, sizes: Sizes) -> Instruction:
    """result[j] = x[i], j among `sizes` and i among x's sizes of one row-major number."""
    x = old.operands[0]
    value, shape = p.value(x), static(old.shape)
    if not shape.size:
        return make(old, "reshape", value, shape=shape)
    made = _Numbers(p, old, dt.S32 if shape.size <= LARGEST else dt.S64)
    before, after = made.of(p.sizes_of(x), x.shape.dims), made.of(sizes, shape.dims)
    place = made.placed(before, after, shape.dims, x.shape.dims)
    flat = make(old, "reshape", value, shape=Shape.array(shape.dtype, (shape.size,)))
    return make(
        old, "gather", flat, place, offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,),
        index_vector_dim=shape.rank, slice_sizes=(1,), shape=shape,
    )  # fmt: skip


class _Numbers:
    """Arithmetic on the numbers of elements."""

    def __init__(self, p: Scope, old: Instruction, dtype: DType) -> None:
        self.p, self.old, self.dtype = p, old, dtype

    def of(self, sizes: Sizes, dims: Sequence[int]) -> list[Instruction | int]:
        """Sizes in the type of numbers; those of whole dimensions as plain integers."""
        found: list[Instruction | int] = list(dims)
        for d, size in sizes.items():
            scalar = Shape.array(self.dtype, ())
            at_least = make(self.old, "maximum", size, self.p.number(self.old, 1))
            found[d] = make(self.old, "convert", at_least, shape=scalar)
        return found

    def placed(
        self,
        before: list[Instruction | int],
        after: list[Instruction | int],
        dims: tuple[int, ...],
        bounds: tuple[int, ...],
    ) -> Instruction:
        """Where each element of the result stands in the operand."""
        self.shape = Shape.array(self.dtype, dims)
        number, step = self.spread(0), self.spread(1)
        for d in reversed(range(len(dims))):
            indices = make(self.old, "iota", shape=self.shape, iota_dimension=d)
            number = self.op("add", number, self.op("multiply", indices, step))
            step = self.op("multiply", step, self.spread(after[d]))
        place, stride = self.spread(0), 1
        for size, bound in zip(reversed(before), reversed(bounds), strict=True):
            divisor = self.spread(size)
            rest = self.op("remainder", number, divisor)
            place = self.op("add", place, self.op("multiply", rest, self.spread(stride)))
            number = self.op("divide", number, divisor)
            stride *= bound
        return place

    def op(self, opcode: str, *operands: Instruction) -> Instruction:
        return make(self.old, opcode, *operands)

    def spread(self, scalar: Instruction | int) -> Instruction:
        if isinstance(scalar, int):
            scalar = _whole(self.p, self.old, scalar, self.dtype)
        return make(self.old, "broadcast", scalar, shape=self.shape, dimensions=())
