"""The memory report of a program: sizes, and what the arena holds at its fullest moment."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.leaves import value_bytes
from hlo.backend.planning.cells import Cell, Region
from hlo.backend.planning.program import Program
from hlo.runtime.memory import BufferRow, MemoryReport


def memory_report(program: Program, constant_bytes: int) -> MemoryReport:
    """Rows for the arena's cells in use at the peak, largest first."""
    entry = program.plan.schedule.module.entry
    cells = [c for c in program.plan.cells if c.region is Region.ARENA and c.size]
    moment, peak_bytes = peak(cells)
    held = [c for c in cells if c.start <= moment <= c.end]
    held.sort(key=lambda c: (-c.size, c.start))
    arguments = sum(value_bytes(p.shape) for p in entry.parameters)
    results = value_bytes(entry.root.shape)
    return MemoryReport(
        program.plan.arena_bytes,
        arguments,
        results,
        constant_bytes,
        peak_bytes,
        tuple(buffer_row(c) for c in held),
        program.plan.spare_bytes,
        program.working_bytes,
    )


def peak(cells: Sequence[Cell]) -> tuple[int, int]:
    """When most bytes are in use, and how many. O(n log n)."""
    changes: dict[int, int] = {}
    for cell in cells:
        changes[cell.start] = changes.get(cell.start, 0) + cell.size
        changes[cell.end + 1] = changes.get(cell.end + 1, 0) - cell.size
    now = best = moment = 0
    for time in sorted(changes):
        now += changes[time]
        if now > best:
            best, moment = now, time
    return moment, best


def buffer_row(cell: Cell) -> BufferRow:
    """A cell as the report shows it."""
    instruction = cell.instruction
    if instruction is None:
        return BufferRow("-", "", "copy", cell.size, "", cell.start, cell.end)
    span = instruction.span
    line = "" if span is None else f"{span.source.name}:{span.line}"
    return BufferRow(
        instruction.name,
        str(instruction.shape),
        instruction.opcode,
        cell.size,
        line,
        cell.start,
        cell.end,
    )
