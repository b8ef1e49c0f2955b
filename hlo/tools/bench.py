"""Timing a program, alone or beside XLA:CPU: the protocol matters more than the code.

Inputs are placed beforehand, results are dropped before the next call, both sides warm up until
times are stable (at least 10 calls), then the two are interleaved and medians are taken: of short
programs over ROUND_SECONDS of calls in a row, as loops make them, in which threads stay awake.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from msgspec import Struct

WARM_UP_CALLS = 10
WARM_UP_SECONDS = 0.5
ROUND_SECONDS = 1e-3
STABLE = 0.05  # two successive medians of five calls within this


class Timing(Struct, frozen=True):
    """Seconds per call: median, and the quartiles around it."""

    median: float
    low: float
    high: float
    calls: int

    @property
    def spread(self) -> float:
        """Distance of the quartiles, relative to the median."""
        return (self.high - self.low) / self.median if self.median else 0.0


Run = Callable[[], object]
Called = Callable[..., object]  # with arguments


def warm_up(run: Run) -> float:
    """Call until times are stable; the last median in seconds."""
    times: list[float] = []
    start = time.perf_counter()
    previous = float("inf")
    while True:
        for _ in range(5):
            times.append(_once(run))
        median = statistics.median(times[-5:])
        settled = abs(median - previous) <= STABLE * previous
        late = time.perf_counter() - start > WARM_UP_SECONDS
        if len(times) >= WARM_UP_CALLS and (settled or late):
            return median
        previous = median


def _once(run: Run) -> float:
    start = time.perf_counter()
    result = run()
    elapsed = time.perf_counter() - start
    del result
    return elapsed


def _batch(run: Run, count: int) -> float:
    """Seconds per call over `count` calls: for calls too short for one reading of the clock."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count


def measure(runs: list[Run], seconds: float = 2.0) -> list[Timing]:
    """Interleaved timings of several runs, about `seconds` in all."""
    expected = [warm_up(run) for run in runs]
    counts = [max(1, int(ROUND_SECONDS / max(e, 1e-9))) for e in expected]
    round_seconds = sum(e * c for e, c in zip(expected, counts, strict=True))
    rounds = max(5, min(200, int(seconds / max(round_seconds, 1e-9))))
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, count, own in zip(runs, counts, samples, strict=True):
            own.append(_batch(run, count))
    return [_timing(own) for own in samples]


def _timing(samples: list[float]) -> Timing:
    low, median, high = statistics.quantiles(samples, n=4)
    return Timing(median, low, high, len(samples))


def duration(seconds: float) -> str:
    """Three significant digits with a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
