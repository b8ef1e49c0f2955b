"""Ops that read or write a slice whose start is given at run time.

Source: docs/semantics.md 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec.structs import replace

from hlo.attributes.ints import INTS
from hlo.errors import Violation
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import check_count, check_integral, check_rank, check_type, operand
from hlo.ops.shape_rules import Ints, braces, check_array, text
from hlo.ops.table import Op, Trait

Array = np.ndarray


class DynamicSliceAttributes(Attributes, frozen=True):
    dynamic_slice_sizes: Annotated[Ints, INTS]


class DynamicSlice(Op):
    """result = operand[start : start + dynamic_slice_sizes], start = clamp(0, index, dim - size).

    The indices are one scalar per dimension, or one array of rank 1 with all of them.
    C1: number of index operands. C2: scalars of one integral type. C3: one size per dimension, with
    0 <= size <= dim.
    A dimension is dynamic if the operand's is and size = dim > 1.
    Source: openxla.org/xla/operation_semantics, "DynamicSlice".
    """

    opcode = "dynamic-slice"
    record = DynamicSliceAttributes
    traits = Trait.MOVEMENT | Trait.CUTS_AT | Trait.MOVES_MEMORY | Trait.FINISHES
    inferable = False
    takes_operand_shapes = True

    @staticmethod
    def infer(*operands: Shape, attrs: DynamicSliceAttributes) -> Shape:
        x = _indexed(operands, 1)
        sizes = attrs.dynamic_slice_sizes
        check_count("dynamic_slice_sizes", sizes, x.rank, "C3")
        for d, (size, dim) in enumerate(zip(sizes, x.dims, strict=True)):
            if size < 0 or (dim != UNBOUNDED and size > dim):
                found = f"{braces(sizes)}, {size} in dimension {d}"
                expected = f"at least 0 and at most {dim} ({text(x)})"
                raise Violation("attribute-value", "dynamic_slice_sizes", found, expected, "C3")
        columns = zip(x.dynamic, sizes, x.dims, strict=True)
        return x.with_dims(sizes, (f and size == dim > 1 for f, size, dim in columns))

    @staticmethod
    def evaluate(
        *operands: Array, attrs: DynamicSliceAttributes, operand_shapes: tuple[Shape, ...]
    ) -> Array:
        from hlo.ops.extents import bounded

        dims = operand_shapes[0].dims
        starts = _clamped_starts(operands[1:], dims, attrs.dynamic_slice_sizes)
        x = bounded(operands[0], dims, attrs.dynamic_slice_sizes)
        parts = zip(starts, attrs.dynamic_slice_sizes, strict=True)
        return x[tuple(np.s_[s : s + n] for s, n in parts)]


def _indexed(operands: Sequence[Shape], first: int) -> Shape:
    """Operand 0, after the checks C1 and C2 of the index operands, which begin at `first`."""
    if len(operands) <= first:
        found = f"{len(operands)} operands"
        raise Violation("arity", "operands", found, f"at least {first + 1}", "C1")
    x, indices = operands[0], operands[first:]
    check_array(x, "operand 0", "C1")
    if len(indices) == 1 and indices[0].rank == 1:
        check_integral(indices[0], operand(first), "C2")
        if indices[0].dims != (x.rank,):
            expected = f"{x.rank} indices"
            raise Violation("shape-mismatch", operand(first), text(indices[0]), expected, "C1")
        return x
    if len(indices) != x.rank:
        found = f"{len(indices)} indices"
        raise Violation(
            "arity", "operands", found, f"{x.rank}, one per dimension of {text(x)}", "C1"
        )
    for i, index in enumerate(indices, start=first):
        check_integral(index, operand(i), "C2")
        if index.dims or index.dtype is not indices[0].dtype:
            expected = f"{indices[0].dtype}[], as the first index"
            raise Violation("shape-mismatch", operand(i), text(index), expected, "C2")
    return x


def _clamped_starts(indices: Sequence[Array], dims: Ints, sizes: Ints) -> list[int]:
    given = indices[0].tolist() if len(indices) == 1 and indices[0].ndim else map(int, indices)
    return [
        max(0, min(int(i), dim - size)) for i, dim, size in zip(given, dims, sizes, strict=True)
    ]


class DynamicUpdateSlice(Op):
    """The operand with `update` written at start = clamp(0, index, dim - update's dim).

    C1: as dynamic-slice for the indices. C2: update has the operand's rank and element type, and no
    larger dimension.
    Source: openxla.org/xla/operation_semantics, "DynamicUpdateSlice".
    """

    opcode = "dynamic-update-slice"
    traits = Trait.MOVEMENT | Trait.UPDATES | Trait.BUFFERS | Trait.SAME_LAYOUT | Trait.MOVES_MEMORY
    inferable = False
    takes_operand_shapes = True

    @staticmethod
    def infer(*operands: Shape) -> Shape:
        x = _indexed(operands, 2)
        update = operands[1]
        check_array(update, "operand 1", "C2")
        check_rank(update, x.rank, "operand 1", "C2")
        check_type(update, x, "operand 1", "C2")
        for d, (n, dim) in enumerate(zip(update.dims, x.dims, strict=True)):
            if n > dim != UNBOUNDED:
                expected = f"at most {dim} in dimension {d} ({text(x)})"
                raise Violation("shape-mismatch", "operand 1", text(update), expected, "C2")
        flags = zip(x.dynamic, update.dynamic, x.dims, update.dims, strict=True)
        dynamic = tuple(f or (g and n == dim) for f, g, dim, n in flags)
        return x if dynamic == x.dynamic else replace(x, dynamic=dynamic)

    @staticmethod
    def evaluate(*operands: Array, operand_shapes: tuple[Shape, ...]) -> Array:
        x, update, *indices = operands
        dims, sizes = operand_shapes[0].dims, operand_shapes[1].dims
        starts = _clamped_starts(indices, dims, sizes)
        result = np.array(x)
        inside = [
            max(0, min(n, m - s)) for n, m, s in zip(update.shape, x.shape, starts, strict=True)
        ]
        target = tuple(np.s_[s : s + n] for s, n in zip(starts, inside, strict=True))
        result[target] = update[tuple(np.s_[:n] for n in inside)]
        return result
