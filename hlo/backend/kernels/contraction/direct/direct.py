"""Direct convolutions: kernels for those that analysis/direct_convolution.py takes.

convolution, epilogue --direct_kernels--> KernelSequence
"""

from __future__ import annotations

from functools import partial

from hlo.analysis.direct_convolution import LanesAlong, direct_form
from hlo.backend.ir.kernel import KernelCall, KernelSequence, Sums
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.direct.columns import DirectColumns
from hlo.backend.kernels.contraction.direct.form import Given
from hlo.backend.kernels.contraction.direct.rows import DirectRows
from hlo.backend.kernels.contraction.direct.sums import DirectSums
from hlo.backend.kernels.contraction.direct.taps import DirectTaps
from hlo.backend.kernels.contraction.problem.buffer_numbers import BufferNumbers
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction


def direct_kernels(
    convolution: Instruction,
    target: Target,
    epilogue: Epilogue | None,
    buffers: BufferNumbers,
) -> KernelSequence | None:
    """The kernels of a convolution, or of an output fusion around one; None of others."""
    if (form := direct_form(convolution)) is None:
        return None
    ring = ring_of(convolution.shape.dtype, target)
    base, kernel = (o.shape.dtype for o in convolution.operands)
    dtypes = (base, kernel, convolution.shape.dtype)
    given = Given(form, ring, dtypes, buffers, epilogue)
    factors = (buffers.lhs.buffer, buffers.rhs.buffer)
    further = len(epilogue.further) if epilogue else 0
    results = range(buffers.result, buffers.result + 1 + further)
    others = (*results, *(epilogue.others if epilogue else ()))
    if form.is_long and form.lanes is LanesAlong.FEATURES:
        return DirectTaps.sequence(given, (factors, others))
    made: DirectRows | DirectColumns | DirectSums = _KINDS[form.lanes](given)
    code = target.shown(made.kernel_of(), partial(Plan, made.lines))
    pairs = epilogue.in_place if epilogue and made.stores_once else frozenset()
    calls = (KernelCall(code, (*factors, *others)),)
    return KernelSequence(calls, (), pairs, sums=Sums("direct", made.chain))


_KINDS: dict[LanesAlong, type[DirectRows] | type[DirectColumns] | type[DirectSums]] = {
    LanesAlong.FEATURES: DirectRows,
    LanesAlong.RESULTS: DirectColumns,
    LanesAlong.TAPS: DirectSums,
}
