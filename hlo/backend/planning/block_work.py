"""The work of a kernel that runs others block by block: theirs, as often as there are blocks.

Program of a block --block_weight--> bytes and arithmetic, for the cost model
                   --block_work--> Work, for estimates beside measured speeds (ir/work.py)
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.legality import is_contraction
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.planning.program import KernelStep, Program
from hlo.ir.instruction import Instruction
from hlo.machine import Rates


def block_weight(program: Program, count: int, rates: Rates) -> tuple[int, int]:
    """Bytes moved, as many as memory would move in the time that the cache takes; arithmetic by
    elementwise rates.
    """
    moved = flops = 0
    for instruction, kernel in _run_always(program):
        moved += kernel.bytes_moved * count * rates.memory_bytes // rates.cached_bytes
        work = kernel.flops * count
        if is_contraction(instruction):
            work = work * rates.elementwise_ops // rates.contracted_ops
        flops += work
    return moved, flops


def block_work(program: Program, count: int, lanes: int) -> Work | None:
    """None where no kernel says its work: then it is a stream as others are. What several units of
    a kernel share is packed in each block; a block's kernels work on no more than the largest
    does. lanes: of a vector of f32.
    """
    kernels = [kernel for _, kernel in _run_always(program)]
    if all(kernel.work is None for kernel in kernels):
        return None
    works = [
        kernel.work
        or Work(kernel.flops / lanes, moved=kernel.bytes_moved, reach=kernel.bytes_moved)
        for kernel in kernels
    ]
    return Work(
        instructions=count * sum(work.instructions for work in works),
        chain=count * sum(work.chain for work in works),
        sums=count * sum(work.sums for work in works),
        copied=count * sum(work.copied + work.shared for work in works),
        fetched=count * sum(work.fetched for work in works),
        packed=count * sum(work.packed + work.shared_packed for work in works),
        moved=count * sum(work.moved for work in works),
        reach=max(work.reach for work in works),
    )


def _run_always(program: Program) -> Iterator[tuple[Instruction, Kernel]]:
    """The kernels that no byte holds back."""
    for step in program.steps:
        if isinstance(step, KernelStep):
            yield step.instruction, program.kernels[step.kernel]
