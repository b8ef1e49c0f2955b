"""LinkTable: all that linking needs of a program beside its code and the module's signature.

    Program --link_table (tabulation.py)--> LinkTable
    LinkTable --frame_layout--> FrameLayout (addresses of this process)

It holds no node of the module and no address, so that it can be kept on disk
(compilation_cache.py); and its module imports no stage, so that what was kept starts at once.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.backend.planning.slots import (
    HEADER_SLOTS,
    SLOT_CALLS,
    SLOT_COUNTERS,
    SLOT_HANDLERS,
    SLOT_THREADS,
)
from hlo.backend.planning.team import Team
from hlo.runtime.frames import FrameLayout
from hlo.runtime.memory import MemoryReport

Pairs = tuple[tuple[int, int], ...]


class LinkTable(Struct, frozen=True):
    """What linking needs of a program, by slots of its table.

    arena: (slot, offset, allocation); allocations: (allocation, bytes); fixed: (slot, number of
    the constant); arguments, results: (slot, number of the leaf). constants: their arrays, bytes
    only. calls: of a listed program, (symbol, slot, units) of each kernel that it runs.
    """

    slots: int
    arena_bytes: int
    arena: np.ndarray
    allocations: Pairs
    fixed: Pairs
    arguments: Pairs
    results: Pairs
    threads: int
    team: Team
    watched: bool
    cost_us: float
    memory: MemoryReport
    constants: tuple[np.ndarray, ...]
    calls: tuple[tuple[str, int, int], ...] = ()

    def frame_layout(
        self,
        counters: np.ndarray | None = None,
        handlers: int = 0,
        calls: np.ndarray | None = None,
    ) -> FrameLayout:
        """What every slot holds, with the addresses of this process. counters: a timed entry's;
        handlers: where the records of handlers are; calls: those of a list that is no code.
        """
        starts = [c.__array_interface__["data"][0] for c in self.constants]
        head = [0] * HEADER_SLOTS
        head[SLOT_THREADS] = self.threads
        head[SLOT_COUNTERS] = 0 if counters is None else counters.ctypes.data
        head[SLOT_HANDLERS] = handlers
        head[SLOT_CALLS] = 0 if calls is None else calls.ctypes.data
        return FrameLayout(
            self.slots,
            self.arena_bytes,
            self.arena[:, 0].copy(),
            self.arena[:, 1].copy(),
            self.arena[:, 2].copy(),
            dict(self.allocations),
            np.array([slot for slot, _ in self.fixed], np.int64),
            np.array([starts[number] for _, number in self.fixed], np.uint64),
            np.array(self.arguments, np.int64).reshape(-1, 2),
            np.array(self.results, np.int64).reshape(-1, 2),
            tuple(head),
        )
