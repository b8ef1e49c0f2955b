"""Lists of steps: how long they are, whether they may fail, how they part into functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlo.backend.planning.program import BranchStep, CallStep, HostStep, LoopStep, Step

STEPS_PER_FUNCTION = 500


def weight(step: Step) -> int:
    """The number of steps in a step."""
    match step:
        case LoopStep():
            return 2 + sum(map(weight, step.condition)) + sum(map(weight, step.body))
        case BranchStep():
            return 2 + sum(weight(s) for branch in step.branches for s in branch)
    return 1


def may_fail(steps: Iterable[Step]) -> bool:
    """Whether a host call is among the steps."""
    stack = list(steps)
    while stack:
        step = stack.pop()
        match step:
            case HostStep() | CallStep(may_fail=True):
                return True
            case LoopStep():
                stack += (*step.condition, *step.body)
            case BranchStep():
                stack += [s for branch in step.branches for s in branch]
    return False


def parts(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """The steps cut into runs of at most STEPS_PER_FUNCTION, or of one heavier step."""
    part: list[Step] = []
    size = 0
    for step in steps:
        added = weight(step)
        if part and size + added > STEPS_PER_FUNCTION:
            yield tuple(part)
            part, size = [], 0
        part.append(step)
        size += added
    if part:
        yield tuple(part)
