"""Families: the functions that make kernels, by the way in which legality says ops are compiled.

Way --families--> functions (Instruction, Target) -> kernels or None, in the order they are asked

Each is imported when it is first asked for, so that a program that sorts nothing does not load the
sorting kernels: all of them take as long to import as a small program to compile.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.planning.implementations import Family
from hlo.ops.table import Way


def families(way: Way) -> tuple[Family, ...]:
    """The families that are asked for a kernel; none for what the reference computes."""
    match way:
        case Way.STAGED:
            return _fused()
        case Way.JOINED:
            from hlo.backend.kernels.joined import joined_kernel

            return (joined_kernel,)
        case Way.CONTRACTION:
            from hlo.backend.kernels.contraction.contraction import contraction_kernels

            return (contraction_kernels,)
        case Way.SORT:
            from hlo.backend.kernels.sorting.sort import sort_kernel

            return (sort_kernel,)
        case Way.SCATTER:
            from hlo.backend.kernels.scatter.scatter import scatter_kernel
            from hlo.backend.kernels.scatter.wide import wide_scatter_kernels

            return (wide_scatter_kernels, scatter_kernel)
        case Way.WINDOW:
            from hlo.backend.kernels.scan import scan_kernel
            from hlo.backend.kernels.scatter.select_scatter import select_and_scatter_kernel
            from hlo.backend.kernels.scatter.wide import wide_select_and_scatter_kernels

            wide = wide_select_and_scatter_kernels
            return (scan_kernel, wide, select_and_scatter_kernel, *_fused())
        case Way.FACTOR:
            from hlo.backend.kernels.linear_algebra.matrix_calls import matrix_kernel

            return (matrix_kernel,)
        case Way.FOURIER:
            from hlo.backend.kernels.fourier.fourier import fourier_kernels

            return (fourier_kernels,)
        case Way.BLOCKED:
            from hlo.backend.planning.blocks import blocked_kernel

            return (partial(blocked_kernel, families=families), *_fused())
        case _:
            return ()


def _fused() -> tuple[Family, ...]:
    from hlo.backend.kernels.fused_loops import fused_kernel

    return (fused_kernel,)
