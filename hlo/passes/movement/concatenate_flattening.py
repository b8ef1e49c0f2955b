"""concatenate-flattening: short rows that are joined lie in rows of the last dimension.

    reshape(concatenate(a[n, 1, r], b[n, 1, r]; along 1))
        =>  reshape(concatenate(reshape(a) [n, r], reshape(b) [n, r]; along the last))

A butterfly's sums and differences put back in turns (`stack([a + b, a - b], 2)` of neighbours or of
pairs: transforms by Walsh and Haar, sorting networks, gates of a quantum circuit, transforms over
integers). A kernel has loops of its own over each operand of a concatenate, which are as short as
the operand's rows; those of a last dimension that is short it computes for as many rows as it has
lanes, and puts their vectors together in registers. On Zen 5 neighbours take 0.21 of the time,
pairs 0.3 (0.77 without AVX-512).
"""

from __future__ import annotations

from math import prod

from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.making import make
from hlo.passes.liveness import replace, replaceable
from hlo.passes.patterns.matching import ints, is_plain

_MOST_ROW = 4  # Elements of a row that is put together in registers.


def concatenate_flattening(module: Module) -> bool:
    """Join short rows along the last dimension, where that only counts them otherwise.

    O(concatenates).
    """
    changed = False
    for joined in replaceable(module, "concatenate"):
        if _joins_short_rows(joined):
            _flatten(joined)
            changed = True
    return changed


def _joins_short_rows(joined: Instruction) -> bool:
    """Whether what lies behind the dimension along which arrays are joined is short with it, and
    nobody reads it but as another shape, or as a result."""
    (along,) = ints(joined, "dimensions")
    dims = joined.shape.dims
    if along == len(dims) - 1 or not 1 < prod(dims[along:]) <= _MOST_ROW:
        return False
    if not all(map(is_plain, (joined.shape, *(o.shape for o in joined.operands)))):
        return False
    if joined.shape.dtype.is_complex or prod(dims[:along]) == 1:
        return False  # parts of numbers lie in turns already
    if not all(prod(o.shape.dims) for o in joined.operands):
        return False
    return all(user.opcode in ("reshape", "tuple") for user in joined.users)


def _flatten(joined: Instruction) -> None:
    (along,) = ints(joined, "dimensions")
    rows = [_row(joined, operand, along) for operand in joined.operands]
    shape = joined.shape.with_dims((*joined.shape.dims[:along], prod(joined.shape.dims[along:])))
    flat = make(joined, "concatenate", *rows, shape=shape, dimensions=(along,))
    computation = joined.computation
    assert computation is not None, "an instruction in a computation"
    for user in tuple(joined.users):
        if user.opcode == "reshape":
            computation.set_operands(user, (flat,))
    if joined.users or joined.is_root:
        replace(joined, make(joined, "reshape", flat, shape=joined.shape))


def _row(joined: Instruction, operand: Instruction, along: int) -> Instruction:
    """An operand with all that lies behind the dimension as one."""
    dims = operand.shape.dims
    shape = operand.shape.with_dims((*dims[:along], prod(dims[along:])))
    while operand.opcode == "reshape":
        (operand,) = operand.operands
    if operand.shape == shape:
        return operand
    return make(joined, "reshape", operand, shape=shape)
