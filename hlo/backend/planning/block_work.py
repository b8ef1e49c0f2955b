"""The work of a kernel that runs others block by block: theirs, as often as there are blocks.

Program of a block --block_weight--> bytes and arithmetic, for the cost model
                   --block_work--> Work, for estimates beside measured speeds (ir/work.py)
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo.analysis.legality import is_contraction
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.planning.program import KernelStep, LoopStep, Program, Step
from hlo.backend.planning.splitting import iterations
from hlo.ir.instruction import Instruction
from hlo.machine import Rates


def block_weight(program: Program, count: int, rates: Rates) -> tuple[int, int]:
    """Bytes moved, as many as memory would move in the time that the cache takes; arithmetic by
    elementwise rates.
    """
    moved = flops = 0
    for instruction, kernel, times in _run_always(program, count):
        moved += kernel.bytes_moved * times * rates.memory_bytes // rates.cached_bytes
        work = kernel.flops * times
        if is_contraction(instruction):
            work = work * rates.elementwise_ops // rates.contracted_ops
        flops += work
    return moved, flops


def block_work(program: Program, count: int, lanes: int) -> Work | None:
    """None where no kernel says its work: then it is a stream as others are. What several units of
    a kernel share is packed in each block; a block's kernels work on no more than the largest
    does. lanes: of a vector of f32.
    """
    kernels = [(kernel, times) for _, kernel, times in _run_always(program, count)]
    if all(kernel.work is None for kernel, _ in kernels):
        return None
    works = [(_work_of(kernel, lanes), times) for kernel, times in kernels]
    return Work(
        instructions=sum(times * work.instructions for work, times in works),
        chain=sum(times * work.chain for work, times in works),
        tiles=sum(times * work.tiles for work, times in works),
        sums=sum(times * work.sums for work, times in works),
        copied=sum(times * (work.copied + work.shared) for work, times in works),
        fetched=sum(times * work.fetched for work, times in works),
        packed=sum(times * (work.packed + work.shared_packed) for work, times in works),
        moved=sum(times * work.moved for work, times in works),
        streamed=sum(times * work.streamed for work, times in works),
        reach=max(work.reach for work, _ in works),
    )


def _work_of(kernel: Kernel, lanes: int) -> Work:
    """A kernel's, which is a stream where it does not say it."""
    if kernel.work is not None:
        return kernel.work
    return Work(kernel.flops / lanes, moved=kernel.bytes_moved, reach=kernel.bytes_moved)


def _run_always(program: Program, count: int) -> Iterator[tuple[Instruction, Kernel, int]]:
    """The kernels that no byte holds back, and how often all blocks run each."""
    waiting: list[tuple[Step, int]] = [(step, count) for step in reversed(program.steps)]
    while waiting:
        step, times = waiting.pop()
        match step:
            case KernelStep():
                yield step.instruction, program.kernels[step.kernel], times
            case LoopStep():
                trips = times * max(1, iterations(step.instruction))
                waiting += [(s, trips) for s in (*step.condition, *step.body)]
