"""Grouping: kernels shared out among modules, which processors compile side by side."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable

from msgspec import Struct

from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.process.once import once

# Microseconds of kernels that are worth a module of their own on another processor, and of a module
# that keeps the other processors waiting for long where it is compiled last.
LEAST_US, MOST_US = 900, 50_000


class Cost(Struct, frozen=True):
    """Microseconds that LLVM takes for code of one kind: for a module before its first function,
    for each function, for each line.
    """

    module: int
    function: int
    line: int

    def of_kernel(self, kernel: Kernel) -> int:
        """What a kernel adds to its module."""
        return self.function + self.line * kernel.length


MOST_CUT = 400  # The most lines of a kernel that stays whole, whatever else there is: 11 ms.
# Kernels as they are, plain code, and what the middle-end sees first (Sapphire Rapids; only how
# they compare counts).
KERNELS, GLUE, OPTIMISED = Cost(1000, 600, 20), Cost(250, 180, 8), Cost(5000, 0, 60)


def expected_us(module: IrModule) -> int:
    """About how long LLVM takes for a module."""
    cost = OPTIMISED if module.optimised else GLUE if module.is_glue else KERNELS
    functions = module.text.count("define ")
    return cost.module + cost.function * functions + cost.line * module.text.count("\n")


class Shares:
    """What each processor has to compile so far, in microseconds: modules to begin with."""

    def __init__(self, workers: int, modules: Iterable[IrModule] = ()) -> None:
        self._loads = [0] * workers
        for module in modules:
            self._add(expected_us(module))

    def _add(self, us: int) -> None:
        """So much more, for who has least to do."""
        heapq.heapreplace(self._loads, self._loads[0] + us)

    def grouped(self, kernels: dict[str, Kernel], cost: Cost) -> list[dict[str, Kernel]]:
        """Kernels in groups, a module each, after which all have as much to do."""
        if not kernels:
            return []
        own = {name: cost.of_kernel(k) for name, k in kernels.items()}
        total, workers = sum(own.values()), len(self._loads)
        rounds = -(-total // (MOST_US * workers))  # In each of them every worker has a module.
        count = min(max(min(rounds * workers, total // LEAST_US), 1), len(kernels))
        groups: list[dict[str, Kernel]] = [{} for _ in range(count)]
        loads = (sorted(self._loads) + [0] * count)[:count]
        least = [(load + cost.module, number) for number, load in enumerate(loads)]
        for name in sorted(own, key=own.__getitem__, reverse=True):
            load, number = least[0]
            groups[number][name] = kernels[name]
            heapq.heapreplace(least, (load + own[name], number))
        found = sorted(((sum(own[n] for n in g), k) for k, g in enumerate(groups)), reverse=True)
        while len(found) > 1 and found[-1][0] < cost.module:  # less than the module around it
            us, number = found.pop()
            most, first = found[0]
            groups[first] |= groups[number]
            found[0] = most + us, first
        for us, _ in found:
            self._add(cost.module + us)
        return [groups[number] for _, number in found]


@once
def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
