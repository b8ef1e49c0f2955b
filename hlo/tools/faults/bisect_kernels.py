"""The kernel that is at fault where compiled code differs from the reference on the same module.

    optimised module --one family at a time run by the reference--> family --halves--> instruction

An instruction of the guilty family is found by leaving ever more of them to the reference: the last
one that heals the program. It is then a program of its own, with the values that it had.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import KnownLeaves
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.implementations import KernelMaker
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.tools.cases.case import Case, recorded
from hlo.tools.cases.extract import extracted
from hlo.tools.cases.trials import Property, Trials
from hlo.tools.comparison.compare import DEFAULT, Tolerance
from hlo.tools.faults.bisect import first_bad, line_of
from hlo.tools.faults.properties import same_results


class KernelFound(Struct, frozen=True):
    """The kernel at fault.

    family: the functions that make the kernel, with their files.
    case: the instruction as a program, if it has the fault by itself, else the whole module.
    """

    family: str
    instruction: str
    is_alone: bool
    case: Case
    asked: int


def miscompiled(mode: str = "strict", tolerance: Tolerance = DEFAULT) -> Property:
    """Compiled code of a module as it is, and the reference on it, differ, or none can be made for
    what is no fault of the program: a bug of ours.
    """

    def ask(case: Case) -> bool:
        expected = driver.evaluate(case.module, *case.values)
        try:
            ours = driver.compile(case.module, "", mode, cache=False)(*case.values)
        except HloError:
            return False
        except Exception:  # a bug of ours is what is looked for
            return True
        return not same_results(ours, expected, tolerance)

    return Property(f"miscompiled {mode} {tolerance}", ask, crash=True)


def bisected_kernels(
    case: Case, *, mode: str = "strict", tolerance: Tolerance = DEFAULT, timeout: float = 60.0
) -> KernelFound | None:
    """The instruction of an optimised module whose kernel is at fault; None where the compiled
    program equals the reference. HloError `unsupported` where no single family heals it.
    """
    fault = miscompiled(mode, tolerance)
    trials = Trials(fault, timeout=timeout)
    if not trials.holds(case):
        return None
    groups = by_family(case.module, mode)
    if len(groups) > 1:  # what several families do alike may be wrong in each
        groups[" and ".join(groups)] = [i for members in groups.values() for i in members]
    asked = trials.asked
    for name, members in groups.items():
        healed = Trials(_healed_by(members, mode, tolerance), timeout=timeout)
        asked += 1
        if not healed.holds(case):
            continue

        def heals(count: int, members: list[Instruction] = members) -> bool:
            chosen = members[:count]
            return Trials(_healed_by(chosen, mode, tolerance), timeout=timeout).holds(case)

        at = first_bad(len(members), heals) - 1
        asked += len(members).bit_length()
        guilty = members[at]
        alone = extracted([guilty], recorded(case))
        is_alone = trials.holds(alone)
        return KernelFound(name, line_of(guilty), is_alone, alone if is_alone else case, asked)
    raise HloError(
        "unsupported",
        f"bisect: compiled code differs, but none of {', '.join(groups) or 'no families'} heals it "
        "when the reference runs it, expected one",
        help="the fault is in planning or control flow: hlo-opt reduce FILE --compare=interpreter",
    )


def by_family(module: Module, mode: str) -> dict[str, list[Instruction]]:
    """The instructions for which there are kernel_makers, by the names of these, in scheduled
    order. No kernel is made: one may fail.
    """
    whole = Compilation(module, passes="", mode=mode, cache=False)
    found: dict[str, list[Instruction]] = {}
    for instruction in whole.with_families(_on_host).implementations:
        if makers := kernel_makers(instruction):
            found.setdefault(_name(makers), []).append(instruction)
    return found


def _on_host(instruction: Instruction, known: KnownLeaves) -> tuple[KernelMaker, ...]:
    """The reference runs it."""
    return ()


def _name(chosen: tuple[KernelMaker, ...]) -> str:
    """The functions, each with its file."""
    functions = [getattr(f, "func", f) for f in chosen]
    return " or ".join(f"{f.__name__} ({f.__module__.replace('.', '/')}.py)" for f in functions)


def _healed_by(members: Collection[Instruction], mode: str, tolerance: Tolerance) -> Property:
    """The program equals the reference once the reference runs some of its instructions."""
    names = {(i.computation.name if i.computation else "", i.name) for i in members}

    def chosen(instruction: Instruction, known: KnownLeaves) -> tuple[KernelMaker, ...]:
        home = instruction.computation
        if (home.name if home else "", instruction.name) in names:
            return ()
        return kernel_makers(instruction, known)

    def ask(case: Case) -> bool:
        expected = driver.evaluate(case.module, *case.values)
        made = Compilation(case.module, passes="", mode=mode, cache=False)
        ours = made.with_families(chosen).executable(*case.values)
        return same_results(ours, expected, tolerance)

    return Property(f"healed by {len(names)}", ask)
