"""Tabulation: a program's link table, from its cells and constants.

Program --link_table--> LinkTable
"""

from __future__ import annotations

import numpy as np

from hlo.backend.linking.link_table import LinkTable
from hlo.backend.planning.cells import Region
from hlo.backend.planning.constants import constants
from hlo.backend.planning.memory import memory_report
from hlo.backend.planning.packing import aligned
from hlo.backend.planning.program import Program
from hlo.backend.planning.slots import HEADER_SLOTS


def link_table(program: Program) -> LinkTable:
    """The table of a program; raises HloError when it needs a constant that the text left out."""
    cells = program.plan.cells
    held = constants(cells)
    arena: list[tuple[int, int, int]] = []
    places: dict[Region, list[tuple[int, int]]] = {region: [] for region in Region}
    scratch_base = aligned(program.plan.arena_bytes)
    spare_base = scratch_base + program.working_bytes
    for slot, number in enumerate(program.table, HEADER_SLOTS):
        cell = cells[number] if number >= 0 else None
        if cell is None:
            offset = scratch_base + (-1 - number) * program.scratch_bytes
            arena.append((slot, offset, number))
        elif cell.region is Region.ARENA:
            arena.append((slot, cell.offset, number))
        elif cell.region is Region.SPARE:
            arena.append((slot, spare_base + cell.offset, number))
        elif cell.region in (Region.ALIGNED, Region.PASSED, Region.RETURNED):
            continue  # the program itself fills it in
        elif cell.region is Region.CONSTANT:
            places[Region.CONSTANT].append((slot, held.numbers[number]))
        elif cell.region is Region.DONATED:
            places[Region.RESULT].append((slot, cell.result))
        else:
            places[cell.region].append((slot, cell.index))
    used = sorted({number for _, _, number in arena})
    return LinkTable(
        HEADER_SLOTS + len(program.table),
        spare_base + program.plan.spare_bytes,
        np.array(arena, np.int64).reshape(-1, 3),
        tuple((n, cells[n].size if n >= 0 else program.scratch_bytes) for n in used),
        tuple(places[Region.CONSTANT]),
        tuple(places[Region.ARGUMENT]),
        tuple(places[Region.RESULT]),
        program.threads,
        program.wakes_pool,
        program.watched,
        program.cost_us,
        memory_report(program, held.total_bytes),
        held.arrays,
    )
