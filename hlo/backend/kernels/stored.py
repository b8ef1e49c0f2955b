"""Results: where a kernel's outputs lie in the run, and how lanes are stored there."""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import access
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.outputs import Output
from hlo.indexing.affine import Expr, Index


def enter_outputs(elemental: Elemental, outputs: Iterable[Output]) -> None:
    """Their addresses, before the first loop."""
    for output in outputs:
        elemental.results[output.array.number] = elemental.memory_of(output.array)


def memory_of(elemental: Elemental, output: Output) -> Memory:
    """Where the output's array lies."""
    return elemental.results[output.array.number]


def place_of(elemental: Elemental, output: Output, index: Index) -> Expr:
    """Where in its array an element is, in the run."""
    starts = elemental.starts(output.update) if output.update is not None else None
    return output.place(index, starts)


def store(elemental: Elemental, output: Output, index: Index, lanes: Lanes) -> None:
    """Lanes of the output at an index."""
    place = place_of(elemental, output, index)
    access.store(elemental.nest, memory_of(elemental, output), place, lanes)
