"""Recovery: a module on which a pass fails is optimised without that pass.

    (module as given, steps) --optimized--> new module, names of the passes that were left out

A pass edits in place, so what a failed one leaves is thrown away and all starts again from the
module as given. That is a bug of ours and never goes by in silence: it is a warning, beside a
reproducer in a temporary folder. Where HLO_VERIFY_IR is set (our tests) the failure is raised.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hlo.errors import HloError
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.passes.manager import LAYERS, Manager
from hlo.passes.pipeline import Fixpoint, Layers, Step, Steps

# Elements of constants in a reproducer's text; larger constants are elided.
MOST_TEXT_ELEMENTS = 1 << 22


class Recovered(Struct, frozen=True):
    """An optimised module; left_out: the passes that failed on it."""

    module: Module
    left_out: tuple[str, ...]


def optimized(given: Callable[[], Module], steps: Steps) -> Recovered:
    """The steps' result. given: makes the module anew, ours to edit; called once if all is well.

    An HloError is what a pass says of the module, and memory that ends is nobody's bug: both are
    raised as they are.
    """
    left_out: list[str] = []
    while True:
        module, manager = given(), Manager()
        try:
            manager.run(module, without(steps, left_out))
        except (HloError, MemoryError):
            raise
        except Exception as error:  # any pass may fail in any way; the program can go without it
            if manager.running is None or os.environ.get("HLO_VERIFY_IR"):
                raise
            left_out.append(manager.running.name)
            _warn(given(), manager, manager.running, error)
        else:
            return Recovered(module, tuple(left_out))


def without(steps: Steps, names: list[str]) -> Steps:
    """The steps but those of some passes; without `layers`, those of such groups see all layers."""
    kept: list[Step | Fixpoint | Layers] = []
    for step in steps:
        if isinstance(step, Fixpoint):
            kept.append(Fixpoint(without(step.steps, names), step.rounds))
        elif isinstance(step, Layers):
            inner = without(step.steps, names)
            kept += inner if LAYERS.name in names else (Layers(inner),)
        elif step.name not in names:
            kept.append(step)
    return tuple(kept)


def _warn(module: Module, manager: Manager, failed: Step, error: Exception) -> None:
    import traceback  # for failures alone

    what = "".join(traceback.format_exception_only(error)).strip().splitlines()[0]
    try:
        place = f"the module, the command and the traceback are in {_written(module, manager)}"
    except OSError as refusal:
        place = f"no reproducer was written: {refusal.strerror}"
    warnings.warn(
        f"pass {failed.name} failed and was left out (a bug of hlo, not of your program): "
        f"{what}; {place}",
        RuntimeWarning,
        stacklevel=2,
    )


def _written(module: Module, manager: Manager) -> Path:
    """The folder of a reproducer: what was run up to the failure, on the module as given."""
    assert manager.running is not None, "a pass failed"
    import shlex  # for failures alone
    import tempfile
    import traceback

    folder = Path(tempfile.mkdtemp(prefix="hlo-bug-"))
    source = folder / "module.hlo"
    lines = []
    if _elided(module):
        lines = ["large constants are elided in module.hlo"]
    source.write_text(module.to_text())
    passes = ",".join(str(step) for step in (*(r.step for r in manager.runs), manager.running))
    command = f"hlo-opt {shlex.quote(str(source))} --passes={shlex.quote(passes)}"
    (folder / "report.txt").write_text("\n".join([command, *lines, "", traceback.format_exc()]))
    return folder


def _elided(module: Module) -> bool:
    """Leave out constants whose text would be too long; whether there are any."""
    changed = False
    for computation in module.computations:
        for constant in computation.instructions:
            literal = constant.get("literal")
            is_array = isinstance(literal, Literal) and constant.shape.is_array
            if is_array and constant.shape.size > MOST_TEXT_ELEMENTS:
                elided = {**constant.attributes, "literal": Literal.elided(constant.shape)}
                computation.set_attributes(constant, elided)
                changed = True
    return changed
