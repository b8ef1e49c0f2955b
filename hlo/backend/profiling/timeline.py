"""timeline: one run as slices of time, each a step's part on one thread.

    Compilation, arguments --timeline--> Slice ..., by when they began

Kernels that several threads share have a slice for each part that one of them took. Cycles become
microseconds by the time between the first run and the last.
"""

from __future__ import annotations

import time

import numpy as np
from msgspec import Struct

from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit_timed
from hlo.backend.entry.timing_ir import TimedStep, Timeline
from hlo.backend.linking.compile import generated, objects
from hlo.backend.planning.fitting import check_fits
from hlo.backend.planning.program import CopyStep, KernelStep

MOST_EVENTS = 1 << 17
RUNS = 5
APART_S = 0.02  # the least time that cycles are measured over


class Slice(Struct, frozen=True):
    """A part of a step: on which thread (0: the caller's), from when on and how long."""

    step: int
    name: str
    opcode: str
    kind: str
    thread: int
    began_us: float
    us: float


class _Run(Struct):
    start: float
    seconds: float
    events: np.ndarray

    @property
    def begin(self) -> int:
        """Cycles at the first event."""
        return int(self.events[0, 2])


def timeline(compilation: Compilation, *arguments: object) -> tuple[Slice, ...]:
    """The quickest of a few runs; its first MOST_EVENTS events."""
    program = compilation.program
    check_fits(program)
    timing = Timeline(MOST_EVENTS)
    modules = emit_timed(program, timing)
    executable = compilation.linked([*objects(modules), *generated([timing.module()])])
    executable(*arguments)
    runs: list[_Run] = []
    for _ in range(RUNS):
        time.sleep(APART_S / RUNS)
        timing.clear()
        start = time.perf_counter()
        executable(*arguments)
        runs.append(_Run(start, time.perf_counter() - start, timing.events()))
    if not timing.steps or not all(len(run.events) for run in runs):
        return ()
    first, last = runs[0], runs[-1]
    us = 1e6 * (last.start - first.start) / (last.begin - first.begin)
    best = min(runs, key=lambda run: run.seconds)
    return tuple(_slice(timing.steps, row, best.begin, us) for row in best.events.tolist())


def _slice(steps: list[TimedStep], row: list[int], begin: int, us: float) -> Slice:
    number, thread, began, ended = row
    return Slice(number, *_words(steps[number]), thread, (began - begin) * us, (ended - began) * us)


def _words(step: TimedStep) -> tuple[str, str, str]:
    """The name, opcode and kind of a step, as its row of a profile has them."""
    if isinstance(step, CopyStep):
        return "-", "copy", "copy"
    kind = "kernel" if isinstance(step, KernelStep) else "host"
    return step.instruction.name, step.instruction.opcode, kind
