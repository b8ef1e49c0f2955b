"""Brevity: kernels that take so little of a run that plain code of them serves.

    Program --brief_kernels--> their numbers

LLVM makes plain code in half the time. Such code is as fast within a block of instructions, but
what one block leaves for another lies in memory, which a loop's sums wait for in every round. What
a run loses by it is bounded: over 88 small programs of JAX, whose compilations take 0.89 of the
time (median), calls take 1.03 of it (Zen 4).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Phi
from hlo.backend.planning.program import BranchStep, KernelStep, Program, Step, kernel_steps

# What a run may lose, in microseconds, about what a call of a program that does nothing takes; of a
# longer run, the part.
MOST_LOST_US, MOST_LOST_PART = 0.5, 0.005
# What a kernel loses, of its time: one whose loops carry numbers, and one of which they carry
# vectors (1.4 to 3.9 times the time).
LOST, LOST_OF_VECTORS = 0.25, 2.0


def brief_kernels(program: Program) -> frozenset[int]:
    """The kernels that plain code serves, those first of which a run loses least.

    They run once, for the program's own steps: what loops and routines run is not among them.
    """
    once = list(_run_once(program.steps))
    others = Counter(s.kernel for s in kernel_steps(program))
    others.subtract(s.kernel for s in once)
    lost: defaultdict[int, float] = defaultdict(float)
    for step in once:
        lost[step.kernel] += step.us * _lost(program.kernels[step.kernel])
    left, found = max(MOST_LOST_US, MOST_LOST_PART * program.cost_us), set[int]()
    for number in sorted(lost, key=lost.__getitem__):
        left -= lost[number]
        if left < 0.0:
            break
        kernel = program.kernels[number]
        if not (others[number] or kernel.needs_middle_end or kernel.is_open):
            found.add(number)
    return frozenset(found)


def _run_once(steps: Sequence[Step]) -> Iterator[KernelStep]:
    """Steps that run kernels at most once in a run of others."""
    stack = list(steps)
    while stack:
        match stack.pop():
            case KernelStep() as step:
                yield step
            case BranchStep(branches=branches):
                stack += (s for branch in branches for s in branch)


def _lost(kernel: Kernel) -> float:
    """What plain code costs, of the kernel's time."""
    carries = any(isinstance(r, Phi) and r.type.startswith("<") for r in kernel.function.records)
    return LOST_OF_VECTORS if carries else LOST
