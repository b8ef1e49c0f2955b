"""Programs of all kinds, for what has to hold on any module: the tests' own, generated ones, and
the suites and the corpus where they are present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import hlo
from hlo.errors import HloError
from hlo.ir.module import Module
from tests.support.control_flow_programs import random_program
from tests.support.graph_draws import Graph

TESTS = Path(__file__).parents[1]
SHARED = TESTS.parents[1] / "shared"
LARGEST_BYTES = 300_000
Program = tuple[str, str]  # a name, a text


def written() -> Iterator[Program]:
    """Every module in the tests' own files."""
    for file in sorted(TESTS.rglob("*.hlo")):
        parts = file.read_text(errors="surrogateescape").split("// -----\n")
        for number, text in enumerate(parts):
            yield f"{file.relative_to(TESTS)}:{number}", text


def passes_of(name: str) -> str:
    """The pipeline for a program: none where it is to reach the back end as it is written."""
    return "" if name.startswith("digest/as_written.hlo") else "default"


def shared(*, large: bool = False) -> Iterator[Program]:
    """The suites and the corpus."""
    found = [*SHARED.glob("corpus/files/*.hlo"), *SHARED.glob("corpus/models/*.txt"),
             *SHARED.glob("suites/*/*.hlo"), *SHARED.glob("found/*.hlo")]  # fmt: skip
    for file in sorted(found):
        if (file.stat().st_size > LARGEST_BYTES) == large:
            yield str(file.relative_to(SHARED)), file.read_text(errors="surrogateescape")


def generated(seeds: Iterable[int]) -> Iterator[Program]:
    """Nests of loops, branches and calls, and graphs of fusible ops, by turns."""
    for seed in seeds:
        if seed % 2:
            yield f"control flow {seed}", random_program(seed)
        else:
            graph = Graph(seed)
            for _ in range(3 + seed % 12):
                graph.grow()
            yield f"graph {seed}", graph.module().to_text()


def verified(programs: Iterable[Program]) -> Iterator[tuple[str, Module]]:
    """The modules of the programs that parse and verify."""
    for name, text in programs:
        try:
            module = hlo.parse(text, name)
            hlo.verify(module)
        except HloError:
            continue
        yield name, module
