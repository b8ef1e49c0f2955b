"""Custom calls of XLA's library that are opcodes by another name."""

from __future__ import annotations

from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import is_plain
from hlo.passes.rewriting import rewrite


@rewrite("custom-call")
def library_topk(root: Instruction) -> Instruction | None:
    """custom-call(x), custom_call_target="TopK"  =>  topk(x), k=K  to (f32[..,K], s32[..,K])"""
    if root.get("custom_call_target") != "TopK" or root.get("custom_call_has_side_effect"):
        return None
    if len(root.operands) != 1 or len(root.shape.elements) != 2:
        return None
    x, (values, indices) = root.operands[0].shape, root.shape.elements
    if not all(is_plain(s) for s in (x, values, indices)) or not x.dims or x.dtype.is_complex:
        return None
    if values.dims[:-1] != x.dims[:-1] or not 0 <= values.dims[-1] <= x.dims[-1]:
        return None
    if values.dtype is not x.dtype or indices != values.with_dtype(dt.S32):
        return None
    k = values.dims[-1]
    return make(root, "topk", root.operands[0], shape=root.shape, k=k, largest=True)
