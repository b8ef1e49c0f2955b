"""Convolution. Source: docs/semantics.md 10 and 11."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from hlo.attributes.dim_labels import DIM_LABELS, DimLabels
from hlo.attributes.enums import CONVOLUTION_KIND, DOT_ALGORITHM, OPERAND_PRECISION
from hlo.attributes.scalars import INT64
from hlo.attributes.sparsity import SPARSITY, SparsityConfig
from hlo.attributes.window import WINDOW, Window, WindowDim
from hlo.errors import Violation
from hlo.ir.dtype import DType
from hlo.ir.shape import UNBOUNDED, Shape, size_text
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import check_rank
from hlo.ops.shape_rules import Ints, check_arrays, higher_precision, text
from hlo.ops.table import KernelFamily, Op
from hlo.ops.windows import (
    NO_WINDOW,
    check_places,
    check_window,
    dilated_and_padded,
    reads,
    result_size,
    result_sizes,
)

Array = np.ndarray
_UNIT = WindowDim(1)  # The window of a dimension in which none moves.


class ConvolutionAttributes(Attributes, frozen=True, kw_only=True):
    window: Annotated[Window, WINDOW] = NO_WINDOW
    dim_labels: Annotated[DimLabels, DIM_LABELS]
    feature_group_count: Annotated[int, INT64] = 1
    batch_group_count: Annotated[int, INT64] = 1
    convolution_kind: Annotated[str, CONVOLUTION_KIND] = "unset"
    operand_precision: Annotated[tuple[str, ...], OPERAND_PRECISION] = ()
    algorithm: Annotated[str, DOT_ALGORITHM] = "unset"
    sparsity_config: Annotated[SparsityConfig | None, SPARSITY, "given"] = None


class Convolution(Op):
    """result[n, y, c] = sum over kernel positions w and input features i of
    lhs[n + hb * (b / H), p, g * (f / G) + i] * rhs[w, i, c].

    g = c / (o / G), hb = c / (o / H), p * base_dilation = y * stride - low + w * window_dilation
    (skipped where not divisible or outside); w counts down in reversed dimensions. G is
    feature_group_count, H batch_group_count; lhs [b, spatial, f], rhs [spatial, i, o], result
    [b / H, spatial, o] in the orders of dim_labels. It is a cross-correlation.
    C1: two operands. C2: G >= 1, H >= 1, not both above 1.
    C3: as many spatial dimensions in all labels and in the window.
    C4: both operands have two more dimensions than that. C5: each part of the labels is a
    permutation. C6: f is a multiple of G and f / G = i. C7: o is a multiple of G and of H, b of H.
    C8: the window's sizes are rhs's spatial ones. C9: sizes, strides, dilations are at least 1.
    Accumulates as dot does.
    Source: openxla.org/xla/operation_semantics, "ConvGeneralDilated".
    """

    opcode = "convolution"
    arity = 2
    record = ConvolutionAttributes
    family = KernelFamily.CONTRACTION
    takes_shape = True

    @staticmethod
    def infer(
        lhs: Shape, rhs: Shape, *, attrs: ConvolutionAttributes, shape: Shape | None
    ) -> Shape:
        labels, window = attrs.dim_labels, attrs.window
        check_arrays((lhs, rhs), "C1")
        _check_groups(attrs.feature_group_count, attrs.batch_group_count)
        _check_labels(labels, lhs, rhs)
        _check_features(lhs, rhs, labels, attrs.feature_group_count, attrs.batch_group_count)
        check_window(window, len(labels.lhs_spatial), "C3", "C9")
        for k, (w, d) in enumerate(zip(window.dims, labels.rhs_spatial, strict=True)):
            if w.size != rhs.dims[d]:
                found = f"of size {w.size} in spatial dimension {k}"
                size = size_text(rhs.dims[d])
                expected = f"{size}, the size of dimension {d} of {text(rhs)}"
                raise Violation("attribute-value", "window", found, expected, "C8")
        dtype = shape.dtype if shape and shape.is_array else higher_precision(lhs.dtype, rhs.dtype)
        return _result_shape(lhs, rhs, labels, window, attrs.batch_group_count, dtype)

    @staticmethod
    def check(lhs: Shape, rhs: Shape, *, attrs: ConvolutionAttributes, shape: Shape) -> None:
        if attrs.convolution_kind not in ("unset", "fprop"):
            raise Violation("unsupported", "convolution_kind", attrs.convolution_kind, "fprop")
        if attrs.sparsity_config is not None:
            raise Violation("unsupported", "sparsity_config", "given", "none")

    @staticmethod
    def evaluate(lhs: Array, rhs: Array, *, attrs: ConvolutionAttributes, shape: Shape) -> Array:
        from hlo.ops.products import summed, terms

        labels, window = attrs.dim_labels, attrs.window
        groups, batches = attrs.feature_group_count, attrs.batch_group_count
        x = lhs.transpose(labels.lhs_batch, labels.lhs_feature, *labels.lhs_spatial)
        y = rhs.transpose(*labels.rhs_spatial, labels.rhs_input_feature, labels.rhs_output_feature)
        y = np.flip(y, tuple(k for k, w in enumerate(window.dims) if w.reversed))
        check_places(x.shape[2:], window)
        total = _convolved(terms(x, shape.dtype), terms(y, shape.dtype), window, groups, batches)
        order = (labels.out_batch, labels.out_feature, *labels.out_spatial)
        return summed(total, shape.dtype).transpose(np.argsort(order))


def _convolved(x: Array, y: Array, window: Window, groups: int, batches: int) -> Array:
    """x [b, f, spatial] with y [spatial, i, o] -> [b / batches, o, spatial], in one wide type."""
    count, features = x.shape[0] // batches, x.shape[1] // groups
    outputs = y.shape[-1] // (groups * batches)
    sizes = result_sizes(x.shape[2:], window)
    every = dilated_and_padded_spatially(x, window)
    # one product per kernel position, groups of features or of the batch as its batch axis
    split = every.reshape(batches, count, groups, features, *every.shape[2:])
    merged = np.moveaxis(split, 2, 1).reshape(batches * groups, count, features, *every.shape[2:])
    total = np.zeros((batches * groups, count * math.prod(sizes), outputs), x.dtype)
    finite = y.dtype.kind not in "fc" or bool(np.isfinite(y).all())
    if total.size:
        for position in np.ndindex(*y.shape[:-2]):
            rows = _rows_at(merged, window, position, sizes)
            kernel = y[position].reshape(features, batches * groups, outputs).swapaxes(0, 1)
            with np.errstate(all="ignore"):
                met = rows * kernel if features == 1 else np.matmul(rows, kernel)
            if not finite:  # zeros written into holes must not meet an infinite kernel
                inside = np.broadcast_to(reads(x.shape[2:], window, position).inside, sizes)
                met = np.where(np.tile(inside.reshape(-1), count)[:, None], met, 0)
            total += met
    unrolled = total.reshape(batches * groups, count, *sizes, outputs)
    features_last = np.moveaxis(unrolled, 0, -2)
    flat = features_last.reshape(count, *sizes, batches * groups * outputs)
    return np.moveaxis(flat, -1, 1)


def _rows_at(x: Array, window: Window, position: Ints, sizes: Ints) -> Array:
    """What one kernel position meets: [groups, count * output positions, features]."""
    parts = []
    for at, w, size in zip(position, window.dims, sizes, strict=True):
        start = at * w.window_dilation
        parts.append(np.s_[start : start + (size - 1) * w.stride + 1 : w.stride])
    met = np.moveaxis(x[(np.s_[:],) * 3 + tuple(parts)], 2, -1)
    return np.ascontiguousarray(met).reshape(x.shape[0], x.shape[1] * math.prod(sizes), x.shape[2])


def dilated_and_padded_spatially(x: Array, window: Window) -> Array:
    """x [b, f, spatial] with holes and padding written out as zeros."""
    whole = Window((_UNIT, _UNIT, *window.dims))
    return dilated_and_padded(x, whole, 0)


def _check_groups(features: int, batches: int) -> None:
    for at, count in (("feature_group_count", features), ("batch_group_count", batches)):
        if count < 1:
            raise Violation("attribute-value", at, f"{count}", "at least 1", "C2")
    if features > 1 and batches > 1:
        expected = f"1 beside feature_group_count={features}"
        raise Violation("attribute-value", "batch_group_count", f"{batches}", expected, "C2")


def _check_labels(labels: DimLabels, lhs: Shape, rhs: Shape) -> None:
    n = len(labels.lhs_spatial)
    if not n == len(labels.rhs_spatial) == len(labels.out_spatial):
        found = f"of {n}, {len(labels.rhs_spatial)}, {len(labels.out_spatial)} spatial dimensions"
        raise Violation("attribute-value", "dim_labels", found, "equal numbers", "C3")
    check_rank(lhs, n + 2, "operand 0", "C4")
    check_rank(rhs, n + 2, "operand 1", "C4")
    parts = (
        (labels.lhs_batch, labels.lhs_feature, *labels.lhs_spatial),
        (labels.rhs_input_feature, labels.rhs_output_feature, *labels.rhs_spatial),
        (labels.out_batch, labels.out_feature, *labels.out_spatial),
    )
    for part in parts:
        if sorted(part) != list(range(n + 2)):
            found = f"such that dimensions {part} have a role"
            raise Violation("attribute-value", "dim_labels", found, "each dimension once", "C5")


def _check_features(lhs: Shape, rhs: Shape, labels: DimLabels, groups: int, batches: int) -> None:
    f, b = lhs.dims[labels.lhs_feature], lhs.dims[labels.lhs_batch]
    i, o = rhs.dims[labels.rhs_input_feature], rhs.dims[labels.rhs_output_feature]
    # `?` is no multiple of 2 and more, and equals nothing else, in XLA as here.
    if f % groups or f // groups != i:
        found = f"{text(rhs)}, {size_text(i)} input features"
        expected = f"{size_text(f)} (of {text(lhs)}) / feature_group_count={groups}"
        raise Violation("shape-mismatch", "operand 1", found, expected, "C6")
    if o != UNBOUNDED and (o % groups or o % batches):
        found = f"{text(rhs)}, {o} output features"
        expected = f"a multiple of {groups * batches} groups"
        raise Violation("shape-mismatch", "operand 1", found, expected, "C7")
    if b % batches:
        found = f"{text(lhs)}, {size_text(b)} in the batch dimension"
        raise Violation("shape-mismatch", "operand 0", found, f"a multiple of {batches}", "C7")
    if rhs.dynamic[labels.rhs_output_feature]:
        expected = "a static output feature dimension"
        raise Violation("shape-mismatch", "operand 1", text(rhs), expected, "C7")


def _result_shape(
    lhs: Shape, rhs: Shape, labels: DimLabels, window: Window, batches: int, dtype: DType
) -> Shape:
    rank = lhs.rank
    dims, dynamic = [0] * rank, [False] * rank
    b = lhs.dims[labels.lhs_batch]
    dims[labels.out_batch] = b if b == UNBOUNDED else b // batches
    dynamic[labels.out_batch] = lhs.dynamic[labels.lhs_batch]
    dims[labels.out_feature] = rhs.dims[labels.rhs_output_feature]
    for k, w in enumerate(window.dims):
        source, kernel, at = labels.lhs_spatial[k], labels.rhs_spatial[k], labels.out_spatial[k]
        dims[at] = result_size(lhs.dims[source], w)
        dynamic[at] = lhs.dynamic[source] or rhs.dynamic[kernel]
    return Shape.array(dtype, dims, dynamic=dynamic)
