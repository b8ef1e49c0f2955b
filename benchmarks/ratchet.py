"""The ratchet: what programs reach of what their machine can do, kept, so that it never falls.

    python -m benchmarks.ratchet keep FILE...          writes benchmarks/kept/MACHINE.json
    python -m benchmarks.ratchet check FILE...         what fell since; exit 1: something
    python -m benchmarks.ratchet between A B FILE...   two commits in turns; 1: B is slower

A program's limit is the least time that this machine needs (benchmarks/least.py). `keep` raises
what is kept and never lowers it; --again forgets it first. `between` runs each program in processes
of its own, A, B and A once more in turns: what differs by more than A does from itself is said.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.__main__ import inputs_of
from benchmarks.least import least_seconds
from hlo import driver
from hlo.backend.limits import Limits, measured_limits
from hlo.errors import HloError
from hlo.runtime.threads import thread_count
from hlo.tools import bench
from hlo.tools.fill import fill_elided
from hlo.tools.jax_engine import without_donation

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "kept"
PROGRAM = Path(__file__).parent / "timed_program.py"
FALLEN = 0.95  # of what is kept: less is a loss
SLOWER = 1.03  # times A's: less is no loss, however quiet the machine
ROUNDS = 9
ROUND_S = 0.05


@dataclass(frozen=True)
class Share:
    """One program: what it takes, the least, and the spread of the times."""

    name: str
    seconds: float
    least: float
    spread: float

    @property
    def share(self) -> float:
        return self.least / self.seconds


def shared(path: Path, limits: Limits, threads: int) -> Share:
    """Times of a program beside its limit."""
    module = without_donation(fill_elided(driver.parse(path.read_text(), path.name)))
    values = inputs_of(path, module, 0)
    executable = driver.compile(module, threads=threads, cache=False)
    (timing,) = bench.measure([lambda: executable(*values)], 1.0)
    least = least_seconds(module, limits, driver.host_machine())
    return Share(path.stem, timing.median, least, timing.spread)


def shares(files: Sequence[Path], threads: int) -> Iterator[Share]:
    """Of all that compile; the others are said."""
    limits = measured_limits(threads)
    print(limits)
    for path in files:
        try:
            yield shared(path, limits, threads)
        except HloError as error:
            print(f"{path.stem}: {str(error).splitlines()[0]}")


def kept_file() -> Path:
    """Where the shares of this machine's description stand."""
    return KEPT / f"{driver.host_machine().name}.json"


def kept() -> dict[str, float]:
    """What this machine's programs have reached."""
    return json.loads(kept_file().read_text()) if kept_file().exists() else {}


def keep(files: Sequence[Path], threads: int, *, again: bool) -> int:
    """Write what is reached, where it is more than what is kept."""
    best = {} if again else kept()
    for row in shares(files, threads):
        before = best.get(row.name, 0.0)
        best[row.name] = round(max(before, row.share), 4)
        print(f"{row.name:48}{row.share:7.1%}  kept {best[row.name]:6.1%}", flush=True)
    KEPT.mkdir(exist_ok=True)
    kept_file().write_text(json.dumps(dict(sorted(best.items())), indent=1) + "\n")
    return 0


def check(files: Sequence[Path], threads: int) -> int:
    """Say which programs reach less than they did, and more than their spread explains."""
    before, fallen = kept(), 0
    for row in shares(files, threads):
        was = before.get(row.name)
        if was is None:
            print(f"{row.name:48}{row.share:7.1%}  not kept")
            continue
        has_fallen = row.share * (1 + row.spread) < FALLEN * was
        fallen += has_fallen
        mark = "  fell" if has_fallen else ""
        print(f"{row.name:48}{row.share:7.1%}  was {was:6.1%}{mark}", flush=True)
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
    """Say what the second commit makes slower, or faster, than the first."""
    slower = 0
    print(f"{'program':48}{'B/A':>8}{'A/A':>8}   (times; over 1: B is slower)")
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
    """B's time over A's, and A's over its own in another process: medians of rounds in turns."""
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
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("keep", "check", "between"):
        command = commands.add_parser(name)
        if name == "keep":
            command.add_argument("--again", action="store_true", help="forget what is kept")
        if name == "between":
            command.add_argument("first", metavar="A", help="a commit")
            command.add_argument("second", metavar="B", help="another")
        command.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    threads = thread_count(given.threads)
    if given.command == "keep":
        return keep(given.files, threads, again=given.again)
    if given.command == "check":
        return check(given.files, threads)
    return between(given.first, given.second, given.files, threads)


if __name__ == "__main__":
    sys.exit(main())
