"""The ratchet: what programs reach of what their machine can do, kept, so that it never falls.

    python -m benchmarks.ratchet keep [FILE...]        writes benchmarks/kept/MACHINE.txt
    python -m benchmarks.ratchet check [FILE...]       what fell since; exit 1: something
    python -m benchmarks.ratchet OLD NEW [FILE...]     two commits in turns; 1: NEW is slower

FILE: a program, or a folder of them; without any, those of examples/. A program's limit is the
least time that this machine needs (benchmarks/least.py) by speeds that are measured between its
runs: a processor that others use has no others. `keep` raises what is kept and never lowers it;
--again forgets it first. Two commits run each program in processes of their own, OLD, NEW and OLD
once more in turns: what differs by more than OLD does from itself is said.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.__main__ import inputs_of, programs
from benchmarks.least import least_seconds
from hlo import driver
from hlo.backend.profiling.meter import Meter
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.runtime.threads import thread_count
from hlo.tools import bench
from hlo.tools.cases.fill import fill_elided
from hlo.tools.jax.jax_engine import without_donation

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
KEPT = Path(__file__).parent / "kept"
PROGRAM = Path(__file__).parent / "timed_program.py"
FALLEN = 0.9  # of what is kept: less is a loss
SLOWER = 1.03  # times the old one's: less is no loss, however quiet the machine
ROUNDS = 9
ROUND_S = 0.05


@dataclass(frozen=True)
class Share:
    """One program: what it reaches of its limit, the median of some rounds and the quartiles."""

    name: str
    low: float
    median: float
    high: float


def shared(path: Path, threads: int) -> Share:
    """Times of a program beside its limit, measured in turns."""
    module = without_donation(fill_elided(driver.parse(path.read_text(), path.name)))
    values = inputs_of(path, module, 0)
    executable = driver.compile(module, threads=threads, cache=False)
    bench.warm_up(lambda: executable(*values))
    rounds = [_round(module, lambda: executable(*values), threads) for _ in range(ROUNDS)]
    return Share(path.stem, *statistics.quantiles(rounds, n=4))


def _round(module: Module, run: Callable[[], object], threads: int) -> float:
    """The program's limit, by what the machine does just before, over the least seconds of a call
    among as many as take ROUND_S.
    """
    meter = Meter(threads)
    meter.round()
    run()  # the caches are its own again
    found, end = list[float](), time.perf_counter() + ROUND_S
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return least_seconds(module, meter.limits(), driver.host_machine()) / min(found)


def shares(files: Sequence[Path], threads: int) -> Iterator[Share]:
    """Of all that compile; the others are said."""
    for path in files:
        try:
            yield shared(path, threads)
        except HloError as error:
            print(f"{path.stem}: {str(error).splitlines()[0]}")


def kept_file() -> Path:
    """Where the shares of this machine's description stand."""
    return KEPT / f"{driver.host_machine().name}.txt"


def kept() -> dict[str, float]:
    """What this machine's programs have reached."""
    if not kept_file().exists():
        return {}
    lines = (line.split() for line in kept_file().read_text().splitlines())
    return {name: float(share) for name, share in lines}


def keep(files: Sequence[Path], threads: int, *, again: bool) -> int:
    """Write what three rounds of four reach, where it is more than what is kept."""
    best = {} if again else kept()
    for row in shares(files, threads):
        before = best.get(row.name, 0.0)
        best[row.name] = round(max(before, row.low), 3)
        print(f"{row.name:48}{row.median:7.1%}  kept {best[row.name]:6.1%}", flush=True)
    KEPT.mkdir(exist_ok=True)
    kept_file().write_text("".join(f"{name} {best[name]:.3f}\n" for name in sorted(best)))
    return 0


def check(files: Sequence[Path], threads: int) -> int:
    """Say which programs reach less in three rounds of four than was kept."""
    before, fallen = kept(), 0
    for row in shares(files, threads):
        was = before.get(row.name)
        if was is None:
            print(f"{row.name:48}{row.median:7.1%}  not kept")
            continue
        has_fallen = row.high < FALLEN * was
        fallen += has_fallen
        mark = "  fell" if has_fallen else ""
        print(f"{row.name:48}{row.median:7.1%}  was {was:6.1%}{mark}", flush=True)
    return 1 if fallen else 0


# -- two commits -------------------------------------------------------------------------------


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """The files of a commit, with its grammar's tables."""
    with tempfile.TemporaryDirectory(prefix="hlo-ratchet-") as folder:
        place = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(place), commit], check=True)
        try:
            command = [sys.executable, "-m", "hlo.parser.grammar"]
            subprocess.run(command, cwd=place, env=_environment(place), check=True)
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=False)


def _environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(place)}


class Timed:
    """A program in a process of its own."""

    def __init__(self, place: Path, file: Path, threads: int) -> None:
        command = [sys.executable, str(PROGRAM), str(file.resolve()), str(threads), str(ROUND_S)]
        self._process = subprocess.Popen(
            command, cwd=place, env=_environment(place), text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def answer(self) -> str:
        """The next line; empty where the process has ended."""
        assert self._process.stdout is not None, "a pipe"
        return self._process.stdout.readline().strip()

    def round(self) -> float:
        """The least seconds of a call."""
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write("\n")
        return float(self.answer())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def between(first: str, second: str, files: Sequence[Path], threads: int) -> int:
    """Say what the new commit makes slower, or faster, than the old one."""
    slower = 0
    print(f"{'program':48}{'new/old':>8}{'old/old':>8}   (times; over 1: new is slower)")
    with worktree(first) as a, worktree(second) as b:
        for file in files:
            ratios = _ratios((a, b, a), file, threads)
            if ratios is None:
                print(f"{file.stem:48}  one of both does not run it")
                continue
            apart, own = ratios
            noise = abs(own - 1)
            is_slower = apart > max(SLOWER, 1 + 2 * noise)
            is_faster = apart < min(1 / SLOWER, 1 - 2 * noise)
            slower += is_slower
            mark = "  slower" if is_slower else "  faster" if is_faster else ""
            print(f"{file.stem:48}{apart:8.3f}{own:8.3f}{mark}", flush=True)
    return 1 if slower else 0


def _ratios(places: Sequence[Path], file: Path, threads: int) -> tuple[float, float] | None:
    """The new time over the old one, and that over its own in another process: medians of rounds in
    turns.
    """
    programs = [Timed(place, file, threads) for place in places]
    try:
        if any(program.answer() != "ready" for program in programs):
            return None
        rounds = [[program.round() for program in programs] for _ in range(ROUNDS)]
    finally:
        for program in programs:
            program.end()
    return (
        statistics.median(b / a for a, b, _ in rounds),
        statistics.median(again / a for a, _, again in rounds),
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ratchet", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--again", action="store_true", help="keep: forget what is kept")
    parser.add_argument(
        "what", nargs="+", metavar="WORD", help="keep | check | OLD NEW, then FILEs"
    )
    given = parser.parse_args()
    threads, (first, *rest) = thread_count(given.threads), given.what
    is_command = first in ("keep", "check")
    if not is_command and not rest:
        parser.error(f"{first}: expected keep, check or two commits")
    files = programs([Path(f) for f in (rest if is_command else rest[1:])] or [EXAMPLES], parser)
    if first == "keep":
        return keep(files, threads, again=given.again)
    if first == "check":
        return check(files, threads)
    return between(first, rest[0], files, threads)


if __name__ == "__main__":
    sys.exit(main())
