"""Offsets: where a factor begins in its array, some of which the run alone knows.

    array's address, Operand --> place of the factor's element 0

A kernel that reads a factor from memory finds the integers that say where it begins in buffers
behind all others that it has, those of lhs before those of rhs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.constants import clamped_index
from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.addressing import Place, Position
from hlo.backend.kernels.contraction.problem.axes import Operand
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.lanes.types import storage_scalar
from hlo.indexing import affine


def start_buffers(factors: Sequence[Operand]) -> tuple[int, ...]:
    """The sequence's buffers that say where the factors begin, or what they are computed from."""
    return tuple(buffer for factor in factors for buffer in _beginnings(factor))


def offsets_of(factor: Operand) -> int:
    """How many of these buffers a factor has."""
    return len(_beginnings(factor))


def _beginnings(factor: Operand) -> tuple[int, ...]:
    if factor.prologue is not None:
        return factor.prologue.buffers
    return tuple(start.buffer for start in factor.starts)


def element_0(w: Writer, array: Value, factor: Operand, first: int) -> Place:
    """The place of a factor's first element. first: the kernel's buffer of its first start."""
    if factor.prologue is None:
        return address_0(w, array, factor, first)
    # The emitters of expressions are loaded only where one is fused.
    from hlo.backend.kernels.contraction.problem.computed import ComputedReader

    bases = [w.buffer_address(first + n) for n in range(len(factor.prologue.buffers))]
    return Position(ComputedReader(w, factor.prologue, bases), affine.number(factor.offset))


def address_0(w: Writer, array: Value, factor: Operand, first: int) -> Value:
    """The address of the first element of a factor in memory."""
    at = w.int(factor.offset)
    for n, start in enumerate(factor.starts):
        scalar, address = storage_scalar(start.dtype), w.buffer_address(first + n)
        index = w.load(address, scalar, start.dtype.item_bytes)
        at = add(w, at, times(w, clamped_index(w, index, start.dtype, 0, start.most), start.stride))
    return element_address(w, array, at, factor.dtype)
