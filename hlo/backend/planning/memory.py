"""The memory report of a program: sizes, and what the arena holds at its fullest moment."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.leaves import value_bytes
from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.program import Program
from hlo.runtime.memory import BufferRow, MemoryReport


def memory_report(program: Program, constant_bytes: int) -> MemoryReport:
    """Rows for the arena's allocations in use at the peak, largest first."""
    entry = program.plan.schedule.module.entry
    allocations = [c for c in program.plan.allocations if c.kind is AllocationKind.ARENA and c.size]
    moment, peak_bytes = peak(allocations)
    held = [c for c in allocations if c.start <= moment <= c.end]
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


def peak(allocations: Sequence[Allocation]) -> tuple[int, int]:
    """When most bytes are in use, and how many. O(n log n)."""
    changes: dict[int, int] = {}
    for allocation in allocations:
        changes[allocation.start] = changes.get(allocation.start, 0) + allocation.size
        changes[allocation.end + 1] = changes.get(allocation.end + 1, 0) - allocation.size
    now = best = moment = 0
    for time in sorted(changes):
        now += changes[time]
        if now > best:
            best, moment = now, time
    return moment, best


def buffer_row(allocation: Allocation) -> BufferRow:
    """An allocation as the report shows it."""
    instruction = allocation.instruction
    if instruction is None:
        return BufferRow("-", "", "copy", allocation.size, "", allocation.start, allocation.end)
    span = instruction.span
    line = "" if span is None else f"{span.source.name}:{span.line}"
    return BufferRow(
        instruction.name,
        str(instruction.shape),
        instruction.opcode,
        allocation.size,
        line,
        allocation.start,
        allocation.end,
    )
