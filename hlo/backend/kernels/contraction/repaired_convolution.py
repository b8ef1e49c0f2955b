"""A convolution on copies between zeros, repaired where these met infinities or NaN.

Contraction of the copies --repaired--> KernelSequence: the product, a check, the products once more

A check tells whether there were any; then the products are made once more without those zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.kernel import KernelCall, KernelSequence
from hlo.backend.kernels.check_flag import FLAG_BYTES, cleared_flag_kernel
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.convolutions.repair import repair_kernel
from hlo.backend.kernels.contraction.convolutions.repair_check import (
    check_kernel,
    noting,
    reads_factors_first,
    reads_results_alone,
)
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction

_CHECK = "check: whether zeros beside the base met what is not finite"
_REPAIR = "repair: products where they did, with the zeros left out"


def repaired(
    sequence: ContractionSequence,
    c: Contraction,
    convolution: Instruction,
    met: tuple[int, ...],
    finished: Callable[[ContractionSequence, Contraction], KernelSequence],
) -> KernelSequence:
    """The product, and what is done where zeros met factors that are not finite; met: the factors
    that may. finished: what makes the product.
    """
    form = Form.of(convolution, sequence.target)
    factors = (sequence.buffers.lhs.buffer, sequence.buffers.rhs.buffer)
    flag = sequence.temporary(FLAG_BYTES)
    check = KernelCall(check_kernel(form, met), (*factors, flag))
    repair = KernelCall(repair_kernel(form), (*factors, sequence.buffers.result), when=flag)
    if reads_factors_first(form, met):
        further: tuple[KernelCall, ...] = (check, repair)
    else:
        sequence.call(cleared_flag_kernel(), partial(Plan, ("flag: cleared",)), flag)
        sequence.finish_by(
            lambda target: noting(Form.of(convolution, target).ring, form.dtype, flag)
        )
        alone = reads_results_alone(form, met)
        # What is rare may be slow.
        check = replace(check, kernel=replace(check.kernel, is_glue=True), when=flag)
        further = (repair,) if alone else (check, repair)
    sequence.target.shown(check.kernel, partial(Plan, (_CHECK,)))
    sequence.target.shown(repair.kernel, partial(Plan, (_REPAIR,)))
    made = finished(sequence, c)
    return replace(made, calls=(*made.calls, *further))
