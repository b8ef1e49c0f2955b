"""Cholesky factors: which of three ways matrices are factored.

many small ones, a matrix a lane    (cholesky_lanes.py)
large ones, which threads share out (cholesky_groups.py)
others, a matrix a unit             (cholesky_rows.py)
"""

from __future__ import annotations

from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.linear_algebra.cholesky_form import (
    Factor,
    FactorForm,
    GroupsForm,
    factor_of,
)
from hlo.backend.kernels.linear_algebra.cholesky_groups import cholesky_groups
from hlo.backend.kernels.linear_algebra.cholesky_lanes import cholesky_lanes_kernel
from hlo.backend.kernels.linear_algebra.cholesky_rows import cholesky_rows
from hlo.backend.kernels.linear_algebra.groups import MOST_ALONE, MOST_BYTES
from hlo.backend.kernels.linear_algebra.matrix_lanes import matrix_lanes
from hlo.ir.instruction import Instruction
from hlo.ops.linear_algebra import CholeskyAttributes

MOST_SCRATCH_BYTES = 1 << 26


def cholesky_kernel(instruction: Instruction, target: Target) -> Kernel | KernelSequence | None:
    """The kernels of a cholesky."""
    lower = CholeskyAttributes.of(instruction.attributes).lower
    return factor_kernel(factor_of(instruction.operands[0].shape, lower=lower), target)


def factor_kernel(factor: Factor, target: Target) -> Kernel | KernelSequence | None:
    """Buffers begin with a, the factor, the failures if it reports. None for huge matrices."""
    together = matrix_lanes(factor.dtype, (factor.batch, factor.size, factor.size), target.machine)
    if together is not None:
        return cholesky_lanes_kernel(factor, together, target)
    ring = ring_of(factor.dtype, target)
    groups = GroupsForm(factor, ring, target.machine.registers)
    is_large = factor.size > MOST_ALONE and ring.lanes > 1
    if is_large and 0 < factor.batch * groups.bytes <= MOST_BYTES:
        return cholesky_groups(factor, groups, target)
    form = FactorForm(factor, ring)
    is_huge = form.scratch_bytes > MOST_SCRATCH_BYTES
    return None if is_huge else cholesky_rows(factor, form, target)
