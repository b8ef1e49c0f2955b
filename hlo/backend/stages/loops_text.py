"""The loops of a program's kernels as text: --emit=loops.

Compilation --loops--> per kernel its schedule as an indented nest, or its plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from hlo.analysis.legality import family_of
from hlo.backend.compilation import Compilation
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.work import estimated_us, speeds_of
from hlo.backend.loops.opened import Schedules
from hlo.backend.loops.printing import print_schedule
from hlo.backend.loops.schedule import LoopSchedule
from hlo.backend.planning.program import kernel_steps
from hlo.backend.planning.steps import COPY_UNIT_BYTES, copy_kernel
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ops.custom_targets import own_target

Printed = Callable[[LoopSchedule], list[str]]


def loops(compilation: Compilation, kernel: str | None = None, *, remarks: bool = False) -> str:
    """All kernels, or those that `kernel` names: an instruction, k0 as in --emit=program, a symbol.

    remarks: with the reason of each decision.
    Raises HloError `arguments` for a name that is none.
    """
    made = Schedules()
    program = compilation.with_target(replace(compilation.target, schedules=made)).program
    users: dict[int, dict[Instruction, None]] = {}
    for step in kernel_steps(program):
        users.setdefault(step.kernel, {})[step.instruction] = None
    texts = []
    for number, instructions in sorted(users.items()):
        own, names = program.kernels[number], [i.name for i in instructions]
        if kernel in (None, f"k{number}", symbol(own), *names):
            printed = partial(print_schedule, remarks=remarks)
            lines = [*_kernel(f"k{number}", own, list(instructions), made, printed)]
            if remarks and own.work is not None:
                us = estimated_us(own.work, own.units, 1, 1, speeds_of(compilation.target.machine))
                lines.insert(1, f"  # estimate: {us:.1f} us on one thread")
            texts.append("\n".join(lines) + "\n")
    if kernel is not None and not users:
        raise HloError("arguments", f"there is no kernel {kernel}: the program runs none")
    if kernel is not None and not texts:
        named = ", ".join(f"k{n} ({next(iter(i)).name})" for n, i in sorted(users.items()))
        raise HloError("arguments", f"there is no kernel {kernel}, expected one of: {named}")
    return "\n".join(texts) or "no kernels\n"


def _kernel(
    name: str,
    kernel: Kernel,
    instructions: Sequence[Instruction],
    made: Schedules,
    printed: Printed,
) -> Iterator[str]:
    """A kernel's line, and its loops below."""
    names = ", ".join(i.name for i in instructions)
    first = instructions[0]
    yield f"kernel {name} ({names}): {first.shape} {first.opcode}, {_units(kernel)}"
    yield from _inner(kernel, first, made, printed)


def _units(kernel: Kernel) -> str:
    text = f"{kernel.units} unit" + "s" * (kernel.units != 1)
    return text + (f", {kernel.scratch_bytes} bytes of scratch" if kernel.scratch_bytes else "")


def _inner(
    kernel: Kernel, instruction: Instruction, made: Schedules, printed: Printed
) -> Iterator[str]:
    """The loops or the plan, and those of the functions that it calls."""
    known = made.of.get(kernel.text)
    if isinstance(known, LoopSchedule):
        yield from printed(known)
        return
    if known is not None:
        yield from ("  " + line for line in known.lines)
    elif kernel == copy_kernel(kernel.bytes_moved // 2):
        yield f"  copy: {COPY_UNIT_BYTES} bytes a unit"
    else:
        kind = own_target(instruction) or family_of(instruction).value
        yield f"  {kind}: written by a plan of its own"
    for number, inner in enumerate(kernel.functions):
        if inner.text in made.of:
            yield f"  function {number}: {_units(inner)}"
            yield from ("  " + line for line in _inner(inner, instruction, made, printed))
