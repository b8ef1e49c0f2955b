"""`python -m benchmarks.ahead FILE...`: what is compiled ahead of time, beside the same in process.

Calls from C (compiled here by the system's compiler) and calls from Python take turns, with as many
threads; cold compilations too. Ratios are ahead of time over in process: less than 1 is faster.
`--overhead` times ten million calls of a program that does almost nothing instead.
"""

import argparse
import ctypes
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.__main__ import inputs_of
from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.runtime.native_calls import flattened
from hlo.tools import bench
from hlo.tools.c_compiler import linker, shared_library
from hlo.tools.cases.fill import fill_elided
from hlo.tools.jax.jax_engine import without_donation

TIMER = """#include <time.h>
double hlo_time(int (*call)(const void *const *, void *const *, void *), const void *const *inputs,
                void *const *outputs, void *arena, long count) {
  struct timespec begin, end;
  int status = 0;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (long k = 0; k < count; k++) status |= call(inputs, outputs, arena);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (status) return -1;
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
"""
TINY = """HloModule tiny
ENTRY e {
  a = f32[] parameter(0)
  x = f32[1] parameter(1)
  y = f32[1] parameter(2)
  s = f32[1] broadcast(a), dimensions={}
  p = f32[1] multiply(s, x)
  ROOT r = f32[1] add(p, y)
}"""
CALLS = 10_000_000
LEAST_S = 0.002  # that one turn takes
COMPILED = 5


class Library:
    """A program as a shared library in a folder, and the memory of its calls."""

    def __init__(
        self, made: AheadOfTime, folder: Path, outputs: Sequence[np.ndarray] | None = None
    ) -> None:
        """outputs: memory like that of the calls in process."""
        timer = folder / "timer.c"
        timer.write_text(TIMER)
        command = ["cc", "-O2", "-fPIC", "-c", str(timer), "-o", str(folder / "timer.o")]
        subprocess.run(command, check=True)
        chosen = linker(made.machine, driver.host_machine())
        file = folder / f"{made.name}.so"
        objects = [made.object, (folder / "timer.o").read_bytes()]
        file.write_bytes(shared_library(objects, chosen, ("-pthread",)))
        self.code = ctypes.CDLL(str(file))
        self.code.hlo_time.restype = ctypes.c_double
        self.made = made
        self.outputs = outputs or [_aligned(leaf.bytes) for leaf in made.interface.results]
        self.arena = _aligned(made.interface.arena_bytes)

    def seconds(self, values: Sequence[object], count: int) -> float:
        """Of so many calls."""
        arrays = [np.ascontiguousarray(a) for a in flattened(tuple(values)) if a is not None]
        found = self.code.hlo_time(
            getattr(self.code, self.made.name), _addresses(arrays), _addresses(self.outputs),
            ctypes.c_void_p(self.arena.ctypes.data), ctypes.c_long(count),
        )  # fmt: skip
        assert found >= 0, "a call gave an error"
        return float(found)


def _aligned(size: int) -> np.ndarray:
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def _addresses(arrays: Sequence[np.ndarray]) -> object:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def compiled(module: Module, threads: int) -> AheadOfTime:
    """For this machine, so that both sides run the same code."""
    who = "none" if threads == 1 else "pthreads"
    return driver.compile_ahead(
        module, driver.host_machine(), "program", threads=who, max_threads=threads
    )


def measure(path: Path, arguments: argparse.Namespace) -> tuple[str, float, float]:
    """A line, and the ratios of calls and of compilations."""
    threads = arguments.threads
    module = without_donation(fill_elided(driver.parse(path.read_text(), path.name), 0))
    values = inputs_of(path, module, 0)
    executable = driver.compile(module, threads=threads, cache=False)
    with tempfile.TemporaryDirectory(prefix="hlo-ahead-") as folder:
        results = [a for a in flattened(executable(*values)) if isinstance(a, np.ndarray)]
        library = Library(compiled(module, threads), Path(folder), results)

        def here(count: int) -> float:
            begin = time.perf_counter()
            for _ in range(count):
                executable(*values)
            return time.perf_counter() - begin

        def ahead(count: int) -> float:
            return library.seconds(values, count)

        count = 1
        while here(count) < LEAST_S:
            count *= 2
        calls = in_turns(lambda: here(count), lambda: ahead(count), arguments.seconds)
    compilations = in_turns(
        lambda: timed(lambda: driver.compile(module, threads=threads, cache=False)),
        lambda: timed(lambda: compiled(module, threads).object),
        0,
    )
    ours, theirs = (bench.duration(min(t) / count) for t in calls)
    run, compile = ratio(*calls), ratio(*compilations)
    return f"{path.stem:<36}{ours:>10}{theirs:>10}{run:>7.2f}{compile:>9.2f}", run, compile


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def in_turns(
    one: Callable[[], float], other: Callable[[], float], seconds: float
) -> tuple[list[float], list[float]]:
    """The times of both, in turns, for about so long; COMPILED turns at least."""
    one(), other()
    found: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < COMPILED:
        found[0].append(one())
        found[1].append(other())
    return found


def ratio(here: Sequence[float], ahead: Sequence[float]) -> float:
    """Of the least times: what else runs on the machine only adds to them."""
    return min(ahead) / min(here)


def overhead() -> str:
    """What a call costs that does almost nothing."""
    module = driver.parse(TINY)
    values = [np.float32(2), np.ones(1, np.float32), np.ones(1, np.float32)]
    with tempfile.TemporaryDirectory(prefix="hlo-ahead-") as folder:
        library = Library(compiled(module, 1), Path(folder))
        seconds = min(library.seconds(values, CALLS) for _ in range(3))
    return f"axpy f32[1]: {1e9 * seconds / CALLS:.1f} ns a call, least of 3 x {CALLS} calls"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ahead", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="about this long a program")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--overhead", action="store_true")
    arguments = parser.parse_args()
    if arguments.overhead:
        print(overhead())
    rows = []
    print(f"{'program':<36}{'in process':>10}{'ahead':>10}{'ratio':>7}{'compile':>9}")
    for path in arguments.files:
        try:
            text, *ratios = measure(path, arguments)
        except HloError as error:
            print(f"{path.stem:<36}{str(error).splitlines()[0]}")
            continue
        rows.append(ratios)
        print(text, flush=True)
    if rows:
        means = [math.exp(statistics.fmean(map(math.log, r))) for r in zip(*rows, strict=True)]
        print(f"geometric mean of {len(rows)}: calls {means[0]:.2f}, compilations {means[1]:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
