"""Grouping: kernels shared out among modules, which processors compile side by side."""

from __future__ import annotations

import heapq
import os

from hlo.backend.ir.kernel import Kernel
from hlo.once import once

SETUP_LINES = 8  # Lines that a function costs beside its own.
LEAST_LINES, MOST_LINES = 60, 500  # Lines of a module; 500 take 15 ms of code generation.


def grouped(kernels: dict[str, Kernel], workers: int) -> list[dict[str, Kernel]]:
    """Kernels in groups of like length, one for each worker: a module costs 1 ms of set-up."""
    lines = {name: k.length + SETUP_LINES for name, k in kernels.items()}
    total = sum(lines.values())
    rounds = -(-total // (MOST_LINES * workers))  # In each of them every worker compiles a module.
    count = max(min(rounds * workers, total // LEAST_LINES), 1)
    groups: list[dict[str, Kernel]] = [{} for _ in range(min(count, len(kernels)))]
    shortest = [(0, number) for number in range(len(groups))]  # a heap
    for name in sorted(lines, key=lines.__getitem__, reverse=True):
        length, number = shortest[0]
        groups[number][name] = kernels[name]
        heapq.heapreplace(shortest, (length + lines[name], number))
    return groups


@once
def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
