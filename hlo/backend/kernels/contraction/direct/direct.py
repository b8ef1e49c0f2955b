"""Direct convolutions: kernels for those that analysis/direct_convolution.py takes.

DirectForm, convolution, epilogue --direct_kernels--> KernelSequence
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hlo.analysis.direct_convolution import DirectForm, LanesAlong
from hlo.backend.ir.kernel import KernelCall, KernelSequence, Sums
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.direct.form import Given
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction

if TYPE_CHECKING:
    from hlo.backend.kernels.contraction.direct.columns import DirectColumns
    from hlo.backend.kernels.contraction.direct.rows import DirectRows
    from hlo.backend.kernels.contraction.direct.sums import DirectSums


def direct_kernels(
    form: DirectForm,
    convolution: Instruction,
    target: Target,
    epilogue: Epilogue | None,
    buffers: BufferNumbers,
) -> KernelSequence:
    """The kernels of a convolution that has that form, or of an output fusion around one."""
    ring = ring_of(convolution.shape.dtype, target)
    base, kernel = (o.shape.dtype for o in convolution.operands)
    dtypes = (base, kernel, convolution.shape.dtype)
    given = Given(form, ring, dtypes, buffers, epilogue)
    factors = (buffers.lhs.buffer, buffers.rhs.buffer)
    further = len(epilogue.further) if epilogue else 0
    results = range(buffers.result, buffers.result + 1 + further)
    others = (*results, *(epilogue.others if epilogue else ()))
    if form.is_long and form.lanes is LanesAlong.FEATURES:
        from hlo.backend.kernels.contraction.direct.taps import DirectTaps

        return DirectTaps.sequence(given, (factors, others))
    made = _direct(given)
    code = target.shown(made.kernel_of(), partial(Plan, made.lines))
    pairs = epilogue.in_place if epilogue and made.stores_once else frozenset()
    calls = (KernelCall(code, (*factors, *others)),)
    return KernelSequence(calls, (), pairs, sums=Sums("direct", made.chain))


def _direct(given: Given) -> DirectRows | DirectColumns | DirectSums:
    """The kernel to be written: a program has few kinds of them."""
    match given.form.lanes:
        case LanesAlong.FEATURES:
            from hlo.backend.kernels.contraction.direct.rows import DirectRows

            return DirectRows(given)
        case LanesAlong.RESULTS:
            from hlo.backend.kernels.contraction.direct.columns import DirectColumns

            return DirectColumns(given)
        case LanesAlong.TAPS:
            from hlo.backend.kernels.contraction.direct.sums import DirectSums

            return DirectSums(given)
