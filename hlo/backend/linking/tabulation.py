"""Tabulation: a program's link table, from its allocations and constants.

Program --link_table--> LinkTable
"""

from __future__ import annotations

import numpy as np

from hlo.backend.ir.definitions import symbol
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.planning.allocations import AllocationKind
from hlo.backend.planning.constants import constants
from hlo.backend.planning.memory import memory_report
from hlo.backend.planning.program import Program, kernel_steps
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.machine import aligned


def link_table(program: Program) -> LinkTable:
    """The table of a program; raises HloError when it needs a constant that the text left out."""
    allocations = program.plan.allocations
    held = constants(program)
    arena: list[tuple[int, int, int]] = []
    slots_of: dict[AllocationKind, list[tuple[int, int]]] = {
        region: [] for region in AllocationKind
    }
    scratch_base = aligned(program.plan.arena_bytes)
    spare_base = scratch_base + program.working_bytes
    for slot, number in enumerate(program.table, HEADER_SLOTS):
        allocation = allocations[number] if number >= 0 else None
        if allocation is None:
            offset = scratch_base + (-1 - number) * program.scratch_bytes
            arena.append((slot, offset, number))
        elif allocation.kind is AllocationKind.ARENA:
            arena.append((slot, allocation.offset, number))
        elif allocation.kind is AllocationKind.SPARE:
            arena.append((slot, spare_base + allocation.offset, number))
        elif allocation.kind in (
            AllocationKind.ALIGNED,
            AllocationKind.PASSED,
            AllocationKind.RETURNED,
        ):
            continue  # The program itself fills it in.
        elif allocation.kind is AllocationKind.CONSTANT:
            slots_of[AllocationKind.CONSTANT].append((slot, held.numbers[number]))
        elif allocation.kind is AllocationKind.DONATED:
            slots_of[AllocationKind.RESULT].append((slot, allocation.result))
        else:
            slots_of[allocation.kind].append((slot, allocation.index))
    used = sorted({number for _, _, number in arena})
    return LinkTable(
        HEADER_SLOTS + len(program.table),
        spare_base + program.plan.spare_bytes,
        np.array(arena, np.int64).reshape(-1, 3),
        tuple((n, allocations[n].size if n >= 0 else program.scratch_bytes) for n in used),
        tuple(slots_of[AllocationKind.CONSTANT]),
        tuple(slots_of[AllocationKind.ARGUMENT]),
        tuple(slots_of[AllocationKind.RESULT]),
        program.threads,
        program.team,
        program.watched,
        program.cost_us,
        memory_report(program, held.total_bytes),
        held.arrays,
        _calls(program),
    )


def _calls(program: Program) -> tuple[tuple[str, int, int], ...]:
    """The kernels that a listed program runs."""
    if not program.is_listed:
        return ()
    names = [symbol(kernel) for kernel in program.kernels]
    return tuple((names[s.kernel], s.slot, s.units) for s in kernel_steps(program))
