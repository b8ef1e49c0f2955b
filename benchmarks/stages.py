"""Where compiling spends its time, stage by stage, and running, step by step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hlo import driver
from hlo.backend import backend
from hlo.backend.host import HostCalls
from hlo.backend.linking.compile import objects
from hlo.backend.linking.installing import link
from hlo.backend.linking.tabulation import link_table
from hlo.backend.planning.result_order import in_memory_order
from hlo.garbage import uncollected
from hlo.ir.module import Module
from hlo.runtime.threads import thread_count
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
        with timed("passes"):
            optimised = driver.optimize(in_memory_order(module), manager=driver.new_manager())
        with timed("plan"):
            program = backend.build_program(optimised, threads=thread_count(threads))
            table = link_table(program)
        with timed("emit"):
            modules = backend.emit_llvm(program)
        with timed("llvm"):
            bodies = objects(modules, cache=False)
        with timed("link"):
            link(optimised, table, bodies, HostCalls(program) if program.hosts else None)
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
