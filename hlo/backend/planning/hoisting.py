"""Hoisting: what a loop's products make of factors that the loop leaves alone is made before it.

    Run of an instruction --parted--> Run of its early calls, Run of the others

A recurrent network multiplies by the same weights in every step: their panels, or words of them,
are made once and stay where the loop finds them. Early calls go out of as many loops as leave their
operands alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.kernel import KernelCall, KernelSequence
from hlo.backend.planning.allocations import Run


class Preheader(Struct, eq=False):
    """What runs before a loop that is being planned. kept: allocations that no iteration changes;
    start: the plan's clock before the loop.
    """

    kept: frozenset[int]
    start: int
    runs: list[Run] = field(default_factory=list)

    def same(self, early: Run) -> Run | None:
        """What was hoisted already and makes the same of the same."""
        return next((run for run in self.runs if _alike(run, early)), None)

    def forget(self, count: int) -> None:
        """Drop what writes allocations from this number on: the loop is planned anew."""
        self.runs = [run for run in self.runs if max(run.temporaries) < count]

    @property
    def allocations(self) -> list[int]:
        """What the hoisted calls write."""
        return [n for run in self.runs for n in run.temporaries]


def _alike(one: Run, other: Run) -> bool:
    return one.operands == other.operands and one.implementation == other.implementation


def preheader_of(changing: Sequence[int], loops: Sequence[Preheader]) -> Preheader | None:
    """The outermost of the loops, the innermost last, out of which early calls go; None: nowhere.

    changing: the allocations that they read, constants aside.
    """
    found = None
    for loop in reversed(loops):
        if not loop.kept.issuperset(changing):
            break
        found = loop
    return found


class Parts(Struct, frozen=True):
    """A run in two. temporaries: the numbers, in the whole one, of those that early calls write."""

    early: Run
    temporaries: tuple[int, ...]


def early_part(run: Run) -> Parts | None:
    """The early calls of a run alone, on the operands that they read; None where it has none."""
    sequence = run.implementation
    if not isinstance(sequence, KernelSequence):
        return None
    calls = [call for call in sequence.calls if call.is_early]
    if not calls:
        return None
    first = len(run.operands) + len(run.results)
    buffers = sorted({b for call in calls for b in call.buffers})
    operands = [b for b in buffers if b < len(run.operands)]
    temporaries = tuple(b - first for b in buffers if b >= first)
    assert len(operands) + len(temporaries) == len(buffers), "early calls write temporaries"
    places = {b: n for n, b in enumerate(buffers)}
    sizes = tuple(sequence.temporaries[t] for t in temporaries)
    made = Run(
        run.instruction,
        KernelSequence(tuple(_moved(call, places) for call in calls), sizes),
        tuple(run.operands[b] for b in operands),
        (),
        tuple(run.temporaries[t] for t in temporaries),
    )
    return Parts(made, temporaries)


def late_part(run: Run, parts: Parts) -> Run:
    """The other calls, for which what the early ones wrote are further operands."""
    sequence = run.implementation
    assert isinstance(sequence, KernelSequence), "host calls have no parts"
    count, first = len(run.operands), len(run.operands) + len(run.results)
    written = [first + t for t in parts.temporaries]
    others = [b for b in range(first, first + len(run.temporaries)) if b not in written]
    order = [*range(count), *written, *range(count, first), *others]
    places = {b: n for n, b in enumerate(order)}
    calls = tuple(_moved(call, places) for call in sequence.calls if not call.is_early)
    sizes = tuple(sequence.temporaries[b - first] for b in others)
    return Run(
        run.instruction,
        replace(sequence, calls=calls, temporaries=sizes, prepared=()),
        (*run.operands, *parts.early.temporaries),
        run.results,
        tuple(run.temporaries[b - first] for b in others),
    )


def _moved(call: KernelCall, places: dict[int, int]) -> KernelCall:
    """The call on buffers that have other places."""
    when = None if call.when is None else places[call.when]
    return replace(call, buffers=tuple(places[b] for b in call.buffers), when=when)
