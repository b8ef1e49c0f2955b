"""one-hot-rewriter: products with rows of one 1 each are rows that are picked or added up.

    dot(i = iota, w)             =>  isfinite(w) ? gather(w, i) + 0, 0 where i is no row : dot
    dot(i = iota, y), over i's   =>  isfinite(y) ? scatter-add(0, i, y) : dot

    i = iota: pred or 1 and 0 in any type, one dimension counted, the others those of i

A product's sum has one term that is w's element, and others that are zeros where w is finite; with
an infinity or a NaN they are NaN, so that the run looks and computes the product as it is given.
Zeros added to -0 are +0, hence the + 0. Integers need no look. The gradient of such a product adds
rows of y, in their order; sums of products are reassociated anyway. 512 rows of 1,000 by 256: 0.02
of the time on Zen 4, with the gradient 0.04.
"""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct

from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.graph import clone_instruction, computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make, transposed
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import replace, replaceable, wrapped_operations
from hlo.passes.loop_making import adopted, element, new_computation, parameter, reducer
from hlo.passes.patterns.matching import ints, is_plain, is_splat, splat

LEAST_PRODUCTS = 1 << 20  # Of fewer, looking takes about as long.
LEAST_ROWS = 8  # A product with fewer reads its matrix once, as the look does.
# A product with fewer columns of ones takes less time than its other factor's rows take to be added
# up one after the other: 4 columns 0.1 to 0.3 of it, 11 columns 0.2 to 0.5, 64 columns 1.4 to 4.3.
LEAST_SUMS = 16
_TURNED = 2  # So many times as many where these rows have to be turned before (`x @ one_hot(i)`).
_WHOLE = frozenset({dt.F16, dt.BF16, dt.F32, dt.F64})


def one_hot_rewriter(module: Module) -> bool:
    """Pick and add up rows where a dot multiplies by rows of one 1 each. O(instructions)."""
    left = called_by_ops(module) | wrapped_operations(module) | _branches(module)
    changed = False
    for dot in replaceable(module, "dot"):
        if dot.computation in left:
            continue
        found = _picked(module, dot)
        if found is not None:
            replace(dot, _checked(module, dot, *found))
            changed = True
    return changed


def _branches(module: Module) -> set[Computation]:
    """Where what was looked at is computed as it was given."""
    every = (i for c in module.computations for i in c.instructions)
    return {b for i in every if i.opcode == "conditional" for b in i.called_computations()}


class _Hot(Struct, frozen=True):
    """A factor whose rows have a single 1 each.

    index: where each row's 1 stands, beside which dimension `along` is counted.
    """

    index: Instruction
    along: int


def _hot_of(x: Instruction) -> _Hot | None:
    """The index that an array compares with its counted dimension; None of other arrays."""
    while x.opcode == "convert" and is_plain(x.shape):
        (x,) = x.operands
    if x.opcode == "select" and is_splat(x.operands[1], 1) and is_splat(x.operands[2], 0):
        (x, *_) = x.operands
    if x.opcode != "compare" or x["direction"] != "EQ" or not is_plain(x.shape):
        return None
    for index, counted in (x.operands, x.operands[::-1]):
        along = _counted(counted)
        if along is None or index.opcode != "broadcast":
            continue
        others = tuple(d for d in range(x.shape.rank) if d != along)
        (i,) = index.operands
        if ints(index, "dimensions") == others and is_plain(i.shape):
            return _Hot(i, along)
    return None


def _counted(x: Instruction) -> int | None:
    """The dimension whose elements' places an array of integers holds."""
    spread: list[Ints] = []
    while x.opcode == "broadcast":
        spread.append(ints(x, "dimensions"))
        (x,) = x.operands
    kind = x.shape.dtype
    if x.opcode != "iota" or not kind.is_integral:
        return None
    along = x["iota_dimension"]
    assert isinstance(along, int), "a dimension"
    if kind.int_range[1] < x.shape.dims[along] - 1:
        return None
    for dimensions in reversed(spread):
        along = dimensions[along]
    return along


def _picked(
    module: Module, dot: Instruction
) -> tuple[Instruction, Instruction, Instruction] | None:
    """What a dot with such rows comes to where all is finite; what its factors are made of."""
    if dot.get("lhs_batch_dims") or dot.get("algorithm") or not is_plain(dot.shape):
        return None
    for side in (0, 1):
        hot, other = _hot_of(dot.operands[side]), dot.operands[1 - side]
        if hot is None or not is_plain(other.shape) or not _are_known(dot, other):
            continue
        names = ("lhs_contracting_dims", "rhs_contracting_dims")
        own, met = ints(dot, names[side]), ints(dot, names[1 - side])
        products = dot.shape.size * prod(other.shape.dims[d] for d in met)
        if products < LEAST_PRODUCTS or hot.index.shape.size < LEAST_ROWS:
            continue
        if own == (hot.along,):
            return _gathered(dot, hot, side, met[0]), hot.index, _narrowest(other)
        if hot.along in own or not len(own) == hot.index.shape.rank > 0:
            continue
        least = LEAST_SUMS * (1 if met == tuple(range(len(met))) else _TURNED)
        if dot.operands[side].shape.dims[hot.along] >= least:
            return _scattered(module, dot, hot, side), hot.index, _narrowest(other)
    return None


def _are_known(dot: Instruction, other: Instruction) -> bool:
    """Whether a factor and the result are floats that are rounded alike, or integers, of bytes."""
    types = {other.shape.dtype, dot.shape.dtype}
    return types <= _WHOLE or all(kind.is_integral and kind.bits >= 8 for kind in types)


def _narrowest(x: Instruction) -> Instruction:
    """What floats were before they were widened, which is as finite."""
    while x.opcode == "convert" and is_plain(x.operands[0].shape):
        (inner,) = x.operands
        kinds = {inner.shape.dtype, x.shape.dtype}
        if not kinds <= _WHOLE or inner.shape.dtype.bits >= x.shape.dtype.bits:
            break
        x = inner
    return x


def _gathered(dot: Instruction, hot: _Hot, side: int, along: int) -> Instruction:
    """Rows of the other factor, zeros where an index is none of a row."""
    w, i = _narrowest(dot.operands[1 - side]), hot.index
    rows, rest = i.shape.dims, tuple(n for d, n in enumerate(w.shape.dims) if d != along)
    rank = len(rows)
    shape = w.shape.with_dims((*rows, *rest))
    starts = make(dot, "reshape", i, shape=i.shape.with_dims((*rows, 1)))
    picked = make(
        dot, "gather", w, starts, shape=shape,
        offset_dims=tuple(range(rank, rank + len(rest))), collapsed_slice_dims=(along,),
        start_index_map=(along,), index_vector_dim=rank,
        slice_sizes=tuple(1 if d == along else n for d, n in enumerate(w.shape.dims)),
    )  # fmt: skip
    picked = _converted(picked, dot.shape.dtype)
    nothing = splat(dot, np.zeros((), dot.shape.dtype.numpy), picked.shape)
    if dot.shape.dtype.is_float:
        picked = make(dot, "add", picked, nothing)
    is_row = _is_row(dot, i, w.shape.dims[along])
    is_row = make(dot, "broadcast", is_row, shape=picked.shape.with_dtype(dt.PRED),
                  dimensions=tuple(range(rank)))  # fmt: skip
    found = make(dot, "select", is_row, picked, nothing)
    if side == 0:
        return found
    order = (*range(rank, rank + len(rest)), *range(rank))
    return transposed(found, order)


def _is_row(like: Instruction, i: Instruction, count: int) -> Instruction:
    """Where an index is at least 0 and below the count."""
    low = make(like, "compare", i, splat(i, 0), direction="GE")
    if i.shape.dtype.int_range[1] < count:
        return low
    below = make(like, "compare", i, splat(i, count), direction="LT")
    return make(like, "and", low, below)


def _scattered(module: Module, dot: Instruction, hot: _Hot, side: int) -> Instruction:
    """Rows of the other factor added up where their indices say."""
    y, i = _narrowest(dot.operands[1 - side]), hot.index
    names = ("lhs_contracting_dims", "rhs_contracting_dims")
    own, met = ints(dot, names[side]), ints(dot, names[1 - side])
    at = dict(zip(own, met, strict=True))
    rows = tuple(at[d] for d in sorted(at))  # of y, in the order of the index's dimensions
    rest = tuple(d for d in range(y.shape.rank) if d not in rows)
    y = transposed(_converted(y, dot.shape.dtype), (*rows, *rest))
    rank = len(rows)
    count = dot.operands[side].shape.dims[hot.along]
    whole = dot.shape.with_dims((count, *y.shape.dims[rank:]))
    starts = make(dot, "reshape", i, shape=i.shape.with_dims((*i.shape.dims, 1)))
    add = reducer(module, dot, "add", Shape.array(dot.shape.dtype))
    found = make(
        dot, "scatter", splat(dot, np.zeros((), whole.dtype.numpy), whole), starts, y, shape=whole,
        to_apply=add, update_window_dims=tuple(range(rank, y.shape.rank)),
        inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=rank,
    )  # fmt: skip
    return found if side == 0 else transposed(found, (*range(1, whole.rank), 0))


def _checked(
    module: Module, dot: Instruction, found: Instruction, index: Instruction, other: Instruction
) -> Instruction:
    """What was found where the other factor is finite, else the dot."""
    if not other.shape.dtype.is_float:
        return found
    scalar = Shape.array(dt.PRED)
    is_finite = make(dot, "is-finite", other)
    every, yes = tuple(range(other.shape.rank)), splat(dot, np.True_, scalar)
    both = reducer(module, dot, "and", scalar)
    holds = make(dot, "reduce", is_finite, yes, dimensions=every, to_apply=both)
    given = make(dot, "tuple", index, other)
    kept = new_computation(dot, "picked")
    kept.root = make(parameter(kept, 0, found.shape), "copy", kept.parameters[0])
    whole = new_computation(dot, "multiplied")
    inside = parameter(whole, 0, given.shape)
    whole.root = _again(dot, whole, {index: element(inside, 0), other: element(inside, 1)})
    branches = [adopted(module, dot, c) for c in (kept, whole)]
    return make(
        dot, "conditional", holds, found, given,
        true_computation=branches[0], false_computation=branches[1],
    )  # fmt: skip


def _again(
    dot: Instruction, into: Computation, twins: dict[Instruction, Instruction]
) -> Instruction:
    """The dot in another computation, with all that its factors are made of down to the twins."""
    for top in computed_from(dot, known=twins):
        new = clone_instruction(top, tuple(twins[o] for o in top.operands))
        twins[top] = into.adopt(new)
    return twins[dot]


def _converted(x: Instruction, dtype: DType) -> Instruction:
    if x.shape.dtype is dtype:
        return x
    return make(x, "convert", x, shape=x.shape.with_dtype(dtype))
