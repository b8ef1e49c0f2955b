"""Ops that order elements: sort, topk. Source: docs/semantics.md 9."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.shape import UNBOUNDED, ProgramShape, Shape
from hlo.ops.attributes import Attributes, F
from hlo.ops.constraints import (
    check_count,
    check_dimension,
    check_operand_count,
    check_same_dims,
    operand,
)
from hlo.ops.shape_rules import Ints, check_array, check_arrays, same_type, text
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray


class SortAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    dimensions: Annotated[Ints, INTS]
    is_stable: Annotated[bool, BOOL] = False
    to_apply: Annotated[F, COMPUTATION]


class Sort(Op):
    """All operands permuted together along one dimension, as f(left, right) orders them; stable.

    f(a0, b0, a1, b1, ...) says whether the elements a come before the elements b; it is a strict
    weak order, or else the result is some permutation.
    C1: at least one operand. C2: dimensions holds one entry. C3: it is a dimension of the operands.
    C4: operands have equal dimensions. C5: f has 2n scalar parameters; 2k and 2k+1 have operand k's
    element type; it returns pred[].
    Source: openxla.org/xla/operation_semantics, "Sort".
    """

    opcode = "sort"
    record = SortAttributes
    traits = Trait.APPLIES
    family = KernelFamily.SORT

    @staticmethod
    def infer(*xs: Shape, attrs: SortAttributes[ProgramShape]) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C4")
        check_count("dimensions", attrs.dimensions, 1, "C2")
        check_dimension("dimensions", attrs.dimensions[0], xs[0].rank, "C3")
        for i, x in enumerate(xs):
            check_same_dims(x, xs[0], operand(i), "C4")
        return xs[0] if len(xs) == 1 else Shape.tuple(xs)

    @staticmethod
    def check(*xs: Shape, attrs: SortAttributes[ProgramShape], shape: Shape) -> None:
        if len(attrs.to_apply.parameters) != 2 * len(xs):
            found = f"a computation of {len(attrs.to_apply.parameters)} parameters"
            raise Violation("call-signature", "to_apply", found, f"{2 * len(xs)}", "C5")
        for i, parameter in enumerate(attrs.to_apply.parameters):
            wanted = xs[i // 2].dtype
            if not parameter.is_scalar or not same_type(parameter.dtype, wanted):
                found = f"a computation whose parameter {i} is {text(parameter)}"
                expected = f"{wanted}[], as {operand(i // 2)} has"
                raise Violation("call-signature", "to_apply", found, expected, "C5")
        if not attrs.to_apply.result.is_scalar or not attrs.to_apply.result.dtype.is_pred:
            found = f"a computation that returns {text(attrs.to_apply.result)}"
            raise Violation("call-signature", "to_apply", found, "pred[]", "C5")

    @staticmethod
    def evaluate(*xs: Array, attrs: SortAttributes[Callee]) -> object:
        (along,) = attrs.dimensions
        order = _order(xs, along, attrs.to_apply)
        results = tuple(np.take_along_axis(x, order, along) for x in xs)
        return results[0] if len(results) == 1 else results


def _order(xs: tuple[Array, ...], along: int, f: Callee) -> Array:
    from hlo.ops.comparators import merge_order, sort_keys

    keys = sort_keys(f.computation, xs)
    if keys is not None:
        order = np.argsort(keys[-1], axis=along, kind="stable")
        for key in keys[-2::-1]:
            again = np.argsort(np.take_along_axis(key, order, along), axis=along, kind="stable")
            order = np.take_along_axis(order, again, along)
        return order
    moved = [np.moveaxis(x, along, -1) for x in xs]
    count = moved[0].shape[-1]
    rows = [np.ascontiguousarray(m).reshape(m.size // max(count, 1), count) for m in moved]
    return np.moveaxis(merge_order(f, rows).reshape(moved[0].shape), -1, along)


class TopKAttributes(Attributes, frozen=True):
    k: Annotated[int, INT64]
    largest: Annotated[bool, BOOL, "always"] = True
    is_stable: Annotated[bool, BOOL, "given"] = True


class TopK(Op):
    """(values, s32 indices) of the k best along the last dimension; ties by lower index.

    Floats follow the total order (-NaN < -inf < ... < -0 < +0 < ... < inf < NaN).
    C1: an array of rank 1 or more. C2: 0 <= k <= the last dimension's size. C3: of a type that has
    an order: no complex numbers.
    Source: openxla.org/xla/operation_semantics, "TopK".
    """

    opcode = "topk"
    arity = 1
    record = TopKAttributes
    family = KernelFamily.SORT

    @staticmethod
    def infer(x: Shape, *, attrs: TopKAttributes) -> Shape:
        check_array(x, "operand 0", "C1")
        if not x.dims:
            raise Violation("shape-mismatch", "operand 0", text(x), "rank 1 or more", "C1")
        if x.dtype.is_complex:
            raise Violation("dtype", "operand 0", text(x), "elements that have an order", "C3")
        if x.dims[-1] == UNBOUNDED:
            expected = "a last dimension of known size"
            raise Violation("shape-mismatch", "operand 0", text(x), expected, "C2")
        if not 0 <= attrs.k <= x.dims[-1]:
            expected = f"at least 0 and at most {x.dims[-1]}"
            raise Violation("attribute-value", "k", f"{attrs.k}", expected, "C2")
        values = x.with_dims((*x.dims[:-1], attrs.k), (*x.dynamic[:-1], False))
        return Shape.tuple((values, values.with_dtype(dt.S32)))

    @staticmethod
    def evaluate(x: Array, *, attrs: TopKAttributes) -> tuple[Array, Array]:
        from hlo.ops.numerics import reals
        from hlo.ops.numerics.representation import dtype_of, widen

        key = reals.total_order(x) if dtype_of(x).is_float else widen(x)
        order = np.argsort(~key if attrs.largest else key, axis=-1, kind="stable")[..., : attrs.k]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)
