"""Brevity: kernels that take so little of a run that plain code of them serves.

    Program --brief_kernels--> their numbers

LLVM makes plain code in half the time. Such code is as fast within a block of instructions, but
what one block leaves for another lies in memory: kernels whose loops carry a counter alone take
1.05 to 2 times as long, and others, sums say, 1.4 to 4 times; these are never plain. What a run
loses is bounded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Label, Phi
from hlo.backend.planning.program import BranchStep, KernelStep, Program, Step, kernel_steps

# What a run may lose, in microseconds, about what a call of a program that does nothing takes; of a
# longer run, the part.
MOST_LOST_US, MOST_LOST_PART = 0.5, 0.005
LOST = 0.5  # What a kernel loses, of its time.


def brief_kernels(program: Program) -> frozenset[int]:
    """The kernels that plain code serves, those first of which a run loses least.

    They run once, for the program's own steps: what loops and routines run is not among them.
    """
    once = list(_run_once(program.steps))
    others = Counter(s.kernel for s in kernel_steps(program))
    others.subtract(s.kernel for s in once)
    lost: defaultdict[int, float] = defaultdict(float)
    for step in once:
        lost[step.kernel] += LOST * step.us
    left, found = _may_lose(program.cost_us), set[int]()
    for number in sorted(lost, key=lost.__getitem__):
        if lost[number] > left:
            break
        if not others[number] and _is_as_fast(program.kernels[number]):
            left -= lost[number]
            found.add(number)
    return frozenset(found)


def may_be_brief(kernel: Kernel, us: float, run_us: float) -> bool:
    """Whether a kernel of so many microseconds may be one of them, of a run that takes so long."""
    return LOST * us <= _may_lose(run_us) and _is_as_fast(kernel)


def _may_lose(us: float) -> float:
    """Microseconds that a run of so many may lose."""
    return max(MOST_LOST_US, MOST_LOST_PART * us)


def _run_once(steps: Sequence[Step]) -> Iterator[KernelStep]:
    """Steps that run kernels at most once in a run of others."""
    stack = list(steps)
    while stack:
        match stack.pop():
            case KernelStep() as step:
                yield step
            case BranchStep(branches=branches):
                stack += (s for branch in branches for s in branch)


def _is_as_fast(kernel: Kernel) -> bool:
    """Whether plain code of a kernel is nearly as fast: its loops carry their counters alone."""
    if kernel.needs_middle_end or kernel.is_open:
        return False
    above: set[str] = set()  # blocks before the one at hand: phis of a loop have values of others
    block, carried = "", 0
    for record in kernel.function.records:
        if isinstance(record, Label):
            above.add(block)
            block, carried = record.label, 0
        elif isinstance(record, Phi) and not above.issuperset(record.blocks):
            carried += 1
            if carried > 1 or record.type != "i64":
                return False
    return True
