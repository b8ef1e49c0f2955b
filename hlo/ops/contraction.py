"""Ops that sum products: dot, ragged-dot, scaled-dot. Source: shared/OP_SEMANTICS.md section 11."""

from __future__ import annotations

from hlo.attributes.enums import DOT_ALGORITHM, OPERAND_PRECISION
from hlo.attributes.ints import INTS
from hlo.ops.table import Attr, Op

DOT_DIMENSIONS = {
    "lhs_batch_dims": Attr(INTS, ()),
    "lhs_contracting_dims": Attr(INTS, (), "always"),
    "rhs_batch_dims": Attr(INTS, ()),
    "rhs_contracting_dims": Attr(INTS, (), "always"),
}
HINTS = {
    "operand_precision": Attr(OPERAND_PRECISION, ()),
    "algorithm": Attr(DOT_ALGORITHM, "unset"),
}


class Dot(Op):
    """result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, n, k], in the result's type.

    b: the batch dimensions in lhs_batch_dims' order, m and n: the free dimensions in order, k: the
    contracting dimensions, paired as listed. Without attributes an outer product.
    C1: two operands. C2: arrays. C3: dimension numbers in range. C4: a side's contracting and batch
    dimensions are distinct. C5: as many contracting dimensions on both sides, of equal sizes.
    C6: likewise the batch dimensions.
    Floats are accumulated in f32 or wider and rounded once; integers wrap; pred is or of ands.
    Source: XLA OP_SEMANTICS "DotGeneral".
    """

    opcode = "dot"
    arity = 2
    attrs = {**DOT_DIMENSIONS, **HINTS}
    takes_shape = True


class RaggedDot(Op):
    """A dot whose groups of rows, or of contracted elements, or of batches, use their own part of rhs.

    With e[i] the end of group i (prefix sums of group_sizes):
    ragged free dimension: result[m, n] = sum over k of lhs[m, k] * rhs[i, k, n] for the first group i
    with m < e[i], 0 beyond; ragged contracting dimension: result[i, m, n] sums k in [e[i-1], e[i]);
    ragged batch dimension: result[b] = dot(lhs[b], rhs[b]) for b < e[last], else 0.
    C1: three operands. C2: dot's C2-C6. C3: one ragged dimension of lhs. C4: group_sizes has shape
    [G], or one row per prefix of batch (and free or contracting) dimensions before the ragged one;
    it is integral. C5: a ragged free dimension has one rhs_group_dim, of size G, the others none.
    Source: XLA OP_SEMANTICS "RaggedDot".
    """

    opcode = "ragged-dot"
    arity = 3
    attrs = {
        **DOT_DIMENSIONS,
        "lhs_ragged_dims": Attr(INTS, ()),
        "rhs_group_dims": Attr(INTS, ()),
        "operand_precision": Attr(OPERAND_PRECISION, ()),
    }
    takes_shape = True


class ScaledDot(Op):
    """A dot of operands multiplied by scales, each for a block of elements.

    lhs[i] counts as lhs[i] * lhs_scale[i // q] with q = dim(lhs) / dim(lhs_scale); rhs likewise; a
    scalar scale is 1. Operands: lhs, rhs, lhs_scale, rhs_scale.
    C1: four operands. C2: dot's rules on lhs and rhs. C3: a scale has its operand's rank unless it
    is a dummy (bf16 for bf16, one element), its sizes divide the operand's, and one dimension is
    contracted. C4: not both scales are scalars.
    """

    opcode = "scaled-dot"
    arity = 4
    attrs = {**DOT_DIMENSIONS, **HINTS}
    takes_shape = True
