"""Frames: the memory of one run, an arena and the table of addresses that native code works on.

A frame serves one run at a time and is used again by the next. What does not change between runs
(arena and constant addresses) is filled in when it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from hlo.machine import ALIGNMENT, aligned
from hlo.process.once import lock

if TYPE_CHECKING:
    from hlo.runtime.guard import GuardedMemory

NUMBER_SLOT = 1  # Where a table has its frame's number, which host calls are given.
POISON = 0xFF  # every float type's NaN, every integer's -1


class FrameLayout(Struct, frozen=True):
    """What a frame's table holds, per slot (header included), as parallel arrays.

    arena: slots and their offsets, and which allocation they are (sizes by allocation): the
    allocations only matter to guarded frames. fixed: slots and addresses of constants. arguments,
    results: slots and the number of the leaf whose address goes there. head: the header's words.
    """

    slots: int
    arena_bytes: int
    arena_slots: np.ndarray
    arena_offsets: np.ndarray
    arena_allocations: np.ndarray
    allocation_bytes: dict[int, int]
    fixed_slots: np.ndarray
    fixed_addresses: np.ndarray
    arguments: np.ndarray  # int64[n, 2]: slot, argument leaf
    results: np.ndarray  # int64[n, 2]: slot, result leaf
    head: tuple[int, ...]


class Frame:
    """One run's table and arena. number: what host calls are told, to find it again."""

    __slots__ = ("arena", "error", "guards", "number", "table")

    def __init__(self, layout: FrameLayout, number: int, *, guarded: bool = False) -> None:
        self.table = np.zeros(layout.slots, np.uint64)
        self.number = number
        self.error: BaseException | None = None
        self.guards: dict[int, GuardedMemory] = {}
        self.arena = np.empty(0 if guarded else layout.arena_bytes + ALIGNMENT, np.uint8)
        if guarded:
            self._guard(layout)
        else:
            base = aligned(self.arena.ctypes.data)
            self.table[layout.arena_slots] = layout.arena_offsets.astype(np.uint64) + np.uint64(
                base
            )
        self.table[layout.fixed_slots] = layout.fixed_addresses
        self.table[: len(layout.head)] = layout.head
        self.table[NUMBER_SLOT] = number

    @property
    def address(self) -> int:
        return int(self.table.ctypes.data)

    def set_addresses(self, relocations: np.ndarray, addresses: np.ndarray) -> None:
        """Put the leaves' addresses into their slots."""
        self.table[relocations[:, 0]] = addresses[relocations[:, 1]]

    def poison(self) -> None:
        """Fill the arena with NaN, so that what reads before it writes is seen."""
        self.arena.fill(POISON)
        for memory in self.guards.values():
            memory.fill(POISON)

    def _guard(self, layout: FrameLayout) -> None:
        """Every allocation in memory of its own, the page after its last byte forbidden."""
        from hlo.runtime.guard import GuardedMemory  # for tests alone

        for allocation, size in layout.allocation_bytes.items():
            self.guards[allocation] = GuardedMemory(size)
        addresses = [
            self.guards[int(allocation)].address for allocation in layout.arena_allocations
        ]
        self.table[layout.arena_slots] = np.array(addresses, np.uint64)


class FramePool:
    """Frames that wait for a run; made when all are busy."""

    def __init__(self, layout: FrameLayout) -> None:
        self.layout = layout
        self._waiting: list[Frame] = []
        self._by_number: dict[int, Frame] = {}
        self._lock = lock()

    def take(self) -> Frame:
        with self._lock:
            if self._waiting:
                return self._waiting.pop()
            number = len(self._by_number) + 1
            frame = self._by_number[number] = Frame(self.layout, number)
        return frame

    def give_back(self, frame: Frame) -> None:
        with self._lock:
            self._waiting.append(frame)

    def numbered(self, number: int) -> Frame:
        return self._by_number[number]
