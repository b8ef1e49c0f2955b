"""Case: a module with the arguments that show something; the values that one run of it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from msgspec import Struct

from hlo import driver
from hlo.errors import HloError
from hlo.hashing import hasher
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.tools.cases import arrays
from hlo.tools.cases.inputs import made_up_inputs

Recorded = Mapping[Instruction, object]
# A run for values that takes longer is given up: a candidate's loop may have no end.
RUN_S = 20.0
RUN_TRIPS = 10_000


class Case(Struct, frozen=True):
    """A module and its arguments.

    values: one per entry parameter, nested tuples for tuple parameters, None for tokens.
    """

    module: Module
    values: tuple[object, ...]

    @property
    def text(self) -> str:
        return driver.to_text(self.module)

    @property
    def digest(self) -> str:
        """A hash of the text and of the bits of the values."""
        hashed = hasher(self.text.encode())
        hashed.update(arrays.digest(self.values).encode())
        return hashed.hexdigest()[:24]

    @property
    def size(self) -> int:
        """Instructions of all computations."""
        return sum(len(c) for c in self.module.computations)


def case_of(module: Module, values: Sequence[object] | None = None) -> Case:
    """The case of a module; arguments are made up where none are given."""
    return Case(module, tuple(made_up_inputs(module) if values is None else values))


def recorded(case: Case) -> Recorded:
    """The first value that each instruction has in a run of the reference.

    Those that do not run have none, nor have those behind an error or a loop that goes on and on.
    """
    found: dict[Instruction, object] = {}

    def watch(instruction: Instruction, value: object) -> object:
        found.setdefault(instruction, value)
        return value

    with suppress(HloError):
        driver.evaluate(case.module, *case.values, timeout=RUN_S, max_steps=RUN_TRIPS, watch=watch)
    return {i: v for i, v in found.items() if fits(i, v)}


def fits(instruction: Instruction, value: object) -> bool:
    """Whether a value has an instruction's shape: a reducer may be given whole arrays."""
    shapes = [s for s in instruction.shape.leaves() if s.is_array]
    leaves = list(arrays.leaves(value))
    return len(shapes) == len(leaves) and all(
        np.shape(a) == s.dims and a.dtype == s.dtype.numpy
        for a, s in zip(leaves, shapes, strict=True)
    )
