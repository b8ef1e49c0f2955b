"""Brevity: kernels and loops that take so little of a run that plain code of them serves.

    Program --brief_kernels--> their numbers
    Program --brief_loops--> loops whose kernels are called as others are

LLVM makes plain code in half the time. Such code is as fast within a block of instructions, but
what one block leaves for another lies in memory: kernels whose loops carry a counter alone take
1.05 to 2 times as long, and others, sums say, 1.4 to 4 times; these are never plain. Loops of short
steps are else written as functions with their kernels inlined, which LLVM's middle-end sees: as
long again as the code of all their kernels. What a run loses is bounded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Label, Phi
from hlo.backend.planning.program import (
    BranchStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
    kernel_steps,
    nested,
)

# What a run may lose, in microseconds, about what a call of a program that does nothing takes; of a
# longer run, the part.
MOST_LOST_US, MOST_LOST_PART = 0.5, 0.005
LOST = 0.5  # What a kernel loses, of its time.


def brief_kernels(program: Program) -> frozenset[int]:
    """The kernels that plain code serves, those first of which a run loses least.

    They run once, for the program's own steps: what loops and routines run is not among them.
    """
    once = [step for step in _once(program.steps) if isinstance(step, KernelStep)]
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


def brief_loops(program: Program) -> frozenset[LoopStep]:
    """Loops that run once and make so few calls that it is little what these take.

    Of a loop in another one, and of one that the run itself ends, nobody knows how often it runs.
    """
    left, found = _may_lose(program.cost_us), set[LoopStep]()
    for loop in (step for step in _once(program.steps) if isinstance(step, LoopStep)):
        if loop.trips is None or any(isinstance(s, LoopStep) for s in nested(loop.body)):
            continue
        calls = loop.trips * sum(1 for _ in nested((*loop.condition, *loop.body)))
        if calls * program.call_us <= left:
            left -= calls * program.call_us
            found.add(loop)
    return frozenset(found)


def may_be_brief(kernel: Kernel, us: float, run_us: float) -> bool:
    """Whether a kernel of so many microseconds may be one of them, of a run that takes so long."""
    return LOST * us <= _may_lose(run_us) and _is_as_fast(kernel)


def _may_lose(us: float) -> float:
    """Microseconds that a run of so many may lose."""
    return max(MOST_LOST_US, MOST_LOST_PART * us)


def _once(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps that run at most once in a run of others."""
    stack = list(steps)
    while stack:
        step = stack.pop()
        yield step
        if isinstance(step, BranchStep):
            stack += (s for branch in step.branches for s in branch)


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
