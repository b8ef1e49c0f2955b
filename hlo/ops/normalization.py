"""Batch normalisation. Source: docs/semantics.md 12.

Constraints of all three. C1: operand 0 is a floating array of rank >= 1. C2: 0 <= feature_index <
rank. C3: the per-feature operands have rank 1 and that dimension's size, and operand 0's element
type up to float precision (exactly: rule MP). N is the number of elements per feature.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hlo.attributes.scalars import FLOAT, INT64
from hlo.errors import Violation
from hlo.ir.dtype import Kind
from hlo.ir.shape import Shape
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import check_same_dims
from hlo.ops.numerics.representation import Array, dtype_of, rounded
from hlo.ops.shape_rules import check_array, check_kind, check_same_type, text
from hlo.ops.table import Op, Trait


class BatchNormAttributes(Attributes, frozen=True):
    """Of all three."""

    epsilon: Annotated[float, FLOAT, "always"]
    feature_index: Annotated[int, INT64, "always"]


class BatchNormTraining(Op):
    """(y, mean, var): mean = sum(x)/N, var = sum((x-mean)^2)/N,
    y = (x-mean) rsqrt(var+epsilon) scale + offset.
    """

    opcode = "batch-norm-training"
    arity = 3
    record = BatchNormAttributes
    traits = Trait.EXPANDED
    ulp = 16.0

    @staticmethod
    def infer(x: Shape, scale: Shape, offset: Shape, *, attrs: BatchNormAttributes) -> Shape:
        feature = _feature_shape(x, (scale, offset), attrs.feature_index)
        return Shape.tuple((x, feature, feature))

    @staticmethod
    def evaluate(
        x: Array, scale: Array, offset: Array, *, attrs: BatchNormAttributes
    ) -> tuple[Array, Array, Array]:
        batch = _Batch(x, attrs.feature_index, attrs.epsilon)
        wide = batch.wide(x)
        with np.errstate(all="ignore"):
            mean = batch.mean(wide)
            variance = batch.mean(np.square(wide - batch.spread(mean)))
            y = batch.normalised(x, mean, variance) * batch.spread(scale) + batch.spread(offset)
            return batch.narrow(y), batch.narrow(mean), batch.narrow(variance)


class BatchNormInference(Op):
    """(x-mean) rsqrt(var+epsilon) scale + offset, with the given mean and var."""

    opcode = "batch-norm-inference"
    arity = 5
    record = BatchNormAttributes
    traits = Trait.EXPANDED
    ulp = 16.0

    @staticmethod
    def infer(
        x: Shape,
        scale: Shape,
        offset: Shape,
        mean: Shape,
        variance: Shape,
        *,
        attrs: BatchNormAttributes,
    ) -> Shape:
        _feature_shape(x, (scale, offset, mean, variance), attrs.feature_index)
        return x

    @staticmethod
    def evaluate(
        x: Array,
        scale: Array,
        offset: Array,
        mean: Array,
        variance: Array,
        *,
        attrs: BatchNormAttributes,
    ) -> Array:
        batch = _Batch(x, attrs.feature_index, attrs.epsilon)
        with np.errstate(all="ignore"):
            normalised = batch.normalised(x, mean, variance)
            return batch.narrow(normalised * batch.spread(scale) + batch.spread(offset))


class BatchNormGrad(Op):
    """(dx, dscale, doffset) for dy, with the given mean and var; r = rsqrt(var+epsilon):
    dscale = sum(dy (x-mean)) r, doffset = sum(dy),
    dx = scale r (dy - doffset/N - (x-mean) r dscale/N).

    C4: dy has x's dimensions and element type.
    """

    opcode = "batch-norm-grad"
    arity = 5
    record = BatchNormAttributes
    traits = Trait.EXPANDED
    ulp = 32.0

    @staticmethod
    def infer(
        x: Shape,
        scale: Shape,
        mean: Shape,
        variance: Shape,
        dy: Shape,
        *,
        attrs: BatchNormAttributes,
    ) -> Shape:
        feature = _feature_shape(x, (scale, mean, variance), attrs.feature_index)
        check_array(dy, "operand 4", "C4")
        check_same_type((x, dy), "C4")
        check_same_dims(dy, x, "operand 4", "C4")
        return Shape.tuple((x, feature, feature))

    @staticmethod
    def evaluate(
        x: Array,
        scale: Array,
        mean: Array,
        variance: Array,
        dy: Array,
        *,
        attrs: BatchNormAttributes,
    ) -> tuple[Array, Array, Array]:
        batch = _Batch(x, attrs.feature_index, attrs.epsilon)
        gradient = batch.wide(dy)
        with np.errstate(all="ignore"):
            normalised = batch.normalised(x, mean, variance)
            root = 1 / np.sqrt(batch.spread(variance) + batch.epsilon)
            dscale, doffset = batch.sum(gradient * normalised), batch.sum(gradient)
            centred = gradient - batch.spread(doffset) / batch.count
            dx = centred - normalised * batch.spread(dscale) / batch.count
            scaled = batch.spread(scale) * root * dx
            return batch.narrow(scaled), batch.narrow(dscale), batch.narrow(doffset)


class _Batch:
    """Sums per feature and their broadcasts over one operand, in f64."""

    def __init__(self, x: Array, feature_index: int, epsilon: float) -> None:
        self.dtype = dtype_of(x)
        self.others = tuple(d for d in range(x.ndim) if d != feature_index)
        self.spread_shape = tuple(n if d == feature_index else 1 for d, n in enumerate(x.shape))
        self.count = x.size // max(1, x.shape[feature_index])
        rounded_epsilon = rounded(np.asarray(epsilon, np.float64), self.dtype)
        self.epsilon = rounded_epsilon.astype(np.float64)

    def wide(self, values: Array) -> Array:
        return values.astype(np.float64)

    def narrow(self, values: Array) -> Array:
        return rounded(values, self.dtype)

    def spread(self, feature: Array) -> Array:
        return self.wide(feature).reshape(self.spread_shape)

    def sum(self, values: Array) -> Array:
        return np.asarray(np.sum(values, axis=self.others))

    def mean(self, values: Array) -> Array:
        return np.asarray(self.sum(values)) / np.float64(self.count)

    def normalised(self, x: Array, mean: Array, variance: Array) -> Array:
        root = 1 / np.sqrt(self.spread(variance) + self.epsilon)
        return np.asarray((self.wide(x) - self.spread(mean)) * root)


def _feature_shape(x: Shape, per_feature: tuple[Shape, ...], feature_index: int) -> Shape:
    """The shape of per-feature results, once C1 to C3 hold."""
    check_kind(x, frozenset({Kind.FLOAT}), "operand 0", "C1")
    if x.rank < 1:
        raise Violation("shape-mismatch", "operand 0", text(x), "rank 1 or more", "C1")
    if not 0 <= feature_index < x.rank:
        expected = f"at least 0 and below {x.rank}"
        raise Violation("attribute-value", "feature_index", f"{feature_index}", expected, "C2")
    feature = Shape.array(x.dtype, (x.dims[feature_index],), dynamic=(x.dynamic[feature_index],))
    for i, shape in enumerate(per_feature, start=1):
        check_array(shape, f"operand {i}", "C3")
        check_same_dims(shape, feature, f"operand {i}", "C3")
    check_same_type((x, *per_feature), "C3")
    return feature
