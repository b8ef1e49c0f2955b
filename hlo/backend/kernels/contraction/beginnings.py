"""Beginnings: where a factor lies in its array, some of which the run alone knows.

    array's address, Operand --> address of the factor's element 0

A kernel that reads a factor from memory finds the integers that say where it begins in buffers
behind all others that it has, those of lhs before those of rhs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.constants import clamped_index
from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.axes import Operand
from hlo.backend.kernels.contraction.product_plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.ring import element_address
from hlo.backend.lanes.types import storage_scalar


def start_buffers(factors: Sequence[Operand]) -> tuple[int, ...]:
    """The sequence's buffers that say where the factors begin."""
    return tuple(start.buffer for factor in factors for start in factor.starts)


def read_in_memory(plan: ProductPlan) -> tuple[Operand, ...]:
    """The factors that a product reads where they lie, not as panels that were packed before."""
    sides = ((plan.lhs, plan.contraction.lhs), (plan.rhs, plan.contraction.rhs))
    return tuple(factor for reading, factor in sides if reading is not Reading.PACKED)


def element_0(w: Writer, array: Value, factor: Operand, first: int) -> Value:
    """The address of a factor's first element. first: the kernel's buffer of its first start."""
    at = w.int(factor.offset)
    for n, start in enumerate(factor.starts):
        scalar, address = storage_scalar(start.dtype), w.buffer_address(first + n)
        index = w.load(address, scalar, start.dtype.item_bytes)
        at = add(w, at, times(w, clamped_index(w, index, start.dtype, 0, start.most), start.stride))
    return element_address(w, array, at, factor.dtype)
