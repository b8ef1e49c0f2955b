"""Reuse: how much a run touches between two uses of the same memory, which says where it lies.

    Program --distances--> of each kernel's step: (bytes, bytes touched since) of its allocations

A program is run again and again, so its steps are a circle, and so are those of a loop. What was
touched last is nearest (the stack distances of Mattson et al. 1970); a kernel counts with what it
moves of an allocation at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hlo.backend.ir.work import Distances
from hlo.backend.planning.program import (
    BranchStep,
    CallStep,
    CopyStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
)
from hlo.backend.planning.slots import HEADER_SLOTS

Sizes = dict[int, int]  # bytes by allocation
Use = tuple[KernelStep | None, Sizes]  # None: of a step that has no estimate


def distances(program: Program) -> Mapping[KernelStep, Distances]:
    """By step; of steps that stand in several places the last one's."""
    found: dict[KernelStep, Distances] = {}
    circles: list[Sequence[Step]] = [program.steps, *program.routines]
    while circles:
        uses: list[Use] = []
        for step in _flat(circles.pop()):
            if isinstance(step, LoopStep):
                circles.append((*step.condition, *step.body))
                uses.append((None, _touched(program, circles[-1])))
            else:
                own = step if isinstance(step, KernelStep) else None
                uses.append((own, _touched(program, (step,))))
        _walk(uses, found)
    return found


def _walk(uses: Sequence[Use], found: dict[KernelStep, Distances]) -> None:
    """Twice around: the first time fills what was touched."""
    recent: Sizes = {}  # the last touched at the end
    for around in range(2):
        for step, sizes in uses:
            if around and step is not None:
                found[step] = tuple(_since(recent, sizes))
            for allocation, size in sizes.items():
                recent.pop(allocation, None)
                recent[allocation] = size


def _since(recent: Sizes, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """What was touched since, itself included."""
    own, left, total = sum(sizes.values()), dict(sizes), 0
    for allocation, size in reversed(recent.items()):
        total += size
        if (mine := left.pop(allocation, None)) is not None:
            yield mine, max(total, own)
        if not left:
            return
    for size in left.values():
        yield size, max(total, own)


def _flat(steps: Sequence[Step]) -> Iterator[Step]:
    """Branches one after the other."""
    waiting = list(reversed(steps))
    while waiting:
        step = waiting.pop()
        if isinstance(step, BranchStep):
            waiting += [s for branch in reversed(step.branches) for s in reversed(branch)]
        else:
            yield step


def _touched(program: Program, steps: Sequence[Step]) -> Sizes:
    """Bytes of the allocations that steps touch."""
    sizes: Sizes = {}
    waiting = list(steps)
    while waiting:
        match waiting.pop():
            case KernelStep(slot=slot, width=width, kernel=kernel):
                moved = program.kernels[kernel].bytes_moved
                for a in program.table[slot - HEADER_SLOTS : slot - HEADER_SLOTS + width]:
                    if a >= 0:
                        size = min(moved, program.plan.allocations[a].size)
                        sizes[a] = max(size, sizes.get(a, 0))
            case CopyStep(source=source, target=target, size=size):
                for slot in (source, target):
                    a = program.table[slot - HEADER_SLOTS]
                    sizes[a] = max(size, sizes.get(a, 0))
            case LoopStep(condition=condition, body=body):
                waiting += [*condition, *body]
            case BranchStep(branches=branches):
                waiting += [s for branch in branches for s in branch]
            case CallStep(routine=routine):
                waiting += program.routines[routine]
            case _:
                pass
    return sizes
