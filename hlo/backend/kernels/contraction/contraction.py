"""Contraction kernels: dot and convolution, packed where that pays, as one sequence of kernels.

    contraction_kernels(instruction, target) -> KernelSequence

A fusion whose root hangs on a contraction gives an Epilogue and the numbers of the buffers in its
own list; without them the list is lhs, rhs, result, temporaries.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.analysis.decisions import decisions_of
from hlo.analysis.fusibility import contraction_of
from hlo.analysis.matrix_pairs import pair_of
from hlo.backend.ir.kernel import (
    NONE_KNOWN,
    KernelSequence,
    KnownLeaves,
)
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import (
    Bands,
    bounded_in,
    dot_contraction,
    result_bands,
)
from hlo.backend.kernels.contraction.problem.buffer_numbers import (
    DOT_BUFFERS,
    BufferNumbers,
    fusion_buffers,
    placed,
)
from hlo.backend.kernels.contraction.problem.result import Epilogue, EpilogueOf, no_epilogue
from hlo.backend.kernels.contraction.sequence import ContractionSequence
from hlo.backend.loops.expression import waits_in
from hlo.ir.instruction import Instruction


def contraction_kernels(
    instruction: Instruction,
    target: Target,
    epilogue_of: EpilogueOf = no_epilogue,
    buffers: BufferNumbers = DOT_BUFFERS,
    known: KnownLeaves = NONE_KNOWN,
) -> KernelSequence:
    """The kernels of a dot or convolution, or of an output fusion around one.

    known: the operand leaves that are constants: what would pack them is prepared instead; those
    that a loop keeps are packed by early calls.
    HloError "unsupported" for a convolution_kind.
    """
    if (inner := contraction_of(instruction)) is not None:
        return _fused_kernels(instruction, inner, target, known)
    if (pair := pair_of(instruction)) is not None:
        # Few programs multiply a matrix from both its sides.
        from hlo.backend.kernels.contraction.gemv_pair import gemv_pair_kernels

        return gemv_pair_kernels(instruction, pair, target)
    if len(set(instruction.operands)) == 1:
        buffers = replace(buffers, rhs=buffers.lhs)
    tails = _tails_of(instruction, target)
    if instruction.opcode == "convolution":
        # Most programs with products have no convolutions, and start without these.
        from hlo.backend.kernels.contraction.convolution_kernels import convolution_kernels

        return convolution_kernels(instruction, target, epilogue_of, buffers, known, tails)
    sequence = ContractionSequence(target, epilogue_of, buffers, known)
    epilogue = sequence.epilogue
    c = placed(dot_contraction(instruction), buffers)
    live = result_bands(instruction, epilogue.live) if epilogue else c.bands
    c = replace(c, bands=live, zeros=_zeros_of(instruction))
    if target.is_bounded and (bounded := bounded_in(instruction)) is not None:
        c = replace(c, bands=Bands(), zeros=Bands(), bounded=bounded)
    if epilogue is None:
        places = c.lhs.buffer, c.rhs.buffer
        sequence.factors = dict(zip(places, instruction.operands, strict=True))
    if tails:
        # Few programs underflow.
        from hlo.backend.kernels.contraction.flushed_products import flushes, with_flushed
        from hlo.backend.kernels.contraction.small_results import can_be_told
        from hlo.backend.kernels.contraction.subnormal_factors import finished

        around, mode = instruction.computation, target.isa.float_mode
        is_told = epilogue is None and can_be_told(c, sequence.at_most_two())
        if mode and around is not None and is_told and flushes(instruction, around, target):
            return with_flushed(sequence, c, mode)
        if min(c.m, c.n) == 1:  # Others pack factors, or take little time.
            return finished(sequence, c, tails)
    return sequence.finished(c)


def _tails_of(instruction: Instruction, target: Target) -> tuple[str, ...]:
    """The sides whose factors are likely to have subnormal numbers, where the machine waits for
    them.
    """
    around = instruction.computation
    if around is None or target.is_small or not waits_in(around, target):
        return ()
    from hlo.analysis.tails import tails  # few programs underflow

    found = tails(around)
    sides = zip(("lhs", "rhs"), instruction.operands, strict=True)
    return tuple(side for side, factor in sides if (factor, ()) in found)


def _zeros_of(dot: Instruction) -> Bands:
    """Where the text says that factors are not zero, by the contraction's axes."""
    if not decisions_of(dot).zeros:
        return Bands()
    from hlo.backend.kernels.contraction.products.zero_check import bands_of_zeros

    return bands_of_zeros(dot)


def _fused_kernels(
    fusion: Instruction, contraction: Instruction, target: Target, known: KnownLeaves
) -> KernelSequence:
    # The emitters of expressions are loaded only where one is fused.
    from hlo.backend.kernels.contraction import fused_epilogue

    buffers = fusion_buffers(fusion, contraction)
    (callee,) = fusion.called_computations()
    known = known.without(buffers.moved)  # other parts of them in each iteration
    is_alone = callee.root is contraction

    def epilogue_of(target: Target) -> Epilogue | None:
        return None if is_alone else fused_epilogue.Fused(fusion, contraction, target).epilogue()

    return contraction_kernels(contraction, target, epilogue_of, buffers, known)
