"""Where compiling spends its time, stage by stage, and running, step by step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.ir.module import Module
from hlo.process.garbage import uncollected
from hlo.tools import bench

STAGES = ("verify", "passes", "plan", "emit", "llvm", "link")


def compile_stages(module: Module, threads: int | None) -> dict[str, float]:
    """Seconds of each stage of one cold compilation."""
    spent: dict[str, float] = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        spent[stage] = time.perf_counter() - start

    with uncollected():
        with timed("verify"):
            driver.verify(module)
        made = Compilation(module, threads=threads, cache=False)
        with timed("passes"):
            _ = made.optimised
        with timed("plan"):
            _ = made.link_table
        with timed("emit"):
            _ = made.ir
        with timed("llvm"):
            _ = made.objects
        with timed("link"):
            _ = made.executable
    return spent


def stages_row(name: str, spent: dict[str, float]) -> str:
    """One line of the breakdown."""
    return f"{name[-46:]:<46}" + "".join(f"{bench.duration(spent[s]):>9}" for s in STAGES)


def stages_header() -> str:
    """What stands over the lines of stages_row."""
    return f"{'compile':<46}" + "".join(f"{s:>9}" for s in STAGES)


def slowest_steps(module: Module, values: list[object], threads: int | None, most: int = 5) -> str:
    """The steps in which a run spends its time, most first."""
    found = str(driver.profile(module, *values, threads=threads)).splitlines()
    return "\n".join("  " + line for line in found[1 : most + 2])
