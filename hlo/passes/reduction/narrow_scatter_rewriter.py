"""narrow_scatter_rewriter: sums of few rows of a narrow float array touch those rows only.

    scatter(x, i, u), add, bf16   =>   first[v] = the first n with i[n] = v
                                       s[first[i[n]]] += f32(u[n]),  beginning as f32(x[i[n]])
                                       scatter(x, i[n] where first[i[n]] = n, bf16(s)), no combiner

Each element is rounded once, after all its updates, in their order: what the scatter itself means
(docs/semantics.md 9, accumulation), which otherwise costs a copy of all of x in f32 and back.
Indices that are out of bounds are so before and after.
"""

from __future__ import annotations

import math

import numpy as np

from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.axis_reductions import operations
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.making import make, make_constant
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited, fused_computations
from hlo.passes.loop_making import adopted, new_computation, number, parameter, reducer

ROUNDING = opcodes(Trait.ASSOCIATIVE) - opcodes(Trait.EXACT)
LEAST_ROW = 16  # For shorter rows finding first rows costs as much.
ROWS_PER_UPDATE = 4  # It pays where the operand has so many rows for each update.
MOST_ROWS = 2**30  # The most rows: their numbers fit s32.


def narrow_scatter_rewriter(module: Module) -> bool:
    """Sum few rows into a narrow float array in f32 without widening all of it.

    Only where whole rows are added or multiplied by a single index each. O(instructions).
    """
    changed = False
    fused = fused_computations(module)
    for computation in tuple(module.computations):
        if computation in fused:
            continue
        found = [i for i in computation.instructions if i.opcode == "scatter"]
        kept = awaited(computation) if found else frozenset()
        for scatter in found:
            if scatter not in kept and _is_rewritable(scatter):
                computation.replace_uses(scatter, _rewritten(scatter, module))
                computation.remove(scatter)
                changed = True
    return changed


def _is_rewritable(scatter: Instruction) -> bool:
    if len(scatter.operands) != 3 or "control-predecessors" in scatter.attributes:
        return False
    x, indices, updates = (o.shape for o in scatter.operands)
    attrs = ScatterAttributes[Computation].of(scatter.attributes)
    found = operations(attrs.to_apply, 1)
    if found is None or found[0] not in ROUNDING or attrs.unique_indices:
        return False
    if not x.dtype.is_float or x.dtype.bits not in (8, 16) or updates.dtype is not x.dtype:
        return False
    if any(s.is_dynamic for s in (x, indices, updates)) or indices.dtype.bits < 32:
        return False
    return _takes_whole_rows(scatter, attrs) and _is_sparse(x, indices)


def _takes_whole_rows(scatter: Instruction, attrs: ScatterAttributes[Computation]) -> bool:
    """Whether each index names a row of the operand, and updates are whole rows, in order."""
    x, indices, updates = (o.shape for o in scatter.operands)
    if attrs.input_batching_dims or attrs.scatter_indices_batching_dims:
        return False
    vector = attrs.index_vector_dim
    count = indices.rank - 1 if vector == indices.rank - 1 else indices.rank
    if vector not in (indices.rank, indices.rank - 1) or indices.dims[count:] not in ((), (1,)):
        return False
    return (
        attrs.inserted_window_dims == attrs.scatter_dims_to_operand_dims == (0,)
        and attrs.update_window_dims == tuple(range(count, updates.rank))
        and updates.dims[count:] == x.dims[1:]
    )


def _is_sparse(x: Shape, indices: Shape) -> bool:
    count = indices.size
    if count < 2 or math.prod(x.dims[1:]) < LEAST_ROW or x.dims[0] > MOST_ROWS:
        return False
    return ROWS_PER_UPDATE * count <= x.dims[0]


def _rewritten(scatter: Instruction, module: Module) -> Instruction:
    x, indices, updates = scatter.operands
    count, rows = indices.shape.size, x.shape.dims[0]
    flat = make(scatter, "reshape", indices, shape=indices.shape.with_dims((count,)))
    column = _column(flat)
    update_rows = updates.shape.with_dims((count, *x.shape.dims[1:]))
    u = make(scatter, "reshape", updates, shape=update_rows)
    order = Shape.array(dt.S32, (count,))
    n = make(scatter, "iota", shape=order, iota_dimension=0)
    none = make(scatter, "broadcast", number(scatter, count),
                shape=Shape.array(dt.S32, (rows,)), dimensions=())  # fmt: skip
    least = reducer(module, scatter, "minimum", Shape.array(dt.S32, ()))
    first = _scattered(none, column, n, least)
    slot = _selected(_within(flat, rows), _gathered(first, column), number(scatter, count))
    wide = _converted(_gathered(x, column), dt.F32)
    combiner = scatter["to_apply"]
    assert isinstance(combiner, Computation), "a scatter has a combiner"
    (operation,) = operations(combiner, 1) or ("",)
    summed = reducer(module, scatter, operation, Shape.array(dt.F32, ()))
    sums = _scattered(wide, _column(slot), _converted(u, dt.F32), summed)
    is_first = make(scatter, "compare", slot, n, direction="EQ")
    outside = Literal.of(np.array(rows, flat.shape.dtype.numpy), Shape.array(flat.shape.dtype, ()))
    target = _selected(is_first, flat, make_constant(scatter, outside))
    written = _overwriting(module, scatter, x.shape.dtype)
    return _scattered(x, _column(target), _converted(sums, x.shape.dtype), written, unique=True)


def _column(flat: Instruction) -> Instruction:
    return make(flat, "reshape", flat, shape=flat.shape.with_dims((flat.shape.size, 1)))


def _converted(x: Instruction, dtype: dt.DType) -> Instruction:
    return make(x, "convert", x, shape=x.shape.with_dtype(dtype))


def _selected(condition: Instruction, x: Instruction, otherwise: Instruction) -> Instruction:
    """x where the condition holds, else one number."""
    other = make(x, "broadcast", otherwise, shape=x.shape, dimensions=())
    return make(x, "select", condition, x, other)


def _within(flat: Instruction, rows: int) -> Instruction:
    """Whether each index is in bounds."""
    scalar = Shape.array(flat.shape.dtype, ())
    bounds = []
    for value, direction in ((0, "GE"), (rows, "LT")):
        literal = Literal.of(np.array(value, flat.shape.dtype.numpy), scalar)
        bound = make(
            flat, "broadcast", make_constant(flat, literal), shape=flat.shape, dimensions=()
        )
        bounds.append(make(flat, "compare", flat, bound, direction=direction))
    return make(flat, "and", *bounds)


def _gathered(x: Instruction, column: Instruction) -> Instruction:
    """The rows of x that a column of indices names."""
    rest = x.shape.dims[1:]
    return make(
        column, "gather", x, column,
        offset_dims=tuple(range(1, 1 + len(rest))), collapsed_slice_dims=(0,),
        start_index_map=(0,), index_vector_dim=1, slice_sizes=(1, *rest),
    )  # fmt: skip


def _scattered(
    x: Instruction,
    column: Instruction,
    rows: Instruction,
    combiner: Computation,
    *,
    unique: bool = False,
) -> Instruction:
    return make(
        column, "scatter", x, column, rows,
        update_window_dims=tuple(range(1, x.shape.rank)), inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,), index_vector_dim=1, to_apply=combiner,
        unique_indices=unique,
    )  # fmt: skip


def _overwriting(module: Module, like: Instruction, dtype: dt.DType) -> Computation:
    """A combiner that takes the update."""
    made = new_computation(like, "overwrite")
    scalar = Shape.array(dtype, ())
    made.root = [parameter(made, n, scalar) for n in range(2)][1]
    return adopted(module, like, made)
