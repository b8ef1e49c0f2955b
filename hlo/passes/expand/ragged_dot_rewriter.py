"""ragged_dot_rewriter: groups of a ragged dot are loops over blocks of their rows.

    blocks of group i: ceil(size[i] / B);  block t belongs to the group i with
    before[i] <= t < before[i + 1] and begins at row start[i] + (t - before[i]) B

    ragged free dimension         result[rows of the block] = lhs[rows] . rhs[i]
    ragged contracting dimension  result[i] += lhs[rows] . rhs[rows]
    ragged batch dimension        the dot of what lies before the end of the last group

so that the work is that of one dot, however many groups there are. Neighbours of a block that are
another group's are masked. Where group sizes differ along other dimensions, a loop over the groups
does the whole dot for each, and masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct, field

from hlo.attributes.window import Window, WindowDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotDims, group_prefix
from hlo.ops.making import inferred_shape, make, make_constant
from hlo.ops.table import OPS, attribute
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import (
    INDEX,
    adopted,
    blank,
    element,
    new_computation,
    number,
    parameter,
    part,
    reducer,
    row,
)

LEAST_BLOCK, MOST_BLOCK = 16, 256  # Rows of a block.
LARGEST = 2**30  # The most rows: their numbers fit s32.

Ints = tuple[int, ...]


def ragged_dot_rewriter(module: Module) -> bool:
    """Write ragged dots as loops over blocks of rows that share a group.

    Sums are accumulated in f32 where the type is narrower. O(instructions).
    """
    found = [i for i in replaceable(module, "ragged-dot") if _is_rewritable(i)]
    for instruction in found:
        replace(instruction, _value(instruction, module))
    return bool(found)


def _is_rewritable(dot: Instruction) -> bool:
    shapes = [*(o.shape for o in dot.operands), dot.shape]
    return not any(s.is_dynamic for s in shapes) and max(shapes[0].dims) < LARGEST


def _value(dot: Instruction, module: Module) -> Instruction:
    """The loops; nothing is summed where there is nothing, and truth values are counted."""
    shape = dot.shape.without_layout()
    if 0 in (dot.shape.size, *(o.shape.size for o in dot.operands)):
        return blank(dot, shape)
    if not shape.dtype.is_pred:
        return _rewritten(_Ragged.of(dot), module)
    x, y, *sizes = dot.operands
    sides = [make(dot, "convert", o, shape=o.shape.with_dtype(dt.S32)) for o in (x, y)]
    own = {k: v for k, v in dot.attributes.items() if k in OPS[dot.opcode].attrs}
    counted = make(dot, dot.opcode, *sides, *sizes, shape=shape.with_dtype(dt.S32), **own)
    count = _rewritten(_Ragged.of(counted), module)
    replace(counted, count)
    return make(dot, "convert", count, shape=shape)


class _Ragged(Struct, frozen=True):
    """A ragged dot's parts. ragged: the dimension of lhs; dims: those of the dot by role."""

    dot: Instruction
    ragged: int
    dims: dict[str, Ints] = field(default_factory=dict)

    @staticmethod
    def of(dot: Instruction) -> _Ragged:
        names = ("batch_dims", "contracting_dims")
        dims = {f"{s}_{n}": _ints(dot, f"{s}_{n}") for s in ("lhs", "rhs") for n in names}
        return _Ragged(dot, _ints(dot, "lhs_ragged_dims")[0], dims)

    @property
    def operands(self) -> tuple[Instruction, Instruction]:
        return self.dot.operands[0], self.dot.operands[1]

    @property
    def rows(self) -> int:
        return self.operands[0].shape.dims[self.ragged]

    @property
    def groups(self) -> int:
        return self.dot.operands[2].shape.dims[-1]

    @property
    def prefix(self) -> list[int]:
        """The dimensions of lhs along which group sizes differ."""
        if self.dot.operands[2].shape.rank == 1:
            return []
        names = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
        dims = DotDims(*(self.dims[n] for n in names))
        return group_prefix(self.operands[0].shape.rank, dims, self.ragged)

    def in_result(self, d: int) -> int:
        """Where a batch or free dimension of lhs stands in the result."""
        batch, contracted = self.dims["lhs_batch_dims"], self.dims["lhs_contracting_dims"]
        if d in batch:
            return batch.index(d)
        return len(batch) + sum(k not in (*batch, *contracted) for k in range(d))

    def in_rhs(self, d: int) -> int:
        """The dimension of rhs that meets a batch or contracting dimension of lhs."""
        left = (*self.dims["lhs_batch_dims"], *self.dims["lhs_contracting_dims"])
        right = (*self.dims["rhs_batch_dims"], *self.dims["rhs_contracting_dims"])
        return right[left.index(d)]

    @property
    def block(self) -> int:
        """Rows of a block: those of a group, about."""
        mean = 1 << max(self.rows // self.groups - 1, 1).bit_length()
        return min(self.rows, max(LEAST_BLOCK, min(MOST_BLOCK, mean)))

    @property
    def group_dim(self) -> int:
        """The dimension of rhs that counts groups."""
        return _ints(self.dot, "rhs_group_dims")[0]

    def product(
        self, like: Instruction, lhs: Instruction, rhs: Instruction, dtype: DType, **dims: Ints
    ) -> Instruction:
        """The dot of parts of the operands."""
        given: dict[str, Any] = {k: v for k, v in {**self.dims, **dims}.items() if v}
        if "operand_precision" in self.dot.attributes:
            given["operand_precision"] = self.dot.attributes["operand_precision"]
        shape = inferred_shape("dot", (lhs, rhs), given)
        return make(like, "dot", lhs, rhs, shape=_typed(shape, dtype), **given)


def _rewritten(r: _Ragged, module: Module) -> Instruction:
    if r.ragged in r.dims["lhs_batch_dims"]:
        return _batches(r, module)
    return _masked_loop(r, module) if r.prefix else _loop(r, module)


def _batches(r: _Ragged, module: Module) -> Instruction:
    """The dot where lhs is zero beyond the groups."""
    (lhs, rhs), like = r.operands, r.dot
    _, ends, _ = _tables(r, module)
    end = row(ends, len(r.prefix), number(like, r.groups - 1))
    inside = _between(None, end, lhs.shape, r.ragged, r.prefix)
    kept = make(like, "select", inside, lhs, blank(like, lhs.shape))
    return r.product(like, kept, rhs, r.dot.shape.dtype)


def _tables(r: _Ragged, module: Module) -> tuple[Instruction, Instruction, Instruction]:
    """(starts, ends of groups as rows, blocks up to each group and its own)."""
    like, given = r.dot, r.dot.operands[2]
    shape = Shape.array(dt.S64, given.shape.dims)
    sizes = make(like, "convert", given, shape=shape)
    ends = _clipped(_prefix_sums(r, sizes, module), r.rows)
    starts = _clipped(make(like, "subtract", _prefix_sums(r, sizes, module), sizes), r.rows)
    size = make(like, "subtract", ends, starts)
    more = make(like, "add", size, _all(like, r.block - 1, shape))
    blocks = make(like, "divide", more, _all(like, r.block, shape))
    ends, starts, blocks = (
        make(like, "convert", x, shape=Shape.array(dt.S32, shape.dims))
        for x in (ends, starts, _prefix_sums(r, blocks, module))
    )
    return starts, ends, blocks


def _prefix_sums(r: _Ragged, x: Instruction, module: Module) -> Instruction:
    """Sums up to each group."""
    zero = make_constant(r.dot, Literal.of(np.array(0, np.int64), Shape.array(dt.S64, ())))
    others = (WindowDim(1),) * (x.shape.rank - 1)
    window = Window((*others, WindowDim(r.groups, pad_low=r.groups - 1)))
    adder = reducer(module, r.dot, "add", Shape.array(dt.S64, ()))
    return make(r.dot, "reduce-window", x, zero, window=window, to_apply=adder)


def _clipped(x: Instruction, most: int) -> Instruction:
    low, high = _all(x, 0, x.shape), _all(x, most, x.shape)
    return make(x, "clamp", low, x, high)


def _all(like: Instruction, value: int, shape: Shape) -> Instruction:
    literal = Literal.of(np.array(value, shape.dtype.numpy), Shape.array(shape.dtype, ()))
    return make(like, "broadcast", make_constant(like, literal), shape=shape, dimensions=())


def _inside(
    first: Instruction, low: Instruction, high: Instruction, shape: Shape, along: int
) -> Instruction:
    """Whether low <= first + i < high, i the index along a dimension of the shape."""
    line = Shape.array(dt.S32, (shape.dims[along],))
    indices = make(high, "iota", shape=line, iota_dimension=0)
    indices = make(high, "add", indices, _spread(first, line))
    reached = make(high, "compare", indices, _spread(low, line), direction="GE")
    left = make(high, "compare", indices, _spread(high, line), direction="LT")
    both = make(high, "and", reached, left)
    target = Shape.array(dt.PRED, shape.dims)
    return make(high, "broadcast", both, shape=target, dimensions=(along,))


def _between(
    low: Instruction | None, high: Instruction, shape: Shape, along: int, prefix: list[int]
) -> Instruction:
    """Whether low <= i < high, i the index along a dimension; limits differ along the prefix."""
    indices = make(high, "iota", shape=Shape.array(dt.S32, shape.dims), iota_dimension=along)

    def spread(limit: Instruction) -> Instruction:
        return make(high, "broadcast", limit, shape=indices.shape, dimensions=tuple(prefix))

    left = make(high, "compare", indices, spread(high), direction="LT")
    if low is None:
        return left
    return make(high, "and", left, make(high, "compare", indices, spread(low), direction="GE"))


def _spread(scalar: Instruction, shape: Shape) -> Instruction:
    return make(scalar, "broadcast", scalar, shape=shape, dimensions=())


def _typed(shape: Shape, dtype: DType) -> Shape:
    return Shape.array(dtype, shape.dims)


# -- the loop ----------------------------------------------------------------------------------


def _loop(r: _Ragged, module: Module) -> Instruction:
    """State: block, result, starts, ends, blocks, lhs, rhs."""
    like = r.dot
    is_sum = r.ragged in r.dims["lhs_contracting_dims"]
    dtype = _accumulated(r.dot.shape.dtype) if is_sum else r.dot.shape.dtype
    state = (blank(like, _typed(r.dot.shape, dtype)), *_tables(r, module), *r.operands)
    start = make(like, "tuple", number(like, 0), *state)
    members = reducer(module, like, "add", INDEX)
    condition = adopted(module, like, _condition(r, start.shape))
    body = adopted(module, like, _body(r, start.shape, members, _sum if is_sum else _rows))
    loop = make(like, "while", start, condition=condition, body=body)
    result = element(loop, 1)
    target = r.dot.shape.without_layout()
    return result if dtype is target.dtype else make(like, "convert", result, shape=target)


def _accumulated(dtype: DType) -> DType:
    """The type in which sums of blocks are kept."""
    return dt.F32 if dtype.is_float and dtype.bits < 32 else dtype


def _condition(r: _Ragged, state: Shape) -> Computation:
    """block < blocks of all groups"""
    made = new_computation(r.dot, "ragged_dot_condition")
    whole = parameter(made, 0, state)
    block, blocks = element(whole, 0), element(whole, 4)
    total = row(blocks, 0, number(block, r.groups - 1))
    made.root = make(block, "compare", block, total, direction="LT")
    return made


class _RowBlock(Struct, frozen=True):
    """A block: its group, its first row, and the first row of the part that is read for it."""

    group: Instruction
    begin: Instruction
    end: Instruction
    row: Instruction
    first: Instruction


Step = Callable[[_Ragged, _RowBlock, Instruction, Instruction, Instruction], Instruction]


def _body(r: _Ragged, state: Shape, members: Computation, step: Step) -> Computation:
    made = new_computation(r.dot, "ragged_dot_body")
    whole = parameter(made, 0, state)
    at, result, starts, ends, blocks, lhs, rhs = (element(whole, k) for k in range(7))
    done = make(at, "compare", blocks, _spread(at, blocks.shape), direction="LE")
    ones = make(at, "convert", done, shape=Shape.array(dt.S32, (r.groups,)))
    group = make(at, "reduce", ones, number(at, 0), dimensions=(0,), to_apply=members)
    begin, end = row(starts, 0, group), row(ends, 0, group)
    # blocks of this group begin after those up to it without its own
    size = make(at, "subtract", end, begin)
    more = make(at, "add", size, number(at, r.block - 1))
    own = make(at, "divide", more, number(at, r.block))
    before = make(at, "subtract", row(blocks, 0, group), own)
    steps = make(at, "subtract", at, before)
    first = make(at, "add", begin, make(at, "multiply", steps, number(at, r.block)))
    last = number(at, r.rows - r.block)
    read = make(at, "minimum", first, last)
    result = step(r, _RowBlock(group, begin, end, first, read), result, lhs, rhs)
    following = make(at, "add", at, number(at, 1))
    made.root = make(at, "tuple", following, result, starts, ends, blocks, lhs, rhs, shape=state)
    return made


def _rows(
    r: _Ragged, block: _RowBlock, result: Instruction, lhs: Instruction, rhs: Instruction
) -> Instruction:
    """The result with the block's rows."""
    at = block.first
    x = part(lhs, r.ragged, block.first, r.block, like=at)
    y = row(rhs, r.group_dim, block.group)
    made = r.product(at, x, y, r.dot.shape.dtype, **_without_group(r))
    along = r.in_result(r.ragged)
    inside = _inside(block.first, block.begin, block.end, made.shape, along)
    old = part(result, along, block.first, r.block, like=at)
    new = make(at, "select", inside, made, old)
    return _put(result, new, along, block.first)


def _sum(
    r: _Ragged, block: _RowBlock, result: Instruction, lhs: Instruction, rhs: Instruction
) -> Instruction:
    """The result with the group's sum of rows, the block's added."""
    at = block.first
    parts = []
    for x, along in ((lhs, r.ragged), (rhs, r.in_rhs(r.ragged))):
        rows = part(x, along, block.first, r.block, like=at)
        inside = _inside(block.first, block.row, block.end, rows.shape, along)
        parts.append(make(at, "select", inside, rows, blank(at, _typed(rows.shape, x.shape.dtype))))
    made = r.product(at, parts[0], parts[1], result.shape.dtype)
    old = part(result, 0, block.group, 1, like=at)
    one = make(at, "reshape", made, shape=_typed(old.shape, made.shape.dtype))
    return _put(result, make(at, "add", old, one), 0, block.group)


def _put(x: Instruction, rows: Instruction, along: int, first: Instruction) -> Instruction:
    zero = number(first, 0)
    starts = [first if d == along else zero for d in range(x.shape.rank)]
    return make(first, "dynamic-update-slice", x, rows, *starts)


# -- the loop over groups ----------------------------------------------------------------------


def _masked_loop(r: _Ragged, module: Module) -> Instruction:
    """State: group, result, starts, ends, lhs, rhs."""
    like = r.dot
    starts, ends, _ = _tables(r, module)
    result = blank(like, r.dot.shape.without_layout())
    start = make(like, "tuple", number(like, 0), result, starts, ends, *r.operands)
    condition = new_computation(like, "ragged_dot_condition")
    at = element(parameter(condition, 0, start.shape), 0)
    condition.root = make(at, "compare", at, number(at, r.groups), direction="LT")
    body = adopted(module, like, _masked_body(r, start.shape))
    condition = adopted(module, like, condition)
    return element(make(like, "while", start, condition=condition, body=body), 1)


def _masked_body(r: _Ragged, state: Shape) -> Computation:
    made = new_computation(r.dot, "ragged_dot_body")
    whole = parameter(made, 0, state)
    at, result, starts, ends, lhs, rhs = (element(whole, k) for k in range(6))
    low, high = (row(x, len(r.prefix), at) for x in (starts, ends))
    if r.ragged in r.dims["lhs_contracting_dims"]:
        indices = ((lhs, r.ragged, r.prefix), (rhs, r.in_rhs(r.ragged), [*map(r.in_rhs, r.prefix)]))
        x, y = (
            make(at, "select", _between(low, high, v.shape, d, p), v, blank(at, v.shape))
            for v, d, p in indices
        )
        one = r.product(at, x, y, r.dot.shape.dtype)
        wide = make(at, "reshape", one, shape=_typed(part(result, 0, at, 1).shape, one.shape.dtype))
        result = _put(result, wide, 0, at)
    else:
        one = r.product(at, lhs, row(rhs, r.group_dim, at), r.dot.shape.dtype, **_without_group(r))
        prefix = [r.in_result(d) for d in r.prefix]
        inside = _between(low, high, one.shape, r.in_result(r.ragged), prefix)
        result = make(at, "select", inside, one, result)
    following = make(at, "add", at, number(at, 1))
    made.root = make(at, "tuple", following, result, starts, ends, lhs, rhs, shape=state)
    return made


def _without_group(r: _Ragged) -> dict[str, Ints]:
    """The dimensions of rhs once that of the groups is gone."""
    names = ("rhs_batch_dims", "rhs_contracting_dims")
    return {n: tuple(d - (d > r.group_dim) for d in r.dims[n]) for n in names}


def _ints(dot: Instruction, name: str) -> Ints:
    found = attribute(dot, name)
    assert isinstance(found, tuple), f"{name} is a tuple of ints"
    return found
