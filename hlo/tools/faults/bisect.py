"""bisect: the pass, its run, and the single rewrite that brings a fault into a program.

    module --every pass run--> stages; the first stage that has the fault --fuel--> its rewrite

A stage is judged by the reference, so what is found is the passes' fault; a back end's fault is
looked for by hlo/tools/faults/bisect_kernels.py. What every pass run leaves is kept (a clone for
each that changed something), so that each is made once.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from hlo import driver
from hlo.errors import HloError
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.catalogue import CATALOGUE, option_types
from hlo.passes.manager import Manager, PassRun
from hlo.passes.pipeline import Step, parse_pipeline
from hlo.passes.rewriting import Rule, apply_rules
from hlo.passes.simplify.algsimp import limits_of
from hlo.tools.cases.case import Case
from hlo.tools.cases.trials import Property, Trials

MOST_LINES = 12  # of what a pass changed


class Stage(Struct, frozen=True):
    """The module after a number of pass runs. round: of this pass, counted from 1."""

    number: int
    step: Step
    round: int
    module: Module


class RewriteFound(Struct, frozen=True):
    """One rewrite of a pass: its number from 1, of how many; what was replaced, by what."""

    number: int
    total: int
    rule: str
    equation: str
    old: str
    new: str
    where: str


class PassFound(Struct, frozen=True):
    """The pass run that brings the fault in.

    before: the case that it is given, which has not the fault. changed: lines of text that it
    takes out (-) and puts in (+). passes: a pipeline that shows the fault on `before`.
    """

    number: int
    total: int
    step: str
    round: int
    before: Case
    passes: str
    changed: tuple[str, ...]
    rewrite: RewriteFound | None
    asked: int


def stages(module: Module, passes: str, *, verified: bool = True) -> list[Stage]:
    """Every pass run that changed the module, with what it left; the last one may be a run that
    failed or, if verified, broke the module: its stage is what it left.
    """
    found: list[Stage] = []
    rounds: dict[str, int] = {}
    count = [0]
    work = clone_module(module)

    def after(changed: Module, run: PassRun) -> None:
        count[0] += 1
        if run.changed:
            found.append(_stage(count[0], run.step, rounds, clone_module(changed)))

    manager = Manager(verify=driver.verify if verified else None, after=[after])
    try:
        manager.run(work, parse_pipeline(passes))
    except HloError:
        raise
    except Exception:  # a pass that fails or breaks the module: the stage itself is the finding
        if manager.running is None:
            raise
        found.append(_stage(count[0] + 1, manager.running, rounds, work))
    return found


def _stage(number: int, step: Step, rounds: dict[str, int], module: Module) -> Stage:
    rounds[str(step)] = rounds.get(str(step), 0) + 1
    return Stage(number, step, rounds[str(step)], module)


def bisected(
    case: Case, passes: str, fault: Property, *, jobs: int = 1, timeout: float = 60.0
) -> PassFound | None:
    """The first pass run after which the module has the fault; None where the last has it not.

    HloError `arguments` where the module has it as given. O(log(pass runs) + log(rewrites))
    questions, each in a child process.
    """
    trials = Trials(fault, jobs=jobs, timeout=timeout)
    if trials.holds(case):
        raise HloError(
            "arguments",
            f"bisect: the module as given has the fault already ({fault.name}), expected one that "
            "passes bring it into",
        )
    made = stages(case.module, passes, verified=False)
    if not made or not trials.holds(_at(case, made[-1])):
        return None
    at = first_bad(len(made), lambda n: trials.holds(_at(case, made[n - 1]))) - 1
    before = case.module if at == 0 else made[at - 1].module
    guilty = made[at]
    rewrite, passes_again = _rewrite(Case(before, case.values), guilty.step, trials)
    return PassFound(
        guilty.number,
        made[-1].number,
        str(guilty.step),
        guilty.round,
        Case(before, case.values),
        passes_again,
        changed_lines(before, guilty.module),
        rewrite,
        trials.asked,
    )


def _at(case: Case, stage: Stage) -> Case:
    return Case(stage.module, case.values)


def first_bad(count: int, is_bad: Callable[[int], bool]) -> int:
    """The least n in 1..count of which n is bad and n - 1 is not, where 0 is good and count bad."""
    good, bad = 0, count
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_bad(middle):
            bad = middle
        else:
            good = middle
    return bad


def _rewrite(case: Case, step: Step, trials: Trials) -> tuple[RewriteFound | None, str]:
    """The single rewrite of a pass that has fuel, and a pipeline of its rule alone if that has the
    fault too.
    """
    if "fuel" not in option_types(CATALOGUE[step.name]):
        return None, str(step)
    heard: list[RewriteFound] = []
    with_fuel = partial(_fuelled, case, step)
    with_fuel(-1, heard)

    def is_bad(fuel: int) -> bool:
        return trials.holds(with_fuel(fuel, []))

    if not heard or not is_bad(len(heard)):
        return None, str(step)
    number = first_bad(len(heard), is_bad)
    found = heard[number - 1]
    alone = Step(step.name, (*_without_choice(step), ("only", found.rule)))
    changed = clone_module(case.module)
    CATALOGUE[step.name](changed, **dict(alone.options))
    return found, str(alone if trials.holds(Case(changed, case.values)) else step)


def _without_choice(step: Step) -> tuple[tuple[str, object], ...]:
    return tuple((k, v) for k, v in step.options if k not in ("only", "without", "fuel"))


def _fuelled(case: Case, step: Step, fuel: int, heard: list[RewriteFound]) -> Case:
    """The case after at most so many rewrites, each of which is added to `heard`."""

    def hear(rule: Rule, old: Instruction, new: Instruction) -> None:
        where = f"{old.span.source.name}:{old.span.line}" if old.span else ""
        found = RewriteFound(
            len(heard) + 1, 0, rule.name, rule.equation, line_of(old), line_of(new), where
        )
        heard.append(found)

    module = clone_module(case.module)
    limits = limits_of(**{**dict(step.options), "fuel": fuel})  # type: ignore[arg-type]  # typed by the pipeline
    limits.heard = hear
    apply_rules(module, limits)
    heard[:] = [replace(found, total=len(heard)) for found in heard]
    return Case(module, case.values)


def line_of(instruction: Instruction) -> str:
    """`%name = shape opcode(operands)`, without attributes."""
    operands = ", ".join(f"%{o.name}" for o in instruction.operands)
    return f"%{instruction.name} = {instruction.shape} {instruction.opcode}({operands})"


def changed_lines(before: Module, after: Module) -> tuple[str, ...]:
    """Lines of text that one module has and the other has not, with what they are in front."""
    old, new = (driver.to_text(m).splitlines() for m in (before, after))
    rows = [
        row
        for row in difflib.unified_diff(old, new, lineterm="", n=0)
        if row[:1] in "+-" and row[:3] not in ("+++", "---")
    ]
    rest = len(rows) - MOST_LINES
    return tuple(rows[:MOST_LINES]) + ((f"... and {rest} lines more",) if rest > 0 else ())


def introduced(passes: str, fault: Property) -> Property:
    """A case has not the fault, and has it after the passes."""

    def ask(case: Case) -> bool:
        driver.verify(case.module)
        changed = driver.optimize(case.module, passes, Manager())
        return fault.ask(Case(changed, case.values)) and not fault.ask(case)

    return Property(f"{fault.name} after {passes}", ask, crash=False)


def leaves_fault() -> Property:
    """A module does not verify."""

    def ask(case: Case) -> bool:
        try:
            driver.verify(case.module)
        except HloError:
            return True
        return False

    return Property("does not verify", ask)


def optimised_case(case: Case, passes: str) -> Case:
    """The case after passes."""
    return Case(driver.optimize(case.module, passes, Manager()), case.values)
