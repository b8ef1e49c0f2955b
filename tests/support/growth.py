"""Growth: what each stage of a module's way costs, as a count of work that no machine changes.

    family, size --stage_work--> {stage: calls of functions}, and the length of the generated code

What it takes to write the code is seen in its length: long kernels only are cut into pieces.
Calls of Python's functions and of C's, which loops over a module make for each thing that they look
at. In planning, whose loops compare numbers of allocations and call nothing, also the lines that
run, rounds of loops among them, and the elements of packing's arrays. What one call of C does
inside (a search of a list) is not seen: `python -m benchmarks.growth` takes seconds of large sizes
for that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from cProfile import Profile
from pathlib import Path
from types import FrameType
from typing import Any

from hlo import driver
from hlo.backend import planning
from hlo.backend.compilation import Compilation
from hlo.backend.planning import packing
from hlo.parser import pieces
from hlo.passes.manager import Manager
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.counted_arrays import counted
from tests.support.growing_modules import Family

THREADS = 2
PLANNING = str(Path(planning.__path__[0]))


class Counter:
    """Calls by stage."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        before = sys.getprofile()
        counts = Profile()  # in C: a function of ours for each call took as long as the work
        counts.enable()
        try:
            yield
        finally:
            counts.disable()
            sys.setprofile(before)
        self.calls[name] = sum(entry.callcount for entry in counts.getstats())


@contextmanager
def counted_lines(folder: str) -> Iterator[Callable[[], int]]:
    """Lines that run and rounds of loops in a folder's files; a comprehension's rounds are some."""
    count = 0

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return ran if frame.f_code.co_filename.startswith(folder) else None

    def ran(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return ran

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


def stage_work(family: Family, size: int) -> dict[str, int]:
    """The work of each stage on one size of a family."""
    counter = Counter()
    text = family.text(size)
    _forget_pieces()
    with counter.stage("parse"):
        module = driver.parse(text)
    with counter.stage("print"):
        driver.to_text(module)
    with counter.stage("verify"):
        driver.verify(module)
    with counter.stage("optimize"):
        optimized = driver.optimize(module, manager=Manager())
    made, again = (Compilation(optimized, threads=THREADS, passes="") for _ in range(2))
    with counter.stage("plan"):
        _ = made.link_table
    with counted_lines(PLANNING) as lines, counted(packing) as looks:
        _ = again.program
    work = {**counter.calls, "lines of planning": lines(), "looks of packing": looks()}
    work["code"] = sum(len(m.text) for m in made.ir)
    if family.runs:
        arguments = made_up_inputs(module, "normal", 0)
        with counter.stage("evaluate"):
            driver.evaluate(module, *arguments)
        work["evaluate"] = counter.calls["evaluate"]
    return work


def _forget_pieces() -> None:
    """Of texts met before: their parts are read once, and a test that met one size counts less."""
    for memory in vars(pieces).values():
        if isinstance(memory, pieces._Memory):
            memory.clear()


def growth(work: Callable[[int], dict[str, int]], base: int) -> dict[str, tuple[int, int]]:
    """Per stage, the work of four times a size, and of eight times."""
    work(base)  # imports, and what is made once
    first, second = work(4 * base), work(8 * base)
    return {stage: (first[stage], second[stage]) for stage in first}
