"""Refusals: what a program asks of the process that compiles it, and will not find in another.

optimised module, Program --check_ahead--> HloErrors, one for each step
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hlo.backend.entry.c_call_ir import NONE
from hlo.backend.ir.ir_module import LAPACK
from hlo.backend.ir.kernel import Kernel
from hlo.backend.planning.program import Program, kernel_steps
from hlo.errors import HloError, HloErrors
from hlo.ir.instruction import Instruction

MOST_LISTED = 20  # of them


def check_ahead(program: Program, given: Collection[int], lapack: str) -> None:
    """Raise HloErrors, one for each step that would call Python, or LAPACK out of SciPy.

    given: host steps by number that whoever links defines; lapack: who defines its routines.
    """
    errors = [
        HloError(
            "unsupported",
            f"{i.opcode}: {i.name} {why}, expected native code: the process that compiles is not "
            "there when the object runs",
            i.span,
            help="hlo.compile runs it in this process",
        )
        for i, why in _needing(program, given, lapack)
    ]
    if errors:
        raise HloErrors(errors[:MOST_LISTED])


def _needing(
    program: Program, given: Collection[int], lapack: str
) -> Iterator[tuple[Instruction, str]]:
    for step in program.hosts:
        if step.number not in given:
            yield step.instruction, "is evaluated by the reference"
    if lapack != NONE:
        return
    calling = {n for n, kernel in enumerate(program.kernels) if _calls_lapack(kernel)}
    seen: set[Instruction] = set()
    for kernel in kernel_steps(program):
        if kernel.kernel in calling and kernel.instruction not in seen:
            seen.add(kernel.instruction)
            yield kernel.instruction, "calls LAPACK"


def _calls_lapack(kernel: Kernel) -> bool:
    return any(f"@{LAPACK}" in d for k in (kernel, *kernel.functions) for d in k.declarations)
