"""A convolution's kernels: directly, or as a product of windows whose base may get zeros around it.

    convolution_kernels(instruction, target, ...) -> KernelSequence

Zeros beside a base meet factors that may be infinite or NaN, where the convolution has no term:
these products are repaired (repaired_convolution.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from hlo.analysis.direct_convolution import direct_form
from hlo.backend.ir.kernel import KernelSequence, KnownLeaves
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import Base
from hlo.backend.kernels.contraction.convolutions.held import held_as_multiplied
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.buffer_numbers import (
    BufferNumbers,
    Place,
    placed,
)
from hlo.backend.kernels.contraction.problem.result import EpilogueOf
from hlo.backend.kernels.contraction.problem.work import reach
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.loops.schedule import Plan
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction


def convolution_kernels(
    instruction: Instruction,
    target: Target,
    epilogue_of: EpilogueOf,
    buffers: BufferNumbers,
    known: KnownLeaves,
    tails: tuple[str, ...],
) -> KernelSequence:
    """As contraction.py's `contraction_kernels`. tails: the sides whose factors are likely to have
    subnormal numbers.
    """
    if (form := direct_form(instruction)) is not None:
        from hlo.backend.kernels.contraction.direct.direct import direct_kernels

        def made_for(target: Target) -> KernelSequence:
            return direct_kernels(form, instruction, target, epilogue_of(target), buffers)

        made = made_for(target)
        if not tails or len(made.calls) != 1:
            return made
        from hlo.backend.kernels.contraction.subnormal_factors import arrays_of, in_versions

        looked = arrays_of(instruction, buffers, tails)
        call = in_versions(made.calls[0], lambda t: made_for(t).calls[0], looked, target)
        return replace(made, calls=(call,))
    sequence = ContractionSequence(target, epilogue_of, buffers, known)
    finished = ContractionSequence.finished
    if tails:
        from hlo.backend.kernels.contraction import subnormal_factors

        finished = partial(subnormal_factors.finished, tails=tails)
    held_one = instruction
    places = buffers
    if target.isa.tile_product(dt.BF16, dt.BF16) is not None:
        held_one, places = _features_last(sequence, instruction, buffers)
    contraction, *arrays = held_as_multiplied(held_one, target)
    c = placed(contraction, places)
    met: tuple[int, ...] = ()
    if any(a.padded for a in arrays) and min(c.batches, c.m, c.n, c.k) > 0:
        sequence.reach = reach(c)
        c = _copied(sequence, held_one, c, arrays)
        zeros = [any(d.has_zeros for d in a.padded) for a in arrays]
        factors = (buffers.lhs.buffer, buffers.rhs.buffer)
        met = tuple(  # by the other one's elements, if these may be infinite or NaN
            side for side in (0, 1) if zeros[1 - side] and factors[side] not in known.finite
        )
    if not met or not instruction.shape.dtype.component.is_float:
        return finished(sequence, c)
    if sequence.epilogue is not None:  # the results before it, which alone tell, are nowhere
        raise HloError("unsupported", "convolution: padded, with an epilogue", instruction.span)
    from hlo.backend.kernels.contraction.repaired_convolution import repaired

    return repaired(sequence, c, instruction, met, finished)


def _copied(
    sequence: ContractionSequence,
    instruction: Instruction,
    c: Contraction,
    arrays: Sequence[Base],
) -> Contraction:
    """Kernels that put a convolution's factors between zeros, and it on those."""
    from hlo.backend.kernels.contraction.convolutions.padding import padding_kernel

    factors = [c.lhs, c.rhs]
    for n, (array, operand) in enumerate(zip(arrays, instruction.operands, strict=True)):
        if array.padded:
            source = operand.shape.dtype
            kernel = padding_kernel(array.padded, source, array.dtype, sequence.target)
            shown = partial(Plan, ("padded: between zeros",))
            place = sequence.add_before(kernel, factors[n].buffer, array.size_bytes, shown)
            factors[n] = replace(factors[n], buffer=place)
    return replace(c, lhs=factors[0], rhs=factors[1])


def _features_last(
    sequence: ContractionSequence, instruction: Instruction, buffers: BufferNumbers
) -> tuple[Instruction, BufferNumbers]:
    """The convolution on factors whose features lie side by side, where matrix units ask for them,
    after the kernels that turn these; else as it is.
    """
    from hlo.backend.kernels.contraction.convolutions.features_last import features_last

    places = (buffers.lhs, buffers.rhs)
    if any(place != Place(place.buffer) for place in places):
        return instruction, buffers
    if (turned := features_last(instruction, sequence.target)) is None:
        return instruction, buffers
    lhs, rhs = (
        Place(sequence.in_order(operand.shape, order, place.buffer)) if order else place
        for operand, order, place in zip(instruction.operands, turned.orders, places, strict=True)
    )
    return turned.convolution, replace(buffers, lhs=lhs, rhs=rhs)
