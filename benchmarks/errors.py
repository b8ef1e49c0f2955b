"""`python -m benchmarks.errors [GROUP...]`: errors of sums beside XLA's, on the same data.

Products, convolutions, reductions, windows, running sums and what is made of them (means,
variances, softmax). An error is counted in eps * (the sum of magnitudes) and in units of the exact
result's last place; `over` says that the median or the largest of ours is more than twice XLA's and
a unit. XLA runs in a process of its own. One and two threads have to give the same bits.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

import numpy as np

from benchmarks.error_cases import TYPES, Case
from benchmarks.error_contractions import convolutions, dots, general_dots
from benchmarks.error_reductions import made_of_sums, reductions, window_sums
from benchmarks.error_scans import running_sums
from hlo import driver
from hlo.errors import HloError
from hlo.tools.jax.jax_engine import JaxProgram

GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "dots": dots,
    "general": general_dots,
    "convolutions": convolutions,
    "reductions": reductions,
    "windows": window_sums,
    "running": running_sums,
    "made": made_of_sums,
}
KINDS = ("mixed", "positive")


class Errors(NamedTuple):
    """Of the results of one program."""

    median: float
    worst: float
    median_ulp: float
    worst_ulp: float

    def __str__(self) -> str:
        units = f"{self.median:8.3f}{self.worst:9.3f}"
        return f"{units}{self.median_ulp:9.2f}{self.worst_ulp:10.1f}"


def errors_of(case: Case, made: np.ndarray, exact: np.ndarray, magnitudes: np.ndarray) -> Errors:
    """In eps * magnitudes, and in ulps of the exact result."""
    off = abs(made.astype(exact.dtype) - exact)
    result = TYPES[case.out or case.dtype]
    real = result(0).real.dtype if case.dtype[0] == "c" else np.dtype(result)
    with np.errstate(all="ignore"):
        rounded = np.asarray(abs(exact)).astype(real)
        units = np.where(magnitudes > 0, off / (case.eps * magnitudes), 0)
        last = np.spacing(np.maximum(rounded, np.finfo(np.float32).tiny.astype(real)))
        ulps = off / last.astype(off.dtype)
    return Errors(*(float(f(e)) for e in (units, ulps) for f in (np.median, np.max)))


def of_xla(text: str, arguments: list[np.ndarray]) -> np.ndarray | None:
    """XLA's result; None where it refuses. For a process that it may abort."""
    try:
        return JaxProgram(text).run(arguments)[0]
    except HloError:
        return None


class Xla:
    """A process that runs XLA, started again after it died."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=50)

    def close(self) -> None:
        """End it."""
        self._pool.shutdown()

    def run(self, text: str, arguments: list[np.ndarray]) -> np.ndarray | None:
        """XLA's result; None where it refuses or dies."""
        try:
            return self._pool.submit(of_xla, text, arguments).result()
        except BrokenProcessPool:
            self._start()
            return None


def ours_of(case: Case, arguments: list[np.ndarray]) -> np.ndarray:
    """Our result, of two threads."""
    one, two = (
        np.asarray(driver.compile(driver.parse(case.text), threads=t)(*arguments)) for t in (1, 2)
    )
    if one.tobytes() != two.tobytes():
        sys.exit(f"{case.name}: one thread and two make different bits")
    return two


def verdict(ours: Errors, theirs: Errors) -> str:
    """over: more than twice XLA's and a unit; about: more than twice."""
    pairs = ((ours.median, theirs.median), (ours.worst, theirs.worst))
    if any(mine > 2 * other + 1 for mine, other in pairs):
        return "over"
    return "about" if any(mine > 2 * other for mine, other in pairs) else ""


def row(case: Case, kind: str, xla: Xla) -> tuple[str, str]:
    """One line, and its verdict."""
    arguments = case.arguments(kind)
    truth = case.exact(arguments)
    ours = errors_of(case, ours_of(case, arguments), *truth)
    head = f"{case.name:<64}{kind:<9}{ours}"
    made = xla.run(case.text, arguments)
    if made is None:
        return f"{head}  XLA refuses", ""
    theirs = errors_of(case, made, *truth)
    said = verdict(ours, theirs)
    return f"{head}{theirs}  {said}", said


HEADINGS = "".join(
    f"{of + ' median':>{w[0]}}{'max':>{w[1]}}{'median':>{w[2]}}{'max ulp':>{w[3]}}"
    for of, w in (("ours", (13, 4, 9, 10)), ("XLA", (10, 7, 9, 10)))
)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.errors", description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all of them by default")
    parser.add_argument("--match", default="", help="programs whose names have this in them")
    parser.add_argument("--quiet", action="store_true", help="only those with a verdict")
    arguments = parser.parse_args()
    xla, over = Xla(), 0
    print(f"{'':<68}{HEADINGS}")
    for group in arguments.groups or GROUPS:
        for case in GROUPS[group]():
            if arguments.match not in case.name:
                continue
            for kind in KINDS:
                line, said = row(case, kind, xla)
                over += said == "over"
                if said or not arguments.quiet:
                    print(line, flush=True)
    xla.close()
    print(f"{over} over")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
