"""The pass manager: runs a pipeline, verifies after every change, tells observers what happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, repeat

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
    running: the step at work, or the one that failed. present, size: the opcodes of the module that
    it runs on, and how many instructions it has, while no pass changes it.
    """

    verify: Verify | None = None
    before: list[Callable[[Module, Step], None]] = field(default_factory=list)
    after: list[Callable[[Module, PassRun], None]] = field(default_factory=list)
    runs: list[PassRun] = field(default_factory=list)
    running: Step | None = None
    present: frozenset[str] | None = None
    size: int | None = None

    def run(self, module: Module, steps: Steps) -> bool:
        """Run the steps in place; whether any changed the module."""
        self.present = self.size = None
        changed = False
        for step in steps:
            changed |= self._step(module, step)
        return changed

    def _step(self, module: Module, step: Step | Fixpoint) -> bool:
        if isinstance(step, Fixpoint):
            return self._fixpoint(module, step)
        return self._run_pass(module, step)

    def _fixpoint(self, module: Module, group: Fixpoint) -> bool:
        """Rounds of the steps, until each has run on the module as it is and left it so."""
        changed, idle = False, 0
        for step in chain.from_iterable(repeat(group.steps, group.rounds)):
            if self._step(module, step):
                changed, idle = True, 0
                continue
            idle += 1
            if idle == len(group.steps):
                break
        return changed

    def _run_pass(self, module: Module, step: Step) -> bool:
        for observer in self.before:
            observer(module, step)
        self.running = step
        tell(f"pass {step.name}", len(self.runs))
        before = self._size(module)
        start = time.perf_counter()
        changed = self._is_needed(module, step) and CATALOGUE[step.name](
            module, **dict(step.options)
        )
        seconds = time.perf_counter() - start
        if changed:
            self.present = self.size = None
            _drop_schedule(module)
            self._check(module, step)
        self.running = None
        run = PassRun(step, changed, seconds, before, self._size(module))
        self.runs.append(run)
        for after in self.after:
            after(module, run)
        return changed

    def _is_needed(self, module: Module, step: Step) -> bool:
        """Whether the module has the ops that the pass is about: most passes stop here."""
        needs = NEEDS.get(step.name)
        if needs is None:
            return True
        present = self._opcodes(module)
        return all(not needed.isdisjoint(present) for needed in needs)

    def _opcodes(self, module: Module) -> frozenset[str]:
        if self.present is None:
            self.present = frozenset().union(*[c.fact(_opcodes) for c in module.computations])
        return self.present

    def _size(self, module: Module) -> int:
        if self.size is None:
            self.size = sum(map(len, module.computations))
        return self.size

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


class PassError(RuntimeError):
    """A pass made a module that does not verify: a bug of ours, never the user's."""

    def __init__(self, step: Step, error: HloError) -> None:
        super().__init__(
            f"pass {step} broke the module (hlo-opt --passes={step} reproduces it):\n{error}"
        )
        self.step = step
        self.error = error
