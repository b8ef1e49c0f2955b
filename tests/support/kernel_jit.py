"""One instruction's kernel under test: compiled alone and called on arrays, in several ranges."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable

import numpy as np

from hlo.analysis.leaves import leaves_of
from hlo.backend.ir.kernel import Kernel
from hlo.ir.instruction import Instruction
from hlo.parser.parse import parse
from tests.support.lanes_jit import compile_text

_GUARD = 64
_POISON = 0xA5


def root_of(text: str) -> Instruction:
    """The root instruction of a module's entry computation."""
    return parse(text).entry.root


def kernel_function(
    instruction: Instruction, kernel: Kernel, ranges: int = 2
) -> Callable[..., list[np.ndarray]]:
    """Operand arrays to result arrays. Bytes around results and scratch are checked for writes."""
    text = "\n".join([*kernel.declarations, *(x.text for x in kernel.globals), kernel.text])
    address = compile_text(text.replace("@KERNEL", "@test"), "test")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    shapes = leaves_of(instruction.shape)

    def run(*operands: np.ndarray) -> list[np.ndarray]:
        inputs = [np.ascontiguousarray(o) for o in operands]
        sizes = [s.size_bytes for s in shapes] + [kernel.scratch_bytes]
        blocks = [np.full(n + 2 * _GUARD, _POISON, np.uint8) for n in sizes]
        inside = [b[_GUARD : _GUARD + n] for b, n in zip(blocks, sizes, strict=True)]
        addresses = [i.ctypes.data for i in inputs] + [b.ctypes.data + _GUARD for b in blocks]
        for operand, result in kernel.must_alias:
            inside[result][:] = inputs[operand].reshape(-1).view(np.uint8)
            addresses[operand] = addresses[len(inputs) + result]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        cuts = [kernel.units * k // ranges for k in range(ranges + 1)]
        for begin, end in itertools.pairwise(cuts):
            if begin < end:  # as all callers
                call(ctypes.addressof(table), begin, end)
        for block in blocks:
            assert (block[:_GUARD] == _POISON).all(), "a write before a buffer"
            assert (block[-_GUARD:] == _POISON).all(), "a write behind a buffer"
        return [
            b.view(s.dtype.numpy).reshape(s.dims).copy()
            for b, s in zip(inside, shapes, strict=False)
        ]

    return run
