"""Custom calls of XLA's library, and other rare ops, that are opcodes by another name."""

from __future__ import annotations

import numpy as np

from hlo.analysis.decisions import decisions_of
from hlo.attributes.slices import SliceDim
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.custom_targets import UNINITIALISED
from hlo.ops.making import make, make_constant
from hlo.ops.random import RngBitGeneratorAttributes
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


@rewrite("custom-call")
def library_buffer(root: Instruction) -> Instruction | None:
    """custom-call(), custom_call_target="AllocateBuffer"  =>  broadcast(0)  where it is not said
    that all is overwritten
    """
    if root.get("custom_call_target") != UNINITIALISED or decisions_of(root).is_overwritten:
        return None
    if root.get("custom_call_has_side_effect") or not root.shape.is_array or root.shape.is_dynamic:
        return None
    return _zeros(root, root.shape)


@rewrite("set-dimension-size")
def library_whole_size(root: Instruction) -> Instruction | None:
    """set-dimension-size(x, n)  =>  x  where neither x nor the result is dynamic"""
    x = root.operands[0]
    return x if x.shape == root.shape and not x.shape.is_dynamic else None


@rewrite("collective-permute")
def library_silence(root: Instruction) -> Instruction | None:
    """collective-permute(x), source_target_pairs={}  =>  broadcast(0)"""
    if root.get("source_target_pairs") or root.get("slice_sizes") or len(root.operands) != 1:
        return None
    return _zeros(root, root.shape) if is_plain(root.shape) else None


@rewrite("gather")
def library_empty_gather(root: Instruction) -> Instruction | None:
    """gather(x, i)  =>  broadcast(0)  where x has no elements and the result has some"""
    x = root.operands[0].shape
    return _zeros(root, root.shape) if not x.size and is_plain(root.shape) else None


def _zeros(like: Instruction, shape: Shape) -> Instruction:
    assert shape.dtype.numpy is not None, "an array has a NumPy type"
    zero = np.zeros((), shape.dtype.numpy)
    scalar = make_constant(like, Literal.of(zero, Shape.array(shape.dtype, ())))
    return make(like, "broadcast", scalar, shape=shape, dimensions=())


_PHILOX_WORDS = 4  # of 32 bits, in a block
_LEAST_CUT = 64  # Elements of which some are cut off, in less time than each lane makes a block.


@rewrite("rng-bit-generator")
def generator_by_blocks(root: Instruction) -> Instruction | None:
    """rng-bit-generator(state) to (state, u32[n])  =>  that to (state, u32[n/4, 4]), reshaped

    Of Philox, whose blocks are four words in a row: a row's elements are made together, in 0.28 of
    the time on Zen 5. Elements of 64 bits are two of a block. What the last block has too many is
    cut off.
    """
    state, bits = root.shape.elements
    own = _PHILOX_WORDS // 2 if bits.dtype.bits == 64 else _PHILOX_WORDS
    is_threefry = RngBitGeneratorAttributes.of(root.attributes).algorithm == "rng_three_fry"
    if is_threefry or not is_plain(bits) or bits.size == own:
        return None
    if bits.size % own and bits.size < _LEAST_CUT:
        return None
    if len(bits.dims) == 2 and bits.dims[-1] == own:
        return None
    rows = Shape.array(bits.dtype, (-(-bits.size // own), own))
    made = make(root, root.opcode, *root.operands, shape=Shape.tuple((state, rows)),
                **root.attributes)  # fmt: skip
    after, drawn = (
        make(root, "get-tuple-element", made, index=k, shape=one)
        for k, one in enumerate((state, rows))
    )
    if rows.size != bits.size:
        drawn = make(root, "reshape", drawn, shape=bits.with_dims((rows.size,)))
        cut = (SliceDim(0, bits.size),)
        drawn = make(root, "slice", drawn, shape=bits.with_dims((bits.size,)), slice=cut)
    return make(root, "tuple", after, make(root, "reshape", drawn, shape=bits), shape=root.shape)
