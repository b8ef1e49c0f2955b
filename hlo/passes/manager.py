"""The pass manager: runs a pipeline, verifies after every change, tells observers what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.module import Module
from hlo.passes.catalogue import CATALOGUE, NEEDS
from hlo.passes.pipeline import Fixpoint, Step, Steps
from hlo.progress import tell

Verify = Callable[[Module], None]


class PassRun(Struct, frozen=True):
    """One run of one pass."""

    step: Step
    changed: bool
    seconds: float
    instructions_before: int
    instructions_after: int


class Manager(Struct):
    """verify: called after each pass that changed the module; its HloError is laid to that pass.

    before, after: observers, called with the module around each run (for dumps and diffs).
    running: the step at work, or the one that failed. present: the opcodes of the module that it
    runs on, while no pass changes it.
    """

    verify: Verify | None = None
    before: list[Callable[[Module, Step], None]] = field(default_factory=list)
    after: list[Callable[[Module, PassRun], None]] = field(default_factory=list)
    runs: list[PassRun] = field(default_factory=list)
    running: Step | None = None
    present: frozenset[str] | None = None

    def run(self, module: Module, steps: Steps) -> bool:
        """Run the steps in place; whether any changed the module."""
        changed = False
        self.present = None
        for step in steps:
            if isinstance(step, Fixpoint):
                changed |= self._fixpoint(module, step)
            else:
                changed |= self._run_pass(module, step)
        return changed

    def _fixpoint(self, module: Module, group: Fixpoint) -> bool:
        changed = False
        for _ in range(group.rounds):
            if not self.run(module, group.steps):
                break
            changed = True
        return changed

    def _run_pass(self, module: Module, step: Step) -> bool:
        for observer in self.before:
            observer(module, step)
        self.running = step
        tell(f"pass {step.name}", len(self.runs))
        before = _count(module.computations)
        start = time.perf_counter()
        needs = NEEDS.get(step.name)
        is_needed = needs is None or not needs.isdisjoint(self._opcodes(module))
        changed = is_needed and CATALOGUE[step.name](module, **dict(step.options))
        run = PassRun(
            step, changed, time.perf_counter() - start, before, _count(module.computations)
        )
        if changed:
            self.present = None
            _drop_schedule(module)
            self._check(module, step)
        self.running = None
        self.runs.append(run)
        for after in self.after:
            after(module, run)
        return changed

    def _opcodes(self, module: Module) -> frozenset[str]:
        if self.present is None:
            self.present = frozenset().union(*[c.fact(_opcodes) for c in module.computations])
        return self.present

    def _check(self, module: Module, step: Step) -> None:
        if self.verify is None:
            return
        try:
            self.verify(module)
        except HloError as error:
            raise PassError(step, error) from error


def _drop_schedule(module: Module) -> None:
    """An edited module has no schedule any more: the backend makes its own."""
    if module.is_scheduled:
        module.attributes = {k: v for k, v in module.attributes.items() if k != "is_scheduled"}


def _opcodes(computation: Computation) -> frozenset[str]:
    return frozenset([i.opcode for i in computation.instructions])


def _count(computations: Iterable[Computation]) -> int:
    return sum(len(c) for c in computations)


class PassError(RuntimeError):
    """A pass made a module that does not verify: a bug of ours, never the user's."""

    def __init__(self, step: Step, error: HloError) -> None:
        super().__init__(
            f"pass {step} broke the module (hlo-opt --passes={step} reproduces it):\n{error}"
        )
        self.step = step
        self.error = error
