"""scatter-splitting: many integers that meet in few elements are combined in parts, side by side.

    scatter(x, i, u), f  =>  f(x, reduce-f over p of scatter(e, i[p], u[p]))       e f's identity

Histograms and counts: the positions of a scatter run one after the other, for they may name one
element, so one thread takes them all. Each part has a table of its own, which is the batch that
the kernel's units are (kernels/scatter/scatter.py); the tables are few elements beside the
positions. Exact: an op on integers that is associative and commutative modulo 2^bits gives the same
number in any order, and a position that is out of bounds is so in its part's table.
"""

from __future__ import annotations

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.axis_reductions import operations
from hlo.ops.identities import identity
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.making import make, make_constant
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import replace, replaceable
from hlo.passes.loop_making import reducer
from hlo.passes.patterns.matching import is_plain

LEAST_POSITIONS = 1 << 16  # A thread takes fewer in less time than two need to meet.
POSITIONS_PER_ELEMENT = 4  # There are at least so many for each element of all tables.
MOST_PARTS = 8  # Enough for a few cores.
_LEAST_PARTS = 4
_ASSOCIATIVE = opcodes(Trait.ASSOCIATIVE)


def scatter_splitting(module: Module) -> bool:
    """Combine integers into tables by parts. O(instructions).

    Of scatters of single elements, many for each element of the operand, where a number of parts
    from 4 to 8 divides them.
    """
    found = [(s, parts) for s in replaceable(module, "scatter") if (parts := _parts(s))]
    for scatter, parts in found:
        replace(scatter, _split(module, scatter, parts))
    return bool(found)


def _parts(scatter: Instruction) -> int:
    """How many parts a scatter's positions are worth; 0 for none."""
    if len(scatter.operands) != 3 or not all(is_plain(o.shape) for o in scatter.operands):
        return 0
    x, indices, updates = (o.shape for o in scatter.operands)
    attrs = ScatterAttributes[Computation].of(scatter.attributes)
    is_single = not attrs.update_window_dims and not attrs.input_batching_dims
    if not is_single or indices.rank != 2 or attrs.index_vector_dim != 1 or not x.rank:
        return 0
    opcode = _opcode(attrs.to_apply)
    if not x.dtype.is_integral or opcode not in _ASSOCIATIVE or updates.dtype is not x.dtype:
        return 0
    if updates.size < LEAST_POSITIONS or attrs.unique_indices:
        return 0
    most = min(MOST_PARTS, updates.size // (POSITIONS_PER_ELEMENT * max(1, x.size)))
    return next((n for n in range(most, _LEAST_PARTS - 1, -1) if updates.size % n == 0), 0)


def _opcode(combiner: Computation) -> str:
    """The op that combines an element and an update, if it is one."""
    found = operations(combiner, 1)
    return found[0] if found else ""


def _split(module: Module, scatter: Instruction, parts: int) -> Instruction:
    x, indices, updates = scatter.operands
    attrs = ScatterAttributes[Computation].of(scatter.attributes)
    opcode, scalar = _opcode(attrs.to_apply), Shape.array(x.shape.dtype, ())
    nothing = np.array(identity(opcode, scalar.dtype)).astype(scalar.dtype.numpy)
    start = make_constant(scatter, Literal.of(nothing, scalar))
    each = updates.shape.size // parts

    def parted(array: Instruction) -> Instruction:
        shape = Shape.array(array.shape.dtype, (parts, each, *array.shape.dims[1:]))
        if array.opcode == "broadcast" and not array.operands[0].shape.rank:
            return make(scatter, "broadcast", array.operands[0], shape=shape, dimensions=())
        return make(scatter, "reshape", array, shape=shape)

    shape = Shape.array(scalar.dtype, (parts, *x.shape.dims))
    tables = make(scatter, "broadcast", start, shape=shape, dimensions=())
    combined = make(
        scatter, "scatter", tables, parted(indices), parted(updates), shape=shape,
        to_apply=attrs.to_apply, index_vector_dim=2, update_window_dims=(),
        inserted_window_dims=tuple(d + 1 for d in attrs.inserted_window_dims),
        scatter_dims_to_operand_dims=tuple(d + 1 for d in attrs.scatter_dims_to_operand_dims),
        input_batching_dims=(0,), scatter_indices_batching_dims=(0,),
    )  # fmt: skip
    adder = reducer(module, scatter, opcode, scalar)
    total = make(scatter, "reduce", combined, start, dimensions=(0,), to_apply=adder)
    return make(scatter, opcode, x, total)
