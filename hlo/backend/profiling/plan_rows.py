"""Plan rows: the plans of contractions and loops, each kernel's estimate beside what it took.

    Program, steps with their times, schedules, speeds --plan_rows--> PlanRow ..., most time first

An estimate is a function of the plan's work and of speeds (hlo/backend/ir/work.py); these are what
was measured between the runs (meter.py), with as many threads as the kernel has. Of loops, and of
fusions of them that run block by block, work is counted in their code (code_work.py). Where bytes
lie follows from the steps between two uses (reuse.py). Sorting, scattering, transforms and
factorisations have none: what they take depends on data, or on caches' sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hlo.analysis.legality import family_of
from hlo.backend.entry.timing_ir import TimedStep
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.work import Speeds, estimated_us
from hlo.backend.isa.target import Target
from hlo.backend.loops.opened import Schedules
from hlo.backend.loops.schedule import LoopSchedule, Plan
from hlo.backend.planning.program import KernelStep, Program
from hlo.backend.profiling.code_work import code_work
from hlo.backend.profiling.reuse import distances
from hlo.ir.instruction import Instruction
from hlo.ops.table import KernelFamily

# Families whose code runs as often, whatever the numbers are, and in which nothing else waits.
LOOPS = frozenset({KernelFamily.LOOPS, KernelFamily.WINDOW, KernelFamily.BLOCKED})


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
    target: Target,
) -> tuple[PlanRow, ...]:
    """Of instructions one of whose kernels ran and has an estimate of its own; kernels that never
    ran are left out. speeds: by the number of threads that work at once.
    """
    found: dict[Instruction, list[PlanKernel]] = {}
    lines: dict[Instruction, str] = {}
    planned: set[Instruction] = set()
    shared = {s.instruction for s, _ in timed if isinstance(s, KernelStep) and s.chunks > 1}
    works = _Works(target)
    since = distances(program)
    for step, time in timed:
        if not isinstance(step, KernelStep) or not time.calls:
            continue
        kernel = program.kernels[step.kernel]
        work = works.of(kernel, step.instruction)
        if work is not None:
            planned.add(step.instruction)
        own = speeds[program.threads if step.chunks > 1 else 1]
        readers = program.threads if step.instruction in shared else 1
        us = estimated_us(
            work or _stream(kernel, target), step.units, step.chunks, program.threads, own, readers,
            since.get(step, ()),
        )  # fmt: skip
        shown = PlanKernel(time.us, time.calls * us, _lines(kernel, made))
        found.setdefault(step.instruction, []).append(shown)
        lines[step.instruction] = time.line
    rows = [
        PlanRow(i.name, i.opcode, lines[i], tuple(kernels))
        for i, kernels in found.items()
        if i in planned
    ]
    return tuple(sorted(rows, key=lambda row: -row.us))


class _Works:
    """The work of kernels, each counted once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._counted: dict[str, Work | None] = {}

    def of(self, kernel: Kernel, instruction: Instruction) -> Work | None:
        """What the plan says, or the code of loops; None of all else."""
        if kernel.work is not None:
            return kernel.work
        if family_of(instruction) not in LOOPS:
            return None
        if kernel.text not in self._counted:
            self._counted[kernel.text] = code_work(kernel, self._target)
        return self._counted[kernel.text]


def _stream(kernel: Kernel, target: Target) -> Work:
    """Of a kernel that says none, beside one that does: it reads and writes a stream."""
    moved = kernel.bytes_moved
    instructions = kernel.flops / (target.vector_bytes // 4)
    return Work(instructions, moved=moved, reach=moved, is_stream=True)


def _lines(kernel: Kernel, made: Schedules) -> tuple[str, ...]:
    match made.of.get(kernel.text):
        case LoopSchedule(nests=nests):
            return tuple(remark for nest in nests for remark in nest.remarks)
        case Plan(lines=lines):
            return lines
        case _:
            return ()
