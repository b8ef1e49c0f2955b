"""Families: the functions that make an instruction's kernels.

Chosen by a custom call's target, or by the kernel family that legality gives another op.

instruction --kernel_makers--> functions (Instruction, Target) -> kernels or None, in the order
asked

The table is one `match`, a case for each family. A family is imported when it is first asked for,
so that a program that sorts nothing does not load the sorting kernels: importing all families takes
as long as compiling a small program.
"""

from __future__ import annotations

from functools import partial

from hlo.analysis.fusibility import is_row_loop
from hlo.analysis.legality import family_of
from hlo.backend.ir.kernel import NONE_KNOWN, KernelSequence, KnownLeaves
from hlo.backend.isa.target import Target
from hlo.backend.planning.implementations import KernelMaker
from hlo.ir.instruction import Instruction
from hlo.ops.custom_targets import UNINITIALISED, own_target
from hlo.ops.table import KernelFamily


def kernel_makers(
    instruction: Instruction, known: KnownLeaves = NONE_KNOWN
) -> tuple[KernelMaker, ...]:
    """The functions that are asked for a kernel; none for what the reference computes.

    known: the operand leaves that are constants, which a family may prepare.
    """
    match own_target(instruction) or family_of(instruction):
        case KernelFamily.LOOPS:
            return _row_loop() if is_row_loop(instruction) else _fused()
        case KernelFamily.JOINED:
            from hlo.backend.kernels.concatenate_table import concatenate_kernel

            return (concatenate_kernel,)
        case KernelFamily.CONTRACTION:
            from hlo.backend.kernels.contraction.contraction import contraction_kernels

            return (partial(contraction_kernels, known=known),)
        case KernelFamily.SORT:
            return _sorting(instruction)
        case KernelFamily.SCATTER:
            from hlo.backend.kernels.scatter.scatter import scatter_kernels
            from hlo.backend.kernels.scatter.wide import wide_scatter_kernels

            return (wide_scatter_kernels, scatter_kernels)
        case KernelFamily.WINDOW:
            return (*_windows(instruction), *_fused())
        case kind if makers := _of_matrices_or_call(kind):
            return makers
        case KernelFamily.FOURIER:
            from hlo.backend.kernels.fourier.fourier import fourier_kernels

            return (fourier_kernels,)
        case KernelFamily.BLOCKED:
            from hlo.backend.planning.blocks import blocked_kernels

            made = partial(blocked_kernels, makers=kernel_makers, kept=known.kept)
            return (made, *_fused())
        case _:
            return ()


def _nothing(instruction: Instruction, target: Target) -> KernelSequence:
    """Memory that is not filled."""
    return KernelSequence(())


def _of_matrices_or_call(kind: KernelFamily | str) -> tuple[KernelMaker, ...]:
    """Those of factorisations, and of custom calls that a kernel answers."""
    if kind == UNINITIALISED:
        return (_nothing,)
    if kind is not KernelFamily.FACTOR and not _is_matrix_call(kind):
        return ()
    from hlo.backend.kernels.linear_algebra.matrix_calls import matrix_kernel

    return (matrix_kernel,)


def _is_matrix_call(kind: KernelFamily | str) -> bool:
    """Whether it is the target of a call that a matrix routine answers."""
    if isinstance(kind, KernelFamily):
        return False
    from hlo.ops.lapack import MATRIX_TARGETS  # many functions, for few programs

    return kind in MATRIX_TARGETS


def unprepared_makers(instruction: Instruction, known: KnownLeaves) -> tuple[KernelMaker, ...]:
    """The same, each constant being left as it is: code for several machines shares them."""
    return kernel_makers(instruction)


def _sorting(instruction: Instruction) -> tuple[KernelMaker, ...]:
    if instruction.opcode == "topk":
        from hlo.backend.kernels.sorting.topk import topk_kernel

        return (topk_kernel,)
    from hlo.backend.kernels.sorting.long_row import long_row_kernels
    from hlo.backend.kernels.sorting.sort import sort_kernel

    return (long_row_kernels, sort_kernel)


def _windows(instruction: Instruction) -> tuple[KernelMaker, ...]:
    if instruction.opcode == "reduce-window":
        from hlo.backend.kernels.scan import scan_kernel

        return (scan_kernel,)
    from hlo.backend.kernels.scatter.select_scatter import select_and_scatter_kernel
    from hlo.backend.kernels.scatter.wide import wide_select_and_scatter_kernels

    return (wide_select_and_scatter_kernels, select_and_scatter_kernel)


def _fused() -> tuple[KernelMaker, ...]:
    from hlo.backend.kernels.fused_loops import fused_kernel

    return (fused_kernel,)


def _row_loop() -> tuple[KernelMaker, ...]:
    from hlo.backend.kernels.row_loop import row_loop_kernel

    return (row_loop_kernel,)
