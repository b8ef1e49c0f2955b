"""Plan rows: the plans of contractions, each kernel's estimate beside what it took.

    Program, steps with their times, schedules, speeds --plan_rows--> PlanRow ..., most time first

An estimate is a function of the plan's work and of speeds (hlo/backend/ir/work.py); these are what
was measured between the runs (meter.py), with as many threads as the kernel has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hlo.backend.entry.timing_ir import TimedStep
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.work import Speeds, estimated_us
from hlo.backend.loops.opened import Schedules
from hlo.backend.loops.schedule import LoopSchedule, Plan
from hlo.backend.planning.program import KernelStep, Program
from hlo.ir.instruction import Instruction


class Timed(Protocol):
    """What is known of a step's time."""

    @property
    def us(self) -> float:
        """Of all its calls."""

    @property
    def calls(self) -> float:
        """How many there were."""

    @property
    def line(self) -> str:
        """Where the text has it."""


class PlanKernel(Struct, frozen=True):
    """One kernel: what all its calls took, what was estimated, its plan in lines."""

    us: float
    estimate_us: float
    lines: tuple[str, ...]


class PlanRow(Struct, frozen=True):
    """An instruction and its kernels, in the order in which they run."""

    name: str
    opcode: str
    line: str
    kernels: tuple[PlanKernel, ...]

    @property
    def us(self) -> float:
        """What its kernels took."""
        return sum(kernel.us for kernel in self.kernels)

    @property
    def estimate_us(self) -> float:
        """What was estimated."""
        return sum(kernel.estimate_us for kernel in self.kernels)

    @property
    def lines(self) -> Iterator[str]:
        """As text."""
        yield f"{self.name} {self.opcode} {self.line}: {_beside(self.us, self.estimate_us)}"
        for kernel in self.kernels:
            if len(self.kernels) > 1:
                yield f"  {_beside(kernel.us, kernel.estimate_us)}"
            yield from ("    " + line for line in kernel.lines)


def _beside(us: float, estimate_us: float) -> str:
    ratio = f", {estimate_us / us:.2f} of it" if us else ""
    return f"took {us:.2f} us, estimate {estimate_us:.2f} us{ratio}"


def plan_rows(
    program: Program,
    timed: Sequence[tuple[TimedStep, Timed]],
    made: Schedules,
    speeds: Mapping[int, Speeds],
    lanes: int,
) -> tuple[PlanRow, ...]:
    """Of instructions one of whose kernels ran and says its work; kernels that never ran are left
    out. speeds: by the number of threads that work at once; lanes: floats of a vector.
    """
    found: dict[Instruction, list[PlanKernel]] = {}
    lines: dict[Instruction, str] = {}
    planned: set[Instruction] = set()
    shared = {s.instruction for s, _ in timed if isinstance(s, KernelStep) and s.chunks > 1}
    for step, time in timed:
        if not isinstance(step, KernelStep) or not time.calls:
            continue
        kernel = program.kernels[step.kernel]
        if kernel.work is not None:
            planned.add(step.instruction)
        readers = program.threads if step.instruction in shared else 1
        estimate = time.calls * estimate_us(kernel, step, program.threads, speeds, readers, lanes)
        shown = PlanKernel(time.us, estimate, _lines(kernel, made))
        found.setdefault(step.instruction, []).append(shown)
        lines[step.instruction] = time.line
    rows = [
        PlanRow(i.name, i.opcode, lines[i], tuple(kernels))
        for i, kernels in found.items()
        if i in planned
    ]
    return tuple(sorted(rows, key=lambda row: -row.us))


def estimate_us(
    kernel: Kernel,
    step: KernelStep,
    threads: int,
    speeds: Mapping[int, Speeds],
    readers: int,
    lanes: int,
) -> float:
    """Of one call, what it hands on read by so many threads. A kernel that says no work reads and
    writes a stream.
    """
    moved = kernel.bytes_moved
    stream = Work(kernel.flops / lanes, moved=moved, reach=moved, is_stream=True)
    own = speeds[threads if step.chunks > 1 else 1]
    return estimated_us(kernel.work or stream, step.units, step.chunks, threads, own, readers)


def _lines(kernel: Kernel, made: Schedules) -> tuple[str, ...]:
    match made.of.get(kernel.text):
        case LoopSchedule(nests=nests):
            return tuple(remark for nest in nests for remark in nest.remarks)
        case Plan(lines=lines):
            return lines
        case _:
            return ()
