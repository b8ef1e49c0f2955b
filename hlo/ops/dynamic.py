"""Ops on the run-time sizes of dimensions.

A value with dynamic dimensions is an array cut to its run-time sizes (hlo/ops/extents.py).
Source: docs/control.md 4.
"""

from __future__ import annotations

import math

import numpy as np

from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.shape import UNBOUNDED, Shape, compatible
from hlo.ops.constraints import check_dimension, operand
from hlo.ops.movement import DimensionsAttributes
from hlo.ops.shape_rules import Ints, braces, check_array, text
from hlo.ops.table import KernelFamily, Op, Trait

Array = np.ndarray
SIZE = Shape.array(dt.S32)
LARGEST_SIZE = 2**31 - 1


class GetDimensionSize(Op):
    """The run-time size of dimension dimensions[0], s32[].

    C1: the operand is an array. C2: dimensions holds one of its dimensions. C3: its bound fits s32.
    """

    opcode = "get-dimension-size"
    arity = 1
    record = DimensionsAttributes

    @staticmethod
    def infer(x: Shape, *, attrs: DimensionsAttributes) -> Shape:
        _check_sized(x, attrs.dimensions)
        if x.dims[attrs.dimensions[0]] > LARGEST_SIZE:
            raise Violation("shape-mismatch", "operand 0", text(x), "a size that fits s32", "C3")
        return SIZE

    @staticmethod
    def evaluate(x: Array, *, attrs: DimensionsAttributes) -> Array:
        return np.array(x.shape[attrs.dimensions[0]], np.int32)


class SetDimensionSize(Op):
    """The operand with the run-time size of dimension dimensions[0] set to operand 1.

    A written result whose dimension is static takes its whole bound again; what lies beyond the
    operand's size is zero.
    C1: the operand is an array. C2: dimensions holds one of its dimensions. C3: the size is s32[].
    """

    opcode = "set-dimension-size"
    arity = 2
    record = DimensionsAttributes
    takes_shape = True

    @staticmethod
    def infer(x: Shape, size: Shape, *, attrs: DimensionsAttributes, shape: Shape | None) -> Shape:
        _check_sized(x, attrs.dimensions)
        _check_size(size, 1, "C3")
        flags = tuple(f or d == attrs.dimensions[0] for d, f in enumerate(x.dynamic))
        return x.with_dims(x.dims, flags).with_layout(x.layout)  # type: ignore[arg-type]  # an array has one

    @staticmethod
    def evaluate(x: Array, size: Array, *, attrs: DimensionsAttributes, shape: Shape) -> Array:
        from hlo.ops.extents import filled_to

        (along,) = attrs.dimensions[:1]
        bound = shape.dims[along]
        wanted = int(size) if shape.dynamic[along] else bound
        if not 0 <= wanted <= bound:
            raise Violation("arguments", "operand 1", f"{wanted}", f"at least 0, at most {bound}")
        cut = x[(np.s_[:],) * along + (np.s_[:wanted],)]
        return filled_to(cut, (*x.shape[:along], wanted, *x.shape[along + 1 :]))


class DynamicReshape(Op):
    """The operand's valid elements, row-major, under the run-time sizes that s32 scalars give.

    C1: one s32[] per dimension of the result. C2: equal element types. C3: equal element counts of
    the bounds.
    """

    opcode = "dynamic-reshape"
    traits = Trait.MOVEMENT
    family = KernelFamily.HOST
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(*operands: Shape, shape: Shape) -> Shape:
        if not operands:
            raise Violation("arity", "operands", "0", "at least 1", "C1")
        x = operands[0]
        check_array(x, "operand 0", "C1")
        check_array(shape, "result", "C1")
        if len(operands) - 1 != shape.rank:
            expected = f"{shape.rank}, one per dimension of {text(shape)}"
            raise Violation("arity", "operands", f"{len(operands) - 1} sizes", expected, "C1")
        for i, size in enumerate(operands[1:], start=1):
            _check_size(size, i, "C1")
        if x.dtype is not shape.dtype:
            raise Violation("dtype", "result", text(shape), f"element type {x.dtype}", "C2")
        if x.size != shape.size and UNBOUNDED not in (*x.dims, *shape.dims):
            raise Violation("shape-mismatch", "result", text(shape), f"{x.size} elements", "C3")
        return shape

    @staticmethod
    def evaluate(x: Array, *sizes: Array, shape: Shape) -> Array:
        extents = tuple(map(int, sizes))
        fits = all(0 <= n <= bound for n, bound in zip(extents, shape.dims, strict=True))
        if not fits or math.prod(extents) != x.size:
            found, expected = braces(extents), f"{x.size} elements inside of {text(shape)}"
            raise Violation("arguments", "operands", found, expected)
        return x.reshape(extents)


def _check_sized(x: Shape, dimensions: Ints) -> None:
    check_array(x, "operand 0", "C1")
    if not dimensions:
        raise Violation("attribute-value", "dimensions", "{}", "one dimension", "C2")
    check_dimension("dimensions", dimensions[0], x.rank, "C2")


def _check_size(size: Shape, index: int, label: str) -> None:
    if not compatible(size, SIZE):
        raise Violation("shape-mismatch", operand(index), text(size), "s32[]", label)
