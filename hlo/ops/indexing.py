"""Ops that read or write at indices given at run time: dynamic slices, gather, scatter.

Source: shared/OP_SEMANTICS.md sections 7 and 8.
"""

from __future__ import annotations

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.ops.table import Attr, Op, Trait


class DynamicSlice(Op):
    """result = operand[start : start + dynamic_slice_sizes], start = clamp(0, index, dim - size).

    The indices are one scalar per dimension, or one array of rank 1 with all of them.
    C1: number of index operands. C2: scalars of one integral type. C3: one size per dimension, with
    0 <= size <= dim.
    A dimension is dynamic if the operand's is and size = dim > 1.
    Source: XLA OP_SEMANTICS "DynamicSlice".
    """

    opcode = "dynamic-slice"
    attrs = {"dynamic_slice_sizes": Attr(INTS)}
    traits = Trait.MOVEMENT
    inferable = False


class DynamicUpdateSlice(Op):
    """The operand with `update` written at start = clamp(0, index, dim - update's dim).

    C1: as dynamic-slice for the indices. C2: update has the operand's rank and element type, and no
    larger dimension.
    Source: XLA OP_SEMANTICS "DynamicUpdateSlice".
    """

    opcode = "dynamic-update-slice"
    traits = Trait.MOVEMENT
    inferable = False


class Gather(Op):
    """Slices of the operand at starts read from an array of indices, side by side.

    Let S be start_indices' dimensions (with a trailing 1 if index_vector_dim = rank). For a result
    index o: w = o at offset_dims, b = o elsewhere;
        p[start_index_map[k]] = S at b with k inserted at index_vector_dim, other p 0;
        p[d] = clamp(0, p[d], dim(operand, d) - slice_sizes[d]);
        p[operand_batching_dims[k]] = b at start_indices_batching_dims[k];
        result[o] = operand[p + w, expanded by 0 at collapsed and batching dimensions].

    C1: start_indices is integral. C2: 0 <= index_vector_dim <= rank(start_indices).
    C3: offset_dims ascending, distinct, in range of the result. C4: start_index_map has
    S[index_vector_dim] entries, distinct, in range. C5: collapsed_slice_dims ascending, distinct, in
    range. C6: operand_batching_dims likewise, as many as start_indices_batching_dims, which are
    distinct and in range of S. C7: slice_sizes has rank(operand) = offset_dims +
    collapsed_slice_dims + operand_batching_dims entries. C8: 0 <= slice_sizes[d] <= dim(operand, d).
    C9: sizes at collapsed and batching dimensions are at most 1. C10: collapsed, batching and mapped
    dimensions do not meet where that has no meaning; batching dimensions have equal sizes.
    Source: XLA OP_SEMANTICS "Gather"; StableHLO spec "gather".
    """

    opcode = "gather"
    arity = 2
    attrs = {
        "offset_dims": Attr(INTS),
        "collapsed_slice_dims": Attr(INTS),
        "start_index_map": Attr(INTS),
        "operand_batching_dims": Attr(INTS, ()),
        "start_indices_batching_dims": Attr(INTS, ()),
        "index_vector_dim": Attr(INT64),
        "slice_sizes": Attr(INTS),
        "indices_are_sorted": Attr(BOOL, False),
    }
    traits = Trait.MOVEMENT


class Scatter(Op):
    """The operands with updates combined into windows at starts read from an array of indices.

    For every scatter position (the non-window dimensions of updates, row-major): p from the indices
    as in gather, not clamped; a window that does not lie wholly inside is skipped; else for every
    window offset w: result[p + w] = f(result[p + w], update). Applied in this order.

    C1: indices are integral, 0 <= index_vector_dim <= rank. C2: rank(updates) = rank(S) - 1 +
    update_window_dims. C3: update_window_dims ascending, distinct, in range of updates.
    C4: inserted_window_dims ascending, distinct, in range. C5: rank(operand) = update_window_dims +
    inserted_window_dims + input_batching_dims. C6: scatter_dims_to_operand_dims has
    S[index_vector_dim] entries, distinct, in range. C7: input_batching_dims ascending, distinct, in
    range, as many as scatter_indices_batching_dims, which are distinct and in range of S.
    C8: updates' window dimensions are at most the operand's. C9: updates' other dimensions are the
    indices'. C10: f takes n current values, then n updates, all scalars, and returns n scalars of
    the current values' types. C11: as gather's C10; all operands have equal dimensions, all updates
    too; 2n + 1 operands.
    Source: XLA OP_SEMANTICS "Scatter"; StableHLO spec "scatter".
    """

    opcode = "scatter"
    attrs = {
        "update_window_dims": Attr(INTS),
        "inserted_window_dims": Attr(INTS),
        "scatter_dims_to_operand_dims": Attr(INTS),
        "input_batching_dims": Attr(INTS, ()),
        "scatter_indices_batching_dims": Attr(INTS, ()),
        "index_vector_dim": Attr(INT64),
        "indices_are_sorted": Attr(BOOL, False),
        "unique_indices": Attr(BOOL, False),
        "to_apply": Attr(COMPUTATION),
    }
