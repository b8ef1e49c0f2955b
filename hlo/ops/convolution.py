"""Convolution. Source: shared/OP_SEMANTICS.md sections 10 and 11."""

from __future__ import annotations

from hlo.attributes.dim_labels import DIM_LABELS
from hlo.attributes.enums import CONVOLUTION_KIND, DOT_ALGORITHM, OPERAND_PRECISION
from hlo.attributes.scalars import INT64
from hlo.attributes.sparsity import SPARSITY
from hlo.attributes.window import WINDOW
from hlo.ops.table import Attr, Op
from hlo.ops.windows import NO_WINDOW


class Convolution(Op):
    """result[n, y, c] = sum over kernel positions w and input features i of
    lhs[n + hb * (b / H), p, g * (f / G) + i] * rhs[w, i, c].

    g = c / (o / G), hb = c / (o / H), p * base_dilation = y * stride - low + w * window_dilation
    (skipped where not divisible or outside); w counts down in reversed dimensions. G is
    feature_group_count, H batch_group_count; lhs [b, spatial, f], rhs [spatial, i, o], result
    [b / H, spatial, o] in the orders of dim_labels. It is a cross-correlation.
    C1: two operands. C2: G >= 1, H >= 1, not both above 1. C3: as many spatial dimensions in all
    labels and in the window. C4: both operands have two more dimensions than that. C5: each part of
    the labels is a permutation. C6: f is a multiple of G and f / G = i. C7: o is a multiple of G and
    of H, b of H. C8: the window's sizes are rhs's spatial ones. C9: sizes, strides and dilations are
    at least 1.
    Accumulates as dot does.
    Source: XLA OP_SEMANTICS "ConvGeneralDilated".
    """

    opcode = "convolution"
    arity = 2
    attrs = {
        "window": Attr(WINDOW, NO_WINDOW),
        "dim_labels": Attr(DIM_LABELS),
        "feature_group_count": Attr(INT64, 1),
        "batch_group_count": Attr(INT64, 1),
        "convolution_kind": Attr(CONVOLUTION_KIND, "unset"),
        "operand_precision": Attr(OPERAND_PRECISION, ()),
        "algorithm": Attr(DOT_ALGORITHM, "unset"),
        "sparsity_config": Attr(SPARSITY, None, "given"),
    }
    takes_shape = True
