"""What the schedule of a product or a Fourier transform says of its loops is what its code has."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.target import Target
from hlo.backend.loops.opened import Schedules
from hlo.backend.loops.schedule import LoopSchedule
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.implementations import HostCall, implementations
from hlo.backend.planning.result_order import in_memory_order
from hlo.backend.planning.schedule import schedule
from hlo.machine import NAMED
from tests.support import program_texts
from tests.support.covering import covering
from tests.support.emitted_loops import agree, said, shape, written

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "digest").glob("*.hlo"), *(ROOT / "golden" / "loops").glob("*.hlo")])
PARTS = 3  # of the files; without -m slow, each is for one of the machines
MACHINES = ("sapphirerapids", "x86-64-v3", "generic")


def kernels(text: str, name: str, machine: str) -> Iterator[tuple[Kernel, LoopSchedule]]:
    """Those of a program that no record has seen, with their schedules."""
    module = hlo.optimize(hlo.parse(text, name), program_texts.passes_of(name))
    target = replace(Target(NAMED[machine]), schedules=(found := Schedules()))
    made = implementations(schedule(in_memory_order(module)), target, kernel_makers)
    waiting = [c.kernel for i in made.values() if not isinstance(i, HostCall) for c in i.calls]
    for kernel in waiting:
        waiting += kernel.functions
        known = found.of.get(kernel.text)
        if isinstance(known, LoopSchedule) and kernel.text not in found.opened:
            yield kernel, known


def check(text: str, name: str, machine: str) -> int:
    """How many there were."""
    found = list(kernels(text, name, machine))
    for kernel, known in found:
        (nest,) = known.nests
        assert (known.units, known.scratch_bytes) == (kernel.units, kernel.scratch_bytes)
        told, seen = said(nest), written(kernel)
        assert agree(told, seen), f"{shape(told)}\n{shape(seen)}"
    return len(found)


@pytest.mark.parametrize(("machine", "part"), covering(MACHINES, range(PARTS), strength=1))
def test_kernels_have_the_loops_that_their_schedules_say(machine: str, part: int) -> None:
    count = 0
    for file in FILES[part::PARTS]:
        for number, text in enumerate(file.read_text(errors="surrogateescape").split("// -----\n")):
            count += check(text, f"{file.relative_to(ROOT)}:{number}", machine)
    assert count > 12


@pytest.mark.slow
def test_kernels_of_the_suites_have_the_loops_that_their_schedules_say() -> None:
    """`pytest -m slow tests/unit/backend/loops`: one or two minutes."""
    given = dict([*program_texts.shared(), *program_texts.written()])
    for name, _ in program_texts.verified(given.items()):
        for machine in ("sapphirerapids", "x86-64-v3"):
            check(given[name], name, machine)
