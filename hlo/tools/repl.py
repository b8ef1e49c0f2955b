"""repl: modules at a Python prompt.

    m = load("model.hlo")      a Loaded: m is its text in short, m.text all of it
    m(np.ones((2, 3)), 1.5)    compiles (once for each pipeline) and calls
    m.inputs()                 made-up arguments: m(*m.inputs())
    m["add.3"]                 an instruction and its users
    m.optimize("simplify")     a Loaded of the rewritten module
    m.time(*m.inputs())        the median time of a call
    m.values(*m.inputs())      what each instruction of the entry made, by name

Everything else at the prompt is Python: `np` and `hlo` are there.
"""

from __future__ import annotations

import code
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hlo
from hlo import driver
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.process.once import cached_property, lock
from hlo.tools.bench import duration, measure
from hlo.tools.cases.case import Case, recorded
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.faults.bisect import line_of
from hlo.tools.inspection.stats import stats

SECONDS = 0.5  # a call is timed for so long
MOST_SHOWN = 12  # users of an instruction


class Loaded:
    """A module at the prompt."""

    def __init__(self, module: Module, passes: str = "default") -> None:
        self.module, self.passes = module, passes
        self.lock = lock()

    @cached_property
    def executable(self) -> Any:
        """Machine code of the module."""
        return driver.compile(self.module, passes=self.passes)

    @property
    def text(self) -> str:
        return driver.to_text(self.module)

    def __repr__(self) -> str:
        entry, counts = self.module.entry, stats(self.module)
        given = ", ".join(f"{p.name}: {p.shape}" for p in entry.parameters)
        most = ", ".join(f"{name} {number:,}" for name, number in counts.opcodes[:5])
        return (
            f"{self.module.name}({given}) -> {entry.root.shape}\n"
            f"{counts.instructions:,} instructions: {most}"
        )

    def __call__(self, *values: object) -> object:
        return self.executable(*self._given(values))

    def _given(self, values: Sequence[object]) -> list[object]:
        """Values as the parameters' types: what was written without a type takes theirs."""
        parameters = self.module.entry.parameters
        if len(values) != len(parameters):
            names = ", ".join(f"{p.name}: {p.shape}" for p in parameters)
            message = (
                f"{self.module.name}: {len(values)} values, expected {len(parameters)}: {names}"
            )
            raise HloError("arguments", message)
        return [
            typed(value, p.shape) if p.shape.is_array else value
            for value, p in zip(values, parameters, strict=True)
        ]

    def inputs(self, kind: str = "normal", seed: int = 0) -> list[object]:
        """Made-up arguments, as `hlo-run --random` makes them."""
        return made_up_inputs(self.module, kind, seed)

    def optimize(self, passes: str = "default") -> Loaded:
        """The module rewritten by a pipeline, to be compiled as it then is."""
        return Loaded(driver.optimize(self.module, passes), "")

    def time(self, *values: object) -> str:
        """The median time of a call on this machine, compiled before."""
        given, run = self._given(values), self.executable
        (timing,) = measure([lambda: run(*given)], SECONDS)
        return duration(timing.median)

    def values(self, *values: object) -> dict[str, object]:
        """What each instruction of the entry made, by the reference."""
        case = Case(self.module, tuple(self._given(values)))
        own = set(self.module.entry.instructions)
        return {i.name: value for i, value in recorded(case).items() if i in own}

    def __getitem__(self, name: str) -> Shown:
        wanted = name.removeprefix("%")
        for computation in self.module.computations:
            for instruction in computation.instructions:
                if instruction.name == wanted:
                    return Shown(instruction)
        raise HloError("unknown-name", f"{self.module.name} has no instruction {name}")


def typed(value: object, shape: Shape) -> np.ndarray:
    """A value as an array of a parameter's type, where it has one that nobody chose: a number, a
    list, an array of NumPy's defaults (f64, s64). Integers must fit; others are left as they are.
    """
    array, target = np.asarray(value), shape.dtype.numpy
    assert target is not None, "an array shape"
    is_default = not isinstance(value, np.ndarray) or array.dtype in (np.float64, np.int64)
    if not is_default or array.dtype == target:
        return array
    if array.dtype.kind == "f" and not shape.dtype.component.is_float:
        return array
    if array.dtype.kind == "i" and shape.dtype.is_integral and array.size:
        low, high = shape.dtype.int_range
        if array.min() < low or array.max() > high:
            return array
    return array.astype(target)


class Shown:
    """An instruction at the prompt: its line, its operands' lines, its users."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction

    def __repr__(self) -> str:
        users = list(self.instruction.users)
        rows = [f"  {line_of(o)}" for o in self.instruction.operands]
        rows.append(line_of(self.instruction))
        rows += [f"    used by {line_of(u)}" for u in users[:MOST_SHOWN]]
        if len(users) > MOST_SHOWN:
            rows.append(f"    and by {len(users) - MOST_SHOWN} more")
        return "\n".join(rows)


def load(path: str) -> Loaded:
    """The module of a file, of any form that the commands read."""
    return Loaded(driver.read(path))


def namespace(paths: Sequence[str]) -> dict[str, object]:
    """The names at the prompt: the files' modules by their names' beginnings, the first as m."""
    found: dict[str, object] = {"np": np, "hlo": hlo, "load": load}
    for path in paths:
        loaded = load(path)
        found.setdefault("m", loaded)
        found[re.sub(r"\W|^(?=\d)", "_", Path(path).name.partition(".")[0])] = loaded
    return found


class Prompt(code.InteractiveConsole):
    """Python's prompt; what modules have to say is said as the commands say it."""

    def showtraceback(self) -> None:
        """What was raised: an error of ours as the commands say it, others as Python does."""
        error = sys.exception()
        if isinstance(error, HloError):
            self.write(f"{error}\n")
        else:
            super().showtraceback()
