"""cost: what a module asks for, beside what a machine gives: operations, bytes, least time.

    module, limits --cost--> rows by instruction, opcode, computation or source line, and notes

A loop counts as often as it runs, where that is known; a branch as the one that asks for more. What
is left out is said in the notes: figures are then the least that there is. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from hlo.analysis.sources import op_name_of, source_of
from hlo.analysis.while_loops.loop_state import trip_count
from hlo.analysis.work import NOTHING, Work, fused_bytes, work_of
from hlo.backend.profiling.limits import Limits, measured_limits
from hlo.choices import COST_GROUPS
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.runtime.threads import thread_count

AT_LEAST = "at least"
MOST_PLACES = 3  # that a note names


class CostRow(Struct, frozen=True):
    """One group. runs: of its instructions, all loops together; bytes: before fusion. seconds: the
    least by the limits, if what is read and written comes from memory; bound: compute or memory.
    """

    name: str
    runs: int
    flops: int
    transcendentals: int
    bytes: int
    seconds: float
    bound: str
    is_least: bool

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return (self.flops + self.transcendentals) / self.bytes if self.bytes else 0.0


class Cost(Struct, frozen=True):
    """The least that a module takes, by groups of instructions.

    rows: most time first; total: of all of them, before fusion; fused: of the module that was
    optimised, where there is one. notes: what the figures leave out. balance: operations for each
    byte from which the machine computes longer than it moves.
    """

    module: str
    by: str
    rows: tuple[CostRow, ...]
    total: CostRow
    fused: CostRow | None
    notes: tuple[str, ...]
    balance: float


class _Part(Struct, frozen=True):
    """What an instruction does in all its runs. of: where it stands, else the fusion around it."""

    instruction: Instruction
    of: Instruction
    runs: int
    work: Work


def cost(
    module: Module,
    limits: Limits | None = None,
    by: str = "instruction",
    optimised: Module | None = None,
) -> Cost:
    """Operations, bytes and least seconds by one of COST_GROUPS; optimised: the same after fusion.

    limits: what the machine gives (hlo/backend/profiling/limits.py); None: this one's, which takes
    a second to measure. Raises HloError `arguments` for another group.

    >>> hlo.cost(hlo.read("examples/axpy.hlo"), by="opcode").total.flops
    2048
    """
    limits = limits or measured_limits(thread_count(None))
    if by not in COST_GROUPS:
        raise HloError("arguments", f"cost: by is {by!r}, expected one of {COST_GROUPS}")
    notes: dict[str, list[str]] = {}
    name_of = _NAMES[by]
    found: dict[str, list[_Part]] = {}
    for part in _parts(module, notes):
        if part.work != NOTHING:
            found.setdefault(name_of(part), []).append(part)
    rows = sorted(
        (_row(name, parts, limits) for name, parts in found.items()),
        key=lambda row: (-row.seconds, row.name),
    )
    everything = [part for parts in found.values() for part in parts]
    total = _row("total", everything, limits, runs=1)
    fused = None
    if optimised is not None:
        fused = _row("after fusion", list(_parts(optimised, {})), limits, runs=1)
    balance = limits.operations / limits.copied
    return Cost(module.name, by, tuple(rows), total, fused, tuple(_told(notes)), balance)


_NAMES: dict[str, Callable[[_Part], str]] = {
    "instruction": lambda part: f"%{part.of.name}",
    "opcode": lambda part: part.instruction.opcode,
    "computation": lambda part: part.of.computation.name if part.of.computation else "",
    "source": lambda part: source_of(part.instruction),
    "op_name": lambda part: op_name_of(part.instruction) or "(no op_name)",
}


def _row(name: str, parts: Sequence[_Part], limits: Limits, runs: int | None = None) -> CostRow:
    work = sum((part.work for part in parts), NOTHING)
    count = sum(p.runs for p in parts if p.instruction is p.of) if runs is None else runs
    seconds = limits.seconds(work.bytes, work.operations)
    is_computed = work.operations / limits.operations > work.bytes / limits.copied
    bound = "compute" if is_computed else "memory"
    return CostRow(
        name, count, work.flops, work.transcendentals, work.bytes, seconds, bound, work.is_least
    )


def _told(notes: dict[str, list[str]]) -> Iterator[str]:
    for reason, places in notes.items():
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        yield f"{reason}: {', '.join(places[:MOST_PLACES])}{more}"


def _parts(module: Module, notes: dict[str, list[str]]) -> Iterator[_Part]:
    """What each instruction does, callers first, so that how often a computation runs is known."""
    order = callees_first(module)
    whole: dict[Computation, Work] = {}
    for computation in order:
        whole[computation] = sum(
            (part.work for i in computation.instructions for part in _own(i, 1)), NOTHING
        ) + sum(
            (whole[c].times(n) for i in computation.instructions for c, n in _runs(i, whole, {})),
            NOTHING,
        )
    runs = dict.fromkeys(order, 0)
    runs[module.entry] = 1
    for computation in reversed(order):
        count = runs[computation]
        if not count:
            continue
        for instruction in computation.instructions:
            for part in _own(instruction, count):
                if part.work.is_least:
                    what = f"{AT_LEAST}, {part.instruction.opcode} is not counted"
                    notes.setdefault(what, []).append(f"%{instruction.name}")
                yield part
            for callee, number in _runs(instruction, whole, notes):
                runs[callee] += count * number


def _own(instruction: Instruction, count: int) -> Iterator[_Part]:
    """What the instruction does besides running other computations; a fusion's body is its own."""
    if instruction.opcode != "fusion":
        if not _control(instruction):
            work = work_of(instruction).times(count)
            yield _Part(instruction, instruction, count, work)
        return
    (body,) = instruction.called_computations()
    moved = fused_bytes(instruction, body)
    yield _Part(instruction, instruction, count, Work(bytes=moved).times(count))
    for inner, number in _unfolded(body):
        found = work_of(inner)
        work = Work(found.flops, found.transcendentals, 0, found.is_least)
        yield _Part(inner, instruction, count, work.times(count * number))


def _unfolded(body: Computation) -> Iterator[tuple[Instruction, int]]:
    """Instructions of a fusion's body and of those in it, and how often each runs."""
    waiting = [(body, 1)]
    while waiting:
        computation, number = waiting.pop()
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                waiting += [(c, number * n) for c, n in _runs(instruction, {}, {})]
            elif instruction.opcode == "fusion" or _control(instruction):
                waiting += [(c, number) for c in instruction.called_computations()]
            else:
                yield instruction, number


def _control(instruction: Instruction) -> bool:
    return instruction.opcode in ("call", "while", "conditional", "async-start")


def _runs(
    instruction: Instruction, whole: dict[Computation, Work], notes: dict[str, list[str]]
) -> list[tuple[Computation, int]]:
    """Which computations an instruction runs as control flow, and how often."""
    callees = instruction.called_computations()
    match instruction.opcode:
        case "while":
            trips = trip_count(instruction)
            if trips is None:
                reason = f"{AT_LEAST}, loops of an unknown number of iterations count once"
                notes.setdefault(reason, []).append(f"%{instruction.name}")
            body, condition = callees
            return [(body, 1 if trips is None else trips),
                    (condition, 1 if trips is None else trips + 1)]  # fmt: skip
        case "conditional":
            reason = "at most, branches count as the one that asks for most"
            notes.setdefault(reason, []).append(f"%{instruction.name}")
            return [(max(callees, key=lambda c: (whole[c].operations, whole[c].bytes)), 1)]
        case "call" | "async-start":
            return [(callee, 1) for callee in callees]
        case _:
            return []
