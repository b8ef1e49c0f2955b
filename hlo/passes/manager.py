"""The pass manager: runs a pipeline, verifies after every change, tells observers what happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, repeat

from msgspec import Struct, field

from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes
from hlo.passes.catalogue import CATALOGUE, NEEDS
from hlo.passes.pipeline import Fixpoint, Layers, Step, Steps
from hlo.passes.remarks import are_heard
from hlo.progress import tell

# Random numbers follow from how many instructions have drawn some before.
_COUNTED = opcodes(Trait.RANDOM) - {"rng-bit-generator"}
FEWEST_INSTRUCTIONS = 300  # of an entry in which layers are looked for
Verify = Callable[[Module], None]
LAYERS = Step("layers")  # what is at work while layers are taken out and put back
MOST_FURTHER = 1  # layers that stay besides where those behind a cut were not as those before it


class PassRun(Struct, frozen=True):
    """One run of one pass."""

    step: Step
    changed: bool
    seconds: float
    instructions_before: int
    instructions_after: int


class Manager(Struct):
    """Runs pipelines on modules, and keeps what each pass did.

    verify: called after each pass that changed the module; its HloError is laid to that pass.

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

    def _step(self, module: Module, step: Step | Fixpoint | Layers) -> bool:
        if isinstance(step, Fixpoint):
            return self._fixpoint(module, step)
        if isinstance(step, Layers):
            return self._layers(module, step)
        return self._run_pass(module, step)

    def _layers(self, module: Module, group: Layers) -> bool:
        """The steps on a few of the equal layers, then all layers as these are; where passes did
        not make the same of neighbours, the steps on some more of them, or on all.
        """
        if not self._may_be_shortened(module):
            return self.run(module, group.steps)
        from hlo.analysis.left_out import leaving_out  # all three for networks alone
        from hlo.passes.lengthening import Fit, lengthen
        from hlo.passes.shortening import shortened

        for behind in range(MOST_FURTHER + 1):
            self.running = LAYERS
            cuts = shortened(module, behind)
            with leaving_out([cut.left_out for cut in cuts]):
                changed = self.run(module, group.steps)
            if not cuts:
                return changed
            if not changed:
                cuts[0].undo(module)
                return False
            self.running = LAYERS
            fit = lengthen(module, cuts)
            if fit is Fit.DONE:
                self.present = self.size = self.running = None
                self._check(module, LAYERS)
                return True
            cuts[0].undo(module)
            if fit is Fit.TIED:
                break
        return self.run(module, group.steps)

    def _may_be_shortened(self, module: Module) -> bool:
        """Whether looking for equal layers may pay, nobody looks on who would miss some, and no
        instruction counts those before it.
        """
        is_seen = bool(self.before or self.after) or are_heard()
        if is_seen or len(module.entry) < FEWEST_INSTRUCTIONS:
            return False
        return _COUNTED.isdisjoint(self._opcodes(module))

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
        try:
            changed = self._is_needed(module, step) and CATALOGUE[step.name](
                module, **dict(step.options)
            )
        except Exception as error:
            error.add_note(f"in pass {step}")  # which the report of a bug begins with
            raise
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
