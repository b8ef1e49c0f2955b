"""Ops that order elements: sort, topk. Source: shared/OP_SEMANTICS.md section 9."""

from __future__ import annotations

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.ops.table import Attr, Op, Trait


class Sort(Op):
    """All operands permuted together along one dimension so that f(left, right) orders them; stable.

    f(a0, b0, a1, b1, ...) says whether the elements a come before the elements b; it is a strict
    weak order, or else the result is some permutation.
    C1: at least one operand. C2: dimensions holds one entry. C3: it is a dimension of the operands.
    C4: operands have equal dimensions. C5: f has 2n scalar parameters; 2k and 2k+1 have operand k's
    element type; it returns pred[].
    Source: XLA OP_SEMANTICS "Sort".
    """

    opcode = "sort"
    attrs = {
        "dimensions": Attr(INTS),
        "is_stable": Attr(BOOL, False),
        "to_apply": Attr(COMPUTATION),
    }


class TopK(Op):
    """(values, s32 indices) of the k best along the last dimension, best first, ties by lower index.

    Floats follow the total order (-NaN < -inf < ... < -0 < +0 < ... < inf < NaN).
    C1: an array of rank 1 or more. C2: 0 <= k <= the last dimension's size.
    Source: XLA OP_SEMANTICS "TopK".
    """

    opcode = "topk"
    arity = 1
    attrs = {
        "k": Attr(INT64),
        "largest": Attr(BOOL, True, "always"),
        "is_stable": Attr(BOOL, True),
    }
