"""A convolution on copies between zeros, repaired where these met infinities or NaN.

Contraction of the copies --repaired--> KernelSequence: the product, a look, the products once more

A look tells whether there were any; then the products are made once more with those zeros left out.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.kernel import KernelCall, KernelSequence
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.convolutions.look import (
    look_kernel,
    noting,
    reads_factors_first,
    reads_results_alone,
)
from hlo.backend.kernels.contraction.convolutions.repair import repair_kernel
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.kernels.contraction.told import TOLD_BYTES, untold_kernel
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction

_LOOK = "look: whether zeros beside the base met what is not finite"
_REPAIR = "repair: products where they did, with the zeros left out"


def repaired(
    sequence: ContractionSequence,
    c: Contraction,
    convolution: Instruction,
    met: tuple[int, ...],
) -> KernelSequence:
    """The product, and what is done where zeros met factors that are not finite; met: the factors
    that may.
    """
    form = Form.of(convolution, sequence.target)
    factors, told = (sequence.buffers.lhs.buffer, sequence.buffers.rhs.buffer), sequence.next_place
    sequence.temporaries.append(TOLD_BYTES)
    look = KernelCall(look_kernel(form, met), (*factors, told))
    repair = KernelCall(repair_kernel(form), (*factors, sequence.buffers.result), when=told)
    if reads_factors_first(form, met):
        further: tuple[KernelCall, ...] = (look, repair)
    else:
        sequence.call(untold_kernel(), partial(Plan, ("told: nothing yet",)), told)
        sequence.epilogue = noting(form.ring, form.dtype, told)
        alone = reads_results_alone(form, met)
        # What is rare may be slow.
        look = replace(look, kernel=replace(look.kernel, is_glue=True), when=told)
        further = (repair,) if alone else (look, repair)
    sequence.target.shown(look.kernel, partial(Plan, (_LOOK,)))
    sequence.target.shown(repair.kernel, partial(Plan, (_REPAIR,)))
    made = sequence.finished(c)
    return replace(made, calls=(*made.calls, *further))
