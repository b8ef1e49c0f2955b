"""What a text says of decisions is enough: compiled as it is, it gives the kernels that compiling
straight gives; and so it does without what it says, which is then decided anew. Where factors are
zero is no decision: nobody else knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.isa.target import Target
from hlo.errors import HloError
from hlo.machine import NAMED
from tests.support import program_texts
from tests.support.covering import sample

MACHINES = [NAMED["sapphirerapids"], NAMED["x86-64-v3"]]
TESTS = program_texts.TESTS
PASSES = TESTS / "golden" / "passes"
FILES = [
    *sorted(TESTS.glob("digest/*.hlo")), *sorted(TESTS.glob("golden/loops/*.hlo")),
    PASSES / "fusion-middle.hlo", PASSES / "block-fusion.hlo",
]  # fmt: skip
SUITES = sorted(program_texts.SHARED.glob("suites/*/*.hlo"))
PARTS = 3  # of the suites, of which the first is run without -m slow
CONFIG = re.compile(r', backend_config=\{"hlo":\{(?!"zeros")[^}]*\}\}')


def kernels(made: Compilation) -> list[list[str]]:
    """Every kernel for each machine, in no order: instructions may stand in another one."""
    targets = [Target(machine, made.mode) for machine in MACHINES]
    return [sorted(map(_text, made.with_target(t).implementations.values())) for t in targets]


def _text(implementation: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(implementation))


def check(programs: Sequence[tuple[str, str]]) -> None:
    """The texts of the programs say what is needed, and nothing that is not found without it."""
    for name, module in program_texts.verified(programs):
        given = hlo.parse(str(module))  # with its results' layouts, which a header may leave out
        made = Compilation(given, passes=program_texts.passes_of(name), threads=1, cache=False)
        try:
            straight = kernels(made)
        except HloError:
            continue  # what is no program for these machines
        text = str(made.optimised)
        for printed in dict.fromkeys((text, CONFIG.sub("", text))):
            again = Compilation(hlo.parse(printed), passes="", threads=1, cache=False)
            assert kernels(again) == straight, name


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_printed_and_compiled(file: Path) -> None:
    parts = file.read_text(errors="surrogateescape").split("// -----\n")
    check([(f"{file.relative_to(TESTS)}:{n}", text) for n, text in enumerate(parts)])


@pytest.mark.skipif(not SUITES, reason="needs the benchmark suites")
@pytest.mark.parametrize("part", sample(range(PARTS), PARTS))
def test_suites_printed_and_compiled(part: int) -> None:
    files = [f for f in SUITES if f.stat().st_size <= program_texts.LARGEST_BYTES][part::PARTS]
    check([(f.name, f.read_text(errors="surrogateescape")) for f in files])
