"""Subnormal vectors: products by a vector with such numbers, without the processor's assist for
each row of the matrix.

    the vector has some -> the product on doubles, of which none is subnormal; else the usual one

A matrix is read once, by many additions an element of the vector: to look at the vector takes
little, and doubles no more bandwidth.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.analysis.tails import tails
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction, Operand, reach
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.words.subnormal_check import can_be_looked_at, has_subnormals
from hlo.backend.kernels.versions import of_read
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

_LEAST_REUSE = 24  # Products an element of the vector, beside which looking at it takes little.


def vector_with_tails(dot: Instruction, c: Contraction, target: Target) -> str | None:
    """The side of a product that is a vector, or one for each matrix, and is likely to have
    subnormal numbers.
    """
    around = dot.computation
    if around is None or dot.opcode != "dot" or {c.lhs.dtype, c.rhs.dtype, c.out} != {dt.F32}:
        return None
    if not can_be_looked_at(target):
        return None
    found = tails(around)
    for n, (side, size) in enumerate((("lhs", c.m), ("rhs", c.n))):
        factor: Operand = getattr(c, side)
        if size != 1 or (dot.operands[n], ()) not in found:
            continue
        is_plain = not factor.starts and factor.prologue is None and factor.joined is None
        if is_plain and c.flops >= 2 * _LEAST_REUSE * reach(c, side):
            return side
    return None


def in_versions(
    usual: KernelSequence, careful: KernelSequence, c: Contraction, side: str, target: Target
) -> KernelSequence:
    """The kernel of the usual product or of that on doubles, by what the vector on a side has;
    the usual ones where either has several.
    """
    factor: Operand = getattr(c, side)
    if len(usual.calls) != 1 or len(careful.calls) != 1:
        return usual
    (first,), (second,) = usual.calls, careful.calls
    if first.buffers != second.buffers or factor.buffer not in first.buffers:
        return usual
    place = first.buffers.index(factor.buffer)

    def found(w: Writer) -> Value:
        array = address_0(w, w.buffer_address(place), factor, 0)
        return has_subnormals(w, c, side, array, target)

    kernel = of_read(first.kernel, second.kernel, found)
    if target.schedules is not None:
        target.schedules.enter_same(kernel.text, first.kernel.text)
    return replace(usual, calls=(replace(first, kernel=kernel),))
