"""What a schedule says of a kernel's loops is what its code does."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.loops.opened import (
    Made,
    Opened,
    Schedules,
    Steps,
    Stored,
    loops_of,
    reduced,
    units_of,
)
from hlo.backend.loops.schedule import LoopSchedule
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.implementations import implementations
from hlo.backend.planning.result_order import in_memory_order
from hlo.backend.planning.schedule import schedule
from hlo.machine import NAMED
from tests.support import program_texts
from tests.support.covering import covering

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "digest").glob("*.hlo"), *(ROOT / "golden" / "loops").glob("*.hlo")])
MACHINES = ("sapphirerapids", "x86-64-v3", "generic")

Shape = tuple[object, ...]


def schedules(text: str, name: str, machine: str) -> Schedules:
    """Of all kernels of a program."""
    module = hlo.optimize(hlo.parse(text, name), program_texts.passes_of(name))
    target = replace(Target(NAMED[machine]), schedules=(found := Schedules()))
    implementations(schedule(in_memory_order(module)), target, kernel_makers)
    return found


def shape(steps: Steps, *, reductions: bool = True) -> Shape:
    """Loops with their bounds and steps, reductions and stores, each once where it is known."""
    found: list[object] = []
    known: set[str | int] = set()
    for step in steps:
        if isinstance(step, Opened):
            inner = shape(step.inner, reductions=reductions)
            found.append((step.low, step.high, step.step, inner))
        elif reductions:
            inner = shape(step.inner) if isinstance(step, Made) else ()
            name = step.reduction.value if isinstance(step, Made) else step.leaf
            if name not in known:
                found.append((name, inner))
            known.add(name)
    return tuple(found)


def made(steps: Steps) -> Iterator[Made]:
    """All reductions."""
    for step in steps:
        if isinstance(step, Made):
            yield step
        if not isinstance(step, Stored):
            yield from made(step.inner)


def check(found: Schedules) -> None:
    for text, seen in found.opened.items():
        known = found.of[text]
        assert isinstance(known, LoopSchedule)
        said = [step for nest in known.nests for step in loops_of(nest)]
        assert shape(said) == shape(seen)
        assert [units_of(nest) for nest in known.nests] == [nest.units for nest in known.nests]
        assert shape(said, reductions=False) == shape(seen, reductions=False)
        for each in made(seen):
            own = shape(reduced(each.reduction), reductions=False)
            assert own == shape(each.inner, reductions=False)


def programs(file: Path) -> Sequence[tuple[str, str]]:
    parts = file.read_text(errors="surrogateescape").split("// -----\n")
    return [(f"{file.relative_to(ROOT)}:{number}", text) for number, text in enumerate(parts)]


@pytest.mark.parametrize(("machine", "file"), covering(MACHINES, FILES, strength=1))
def test_loops_are_opened_as_the_schedule_says(file: Path, machine: str) -> None:
    for name, text in programs(file):
        check(schedules(text, name, machine))


@pytest.mark.slow
def test_loops_of_the_suites_are_opened_as_the_schedule_says() -> None:
    """`pytest -m slow tests/unit/backend/loops`: one or two minutes."""
    given = dict([*program_texts.shared(), *program_texts.written()])
    for name, _ in program_texts.verified(given.items()):
        for machine in ("sapphirerapids", "x86-64-v3"):
            check(schedules(given[name], name, machine))
