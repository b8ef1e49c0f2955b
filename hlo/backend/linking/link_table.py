"""LinkTable: all that linking needs of a program beside its code and the module's signature.

    Program --link_table--> LinkTable --frame_layout--> FrameLayout (addresses of this process)

It holds no node of the module and no address, so that it can be kept on disk (recall.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo.backend.linking.constants import constants
from hlo.backend.planning.cells import Region
from hlo.backend.planning.memory import memory_report
from hlo.backend.planning.packing import aligned
from hlo.backend.planning.program import HEADER_SLOTS, SLOT_COUNTERS, SLOT_THREADS, Program
from hlo.runtime.frames import FrameLayout
from hlo.runtime.memory import MemoryReport

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """arena: (slot, offset, cell); cells: (cell, bytes); fixed: (slot, number of the constant);
    arguments, results: (slot, number of the leaf). constants: their arrays, bytes only."""

    slots: int
    arena_bytes: int
    arena: np.ndarray
    cells: Pairs
    fixed: Pairs
    arguments: Pairs
    results: Pairs
    threads: int
    wakes_pool: bool
    cost_us: float
    memory: MemoryReport
    constants: tuple[np.ndarray, ...]

    def frame_layout(self, counters: np.ndarray | None = None) -> FrameLayout:
        """What every slot holds, with the addresses of this process. counters: a timed entry's."""
        starts = [c.__array_interface__["data"][0] for c in self.constants]
        head = [0] * HEADER_SLOTS
        head[SLOT_THREADS] = self.threads
        head[SLOT_COUNTERS] = 0 if counters is None else counters.ctypes.data
        return FrameLayout(
            self.slots,
            self.arena_bytes,
            self.arena[:, 0].copy(),
            self.arena[:, 1].copy(),
            self.arena[:, 2].copy(),
            dict(self.cells),
            np.array([slot for slot, _ in self.fixed], np.int64),
            np.array([starts[number] for _, number in self.fixed], np.uint64),
            np.array(self.arguments, np.int64).reshape(-1, 2),
            np.array(self.results, np.int64).reshape(-1, 2),
            tuple(head),
        )


def link_table(program: Program) -> LinkTable:
    """The table of a program; raises HloError when it needs a constant that the text left out."""
    cells = program.plan.cells
    held = constants(cells)
    arena: list[tuple[int, int, int]] = []
    places: dict[Region, list[tuple[int, int]]] = {region: [] for region in Region}
    scratch_base = aligned(program.plan.arena_bytes)
    for slot, number in enumerate(program.table, HEADER_SLOTS):
        cell = cells[number] if number >= 0 else None
        if cell is None:
            offset = scratch_base + (-1 - number) * program.scratch_bytes
            arena.append((slot, offset, number))
        elif cell.region is Region.ARENA:
            arena.append((slot, cell.offset, number))
        elif cell.region is Region.CONSTANT:
            places[Region.CONSTANT].append((slot, held.numbers[number]))
        elif cell.region is Region.DONATED:
            places[Region.RESULT].append((slot, cell.result))
        else:
            places[cell.region].append((slot, cell.index))
    used = sorted({number for _, _, number in arena})
    return LinkTable(
        HEADER_SLOTS + len(program.table),
        scratch_base + program.threads * program.scratch_bytes,
        np.array(arena, np.int64).reshape(-1, 3),
        tuple((n, cells[n].size if n >= 0 else program.scratch_bytes) for n in used),
        tuple(places[Region.CONSTANT]),
        tuple(places[Region.ARGUMENT]),
        tuple(places[Region.RESULT]),
        program.threads,
        program.wakes_pool,
        program.cost_us,
        memory_report(program, held.total_bytes),
        held.arrays,
    )
