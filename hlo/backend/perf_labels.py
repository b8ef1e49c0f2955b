"""perf labels: what profilers of machine code call the functions of a program."""

from __future__ import annotations

from hlo.backend.entry.polling import with_polls
from hlo.backend.ir.definitions import symbol
from hlo.backend.planning.program import Program, kernel_steps


def labels(program: Program, module: str) -> dict[str, str]:
    """Names by symbol: a kernel has that of the first instruction that it is for."""
    kernels = with_polls(program).kernels
    found: dict[str, str] = {}
    for step in kernel_steps(program):
        kernel, made_for = kernels[step.kernel], step.instruction
        words = f"{module}:{made_for.name} {made_for.opcode}"
        found.setdefault(symbol(kernel), words)
        for number, function in enumerate(kernel.functions):
            found.setdefault(symbol(function), f"{words} part {number}")
    return found
