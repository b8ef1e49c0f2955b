"""Starts: what fresh processes take to compile a small program, in turns with the least they could.

Every start is a process of its own: bytecode is there, the cache of objects is empty but for
`hlo-run`, which finds its program in it. The floor is a process that imports NumPy and llvmlite and
has LLVM make one empty object. Commands are timed to their end, the others until their work is
done; what processors took to a process's end is quieter where others work too. XLA's figures are
its child's own: jax imported, and the first compilation behind that.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ROUNDS = 15
FLOOR = "floor: numpy, llvmlite, an empty object"

_FLOOR = """
import numpy, time
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
module = llvm.parse_assembly("define void @f() { ret void }")
target = llvm.Target.from_triple(llvm.get_process_triple())
target.create_target_machine(jit=True).emit_object(module)
print(time.monotonic())
"""
_FIRST = """
import sys, time
from hlo import driver
driver.compile(driver.parse(open(sys.argv[1]).read()), cache=False)
print(time.monotonic())
"""
_NUMPY = "import numpy, time; print(time.monotonic())"
_COMMAND = "from hlo.cli import main; main.{}()"
_XLA = """
import sys, time
start = time.monotonic()
import jax
loaded = time.monotonic() - start
from hlo.tools.jax.jax_engine import JaxProgram
program = JaxProgram(open(sys.argv[1]).read())
print(loaded, program.compile_seconds)
"""


class Taken(NamedTuple):
    """Seconds of one process: until its work was done, and of processors, to its end."""

    wall: float
    processors: float


@dataclass(frozen=True)
class Start:
    """One kind of start: its name, the program of its process, what it is given."""

    name: str
    code: str
    arguments: tuple[str, ...] = ()

    is_command: bool = False

    def taken(self, tree: Path, folder: str) -> Taken:
        """One process, from its start on. folder: of its cache."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.monotonic()  # the same clock in all processes
        said = _run(self, tree, folder)
        end = time.monotonic() if self.is_command else float(said)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Taken(end - begin, spent)


def _run(start: Start, tree: Path, folder: str) -> str:
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    surroundings |= {"HLO_CACHE_DIR": folder, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", start.code, *start.arguments]
    done = subprocess.run(
        command, env=surroundings, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{start.name}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def starts(path: Path) -> tuple[Start, ...]:
    """The floor, then ours, for one program."""
    file = str(path.resolve())
    return (
        Start(FLOOR, _FLOOR),
        Start("numpy alone", _NUMPY),
        Start("parse and first compile", _FIRST, (file,)),
        Start("hlo-opt", _COMMAND.format("opt"), (file,), is_command=True),
        Start("hlo-run, cached", _COMMAND.format("run"), (file,), is_command=True),
    )


def report_starts(files: Sequence[Path], rounds: int, trees: Sequence[Path] = (ROOT,)) -> None:
    """A table for each program. trees: checkouts beside each other, ours first."""
    for path in files:
        print(f"{path.name}, {rounds} rounds")
        for tree in trees:
            if len(trees) > 1:
                print(f"  {tree}")
            _warm(path, tree)
        for line in _table(path, rounds, trees):
            print(line, flush=True)


@contextmanager
def _cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="hlo-start-") as folder:
        yield folder


def _warm(path: Path, tree: Path) -> None:
    """Bytecode."""
    with _cache() as folder:
        for start in starts(path):
            _run(start, tree, folder)


def _table(path: Path, rounds: int, trees: Sequence[Path]) -> Iterator[str]:
    """Medians, and the medians of what each round took more than its floor."""
    times: dict[tuple[Path, str], list[Taken]] = {}
    with _cache() as folder:
        for tree in trees:
            for start in starts(path):
                _run(start, tree, folder)  # what `hlo-run` finds, and the grammar's tables
        for _ in range(rounds):
            for start in starts(path):
                for tree in trees:
                    times.setdefault((tree, start.name), []).append(start.taken(tree, folder))
        yield f"{'':56}{'ms':>8}{'over the floor':>16}{'processors':>12}{'over':>8}"
        for (tree, name), found in times.items():
            floor = times[tree, FLOOR]
            over = [
                Taken(*(a - b for a, b in zip(*t, strict=True)))
                for t in zip(found, floor, strict=True)
            ]
            where = f"{name} ({tree.name})" if len(trees) > 1 else name
            yield (
                f"{where:56}{_ms(t.wall for t in found)}{_ms(t.wall for t in over):>16}"
                f"{_ms(t.processors for t in found):>12}{_ms(t.processors for t in over)}"
            )
        yield from _xla(path, trees[0], folder)


def _xla(path: Path, tree: Path, folder: str) -> Iterator[str]:
    """XLA's first compilation, where JAX is installed."""
    try:
        runs = [_run(Start("XLA", _XLA, (str(path.resolve()),)), tree, folder) for _ in range(5)]
    except SystemExit as error:
        yield str(error)
        return
    imports, compiles = zip(*(map(float, run.split()) for run in runs), strict=True)
    yield f"{'XLA: jax imported':56}{_ms(imports)}"
    yield f"{'XLA: first compile':56}{_ms(compiles)}"


def _ms(seconds: Iterable[float]) -> str:
    return f"{1e3 * statistics.median(seconds):8.1f}"
