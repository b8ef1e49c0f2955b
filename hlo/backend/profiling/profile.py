"""Profile: where a run's time goes, by step of the program, joined to HLO instructions and lines.

    Compilation, arguments --profile--> Profile: one row a step, most time first; where asked for,
the plans of contractions and loops, each with its estimate beside what it took (plan_rows.py)

The entry reads the cycle counter around every step (short loops are not inlined for it); cycles
become microseconds by the counter's rate. Every figure is the median of the runs: a run is longer
than its steps by the call from Python, which takes as long as some short kernels.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.blocks.blocked import KIND
from hlo.analysis.sources import op_name_of, program_line_of, text_line_of
from hlo.analysis.work import work_of
from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit_timed
from hlo.backend.entry.timing_ir import Counters, TimedStep
from hlo.backend.ir.work import Speeds
from hlo.backend.linking.compile import objects
from hlo.backend.loops.opened import Schedules
from hlo.backend.planning.fitting import check_fits
from hlo.backend.planning.program import CopyStep, HostStep, KernelStep, Program
from hlo.backend.profiling.cycles import cycles_in_us
from hlo.backend.profiling.limits import Limits, measured_limits
from hlo.backend.profiling.meter import Meter
from hlo.backend.profiling.plan_rows import PlanRow, plan_rows
from hlo.ir.instruction import Instruction

RUNS_A_METER = 4  # runs between two measurements of the machine
# So long a program runs before its runs count: callers in a loop find its arrays in the caches and,
# if it is short, the pool's threads awake, which wake where such runs go on (entry/pool_ir.py).
WARM_UP_S = 0.002


class ProfileRow(Struct, frozen=True):
    """One step. us: all its calls in one run together; bytes_moved, flops: of one call.

    line: of the module's text; source: of the program that made it, op_name what it called it.
    """

    name: str
    opcode: str
    line: str
    kind: str
    calls: float
    us: float
    bytes_moved: int
    flops: int
    source: str = ""
    op_name: str = ""

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes_moved * self.calls / self.us / 1000 if self.us else 0.0

    @property
    def gigaflops(self) -> float:
        return self.flops * self.calls / self.us / 1000 if self.us else 0.0


class Profile(Struct, frozen=True):
    """Where a run's time went.

    us: one run; rows: its steps, most time first; limits: what the machine can do. plans: of
    contractions, where they were asked for; speeds: what the machine did meanwhile, by the number
    of threads that work at once.
    """

    us: float
    rows: tuple[ProfileRow, ...]
    limits: Limits
    plans: tuple[PlanRow, ...] = ()
    speeds: dict[int, Speeds] = {}  # a copy each, as msgspec makes them

    def __str__(self) -> str:
        spent = max(sum(row.us for row in self.rows), 1e-9)
        lines = [
            f"run {self.us:.1f} us; {self.limits}",
            "  self      us    calls   GB/s  GFLOP/s  limit         instruction",
        ]
        for r in self.rows:
            lines.append(
                f"{100 * r.us / spent:5.1f} % {r.us:9.2f} {r.calls:6.0f} "
                f"{r.gigabytes_per_second:7.1f} {r.gigaflops:8.1f} {self.share(r):13}"
                f" {r.name} {r.opcode} {r.line}"
            )
        lines += [f"meanwhile, each of {n} at work: {found}" for n, found in self.speeds.items()]
        lines += [line for plan in self.plans for line in plan.lines]
        return "\n".join(lines) + "\n"

    def grouped(self, by: str) -> Profile:
        """The same with a row for each opcode, source (line of the program) or op_name: times and
        calls, bytes and operations of all its steps together.
        """
        found: dict[str, list[ProfileRow]] = {}
        for row in self.rows:
            name = {"opcode": row.opcode, "op_name": row.op_name, "source": row.source}[by]
            found.setdefault(name or row.line or row.name, []).append(row)
        rows = [_together(name, rows) for name, rows in found.items()]
        rows.sort(key=lambda row: -row.us)
        return Profile(self.us, tuple(rows), self.limits, self.plans, self.speeds)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def share(self, row: ProfileRow) -> str:
        """The least time over the step's, in %, and what sets it: the nearest cache that holds what
        one call moves, main memory, or arithmetic. Of steps together: each from memory.
        """
        if row.kind == "group":
            least = self.limits.seconds(row.bytes_moved, row.flops)
            return f"{1e8 * least / row.us:4.0f} %" if row.us and least else ""
        least = row.calls * self.limits.seconds_near(row.bytes_moved, row.flops) * 1e6
        level = self.limits.level(row.bytes_moved)
        is_moved = row.bytes_moved / level.copied >= row.flops / self.limits.operations
        name = level.name if is_moved else "flops"
        return f"{100 * least / row.us:4.0f} % {name}" if row.us and least else ""


def _together(name: str, rows: list[ProfileRow]) -> ProfileRow:
    """Steps as one that is called once; what it moves and computes is that of all their calls."""
    names = ", ".join(dict.fromkeys(row.name for row in rows[:3])) + (", .." if rows[3:] else "")
    kinds = "+".join(dict.fromkeys(row.opcode for row in rows))
    moved = round(sum(row.bytes_moved * row.calls for row in rows))
    flops = round(sum(row.flops * row.calls for row in rows))
    us = sum(row.us for row in rows)
    return ProfileRow(name, kinds, names, "group", 1.0, us, moved, flops, rows[0].source,
                      rows[0].op_name)  # fmt: skip


def profile(
    compilation: Compilation, *arguments: object, repeats: int = 20, plans: bool = False
) -> Profile:
    """Run a program `repeats` times, after a warm-up, and say where the time went. plans: with
    those of contractions; then the runs take turns with what measures the machine, after which the
    program warms up again.
    """
    made = Schedules()
    if plans:
        compilation = compilation.with_target(replace(compilation.target, schedules=made))
    program = compilation.program
    check_fits(program)
    timing = Counters()
    modules, steps = emit_timed(program, timing), timing.steps
    counters = np.zeros((max(1, len(steps)), 2), np.int64)
    executable = compilation.linked(objects(modules), counters)
    machine = compilation.machine
    meters = {n: Meter(n, machine) for n in {1, compilation.threads}} if plans else {}
    warm_up(lambda: executable(*arguments))
    runs: list[float] = []
    samples: list[np.ndarray] = []
    for number in range(repeats):
        if plans and number % RUNS_A_METER == 0:
            for meter in meters.values():
                meter.round()
            warm_up(lambda: executable(*arguments))
        counters[:] = 0
        began = time.perf_counter()
        executable(*arguments)
        runs.append((time.perf_counter() - began) * 1e6)
        samples.append(counters.copy())
    spent = np.median(np.stack(samples), axis=0)
    limits = measured_limits(compilation.threads, machine)
    us = float(np.median(runs))
    rows = _rows(program, steps, spent, us)
    speeds = {threads: meter.speeds() for threads, meter in meters.items()}
    timed = list(zip(steps, rows, strict=False))
    found = plan_rows(program, timed, made, speeds, compilation.target) if plans else ()
    rows = sorted(_merged(steps, rows), key=lambda row: -row.us)
    return Profile(us, tuple(rows), limits, found, speeds)


def warm_up(run: Callable[[], object]) -> None:
    """Run for WARM_UP_S, once at least."""
    end = time.perf_counter() + WARM_UP_S
    run()
    while time.perf_counter() < end:
        run()


def _merged(steps: list[TimedStep], rows: list[ProfileRow]) -> list[ProfileRow]:
    """Steps that run the same kernel on the same memory are calls of one."""
    found: dict[object, ProfileRow] = {}
    for step, row in zip(steps, rows, strict=True):
        key: object = step
        if isinstance(step, KernelStep):
            key = step.instruction, step.kernel, step.slot
        one = found.get(key)
        found[key] = (
            row if one is None else replace(one, calls=one.calls + row.calls, us=one.us + row.us)
        )
    return list(found.values())


def _rows(
    program: Program, steps: list[TimedStep], counters: np.ndarray, us: float
) -> list[ProfileRow]:
    """In microseconds. Without a counter that goes on, as if the steps were all of the run."""
    rate = cycles_in_us()
    scale = 1 / rate if rate else us / max(float(counters[:, 0].sum()), 1.0)
    return [
        _row(program, step, float(spent) * scale, float(calls))
        for step, (spent, calls) in zip(steps, counters, strict=False)
    ]


def _row(program: Program, step: TimedStep, us: float, calls: float) -> ProfileRow:
    match step:
        case KernelStep(instruction=instruction):
            kernel = program.kernels[step.kernel]
            place = (instruction.name, instruction.opcode, text_line_of(instruction))
            moved, flops = kernel.bytes_moved, _operations(instruction) or kernel.flops
            origin = _origin(instruction)
            return ProfileRow(*place, "kernel", calls, us, moved, flops, *origin)
        case HostStep(instruction=instruction):
            place = (instruction.name, instruction.opcode, text_line_of(instruction))
            return ProfileRow(*place, "host", calls, us, 0, 0, *_origin(instruction))
        case CopyStep():
            return ProfileRow("-", "copy", "", "copy", calls, us, 2 * step.size, 0)


def _operations(instruction: Instruction) -> int:
    """Of a fusion that runs block by block: those that its HLO asks for. What its kernel says is an
    estimate, in which those of products are worth less than others. 0 for all else.
    """
    if instruction.attributes.get("kind") != KIND:
        return 0
    found, waiting = 0, [instruction]
    while waiting:
        one = waiting.pop()
        if one.opcode == "fusion":
            waiting += [i for c in one.called_computations() for i in c.instructions]
        else:
            found += work_of(one).operations
    return found


def _origin(instruction: Instruction) -> tuple[str, str]:
    """The program's line and its name; of a fusion that says none, those of what it ends with."""
    waiting = [instruction]
    while waiting:
        found = waiting.pop()
        origin = (program_line_of(found), op_name_of(found))
        if any(origin):
            return origin
        waiting += [c.root for c in found.called_computations() if found.opcode == "fusion"]
        if found is not instruction and len(found.operands) > 0:
            waiting.append(found.operands[0])
    return "", ""
