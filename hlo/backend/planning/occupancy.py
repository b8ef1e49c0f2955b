"""Occupancy: the allocations made so far, and which values each holds while a plan is made.

A value holds its allocation until the last instruction of its scope that reads it; an allocation
whose values are all dead may be written again.
"""

from __future__ import annotations

from msgspec import Struct, field

from hlo.backend.planning.allocations import Allocation, AllocationKind, Node
from hlo.backend.planning.schedule import Source
from hlo.ir.instruction import Instruction

NOTHING = 0  # The number of the allocation that values without bytes have.


class Scope(Struct, eq=False):
    """One call site's run of a computation while it is planned.

    last_use: the position of the last reader of each value. position: the instruction at hand.
    allocations: where values are. wanted: where they should end up.
    """

    last_use: dict[Source, float]
    position: float = -1
    allocations: dict[Source, int] = field(default_factory=dict)
    wanted: dict[Source, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def is_dead(self, source: Source) -> bool:
        """Whether nothing after the instruction at hand reads the value."""
        return self.last_use.get(source, -1) <= self.position


# A scope that never ends: it holds allocations that a condition may not write.
PINNED = Scope({}, position=-2)


class Snapshot(Struct, frozen=True):
    """A moment of planning: per allocation its interval and number of values, and its holders."""

    rows: list[tuple[int, int, int]]
    holders: list[list[tuple[Scope, Source]]]


class Occupancy:
    """Allocations, their holders, and the clock that gives their intervals."""

    def __init__(self) -> None:
        self.allocations = [Allocation(AllocationKind.ARENA, 0)]
        self.clock = 0
        self.moments: list[Instruction | None] = [None]  # what runs at each time of the clock
        self._holders: list[list[tuple[Scope, Source]]] = [[]]

    def tick(self, instruction: Instruction | None) -> None:
        """The next moment; the instruction whose code runs then (None: copies at a scope's end)."""
        self.clock += 1
        self.moments.append(instruction)

    def new(
        self, kind: AllocationKind, size: int, instruction: Instruction | None, *, index: int = 0
    ) -> int:
        """A new allocation; the one without bytes for an arena allocation of size 0."""
        if not size and kind is AllocationKind.ARENA:
            return NOTHING
        self.allocations.append(Allocation(kind, size, instruction, index))
        self._holders.append([])
        self.touch(len(self.allocations) - 1)
        return len(self.allocations) - 1

    def touch(self, allocation: int) -> None:
        """The allocation is in use now."""
        entry = self.allocations[allocation]
        entry.end = self.clock
        if entry.start < 0:
            entry.start = self.clock

    def is_free(self, allocation: int) -> bool:
        """Whether the allocation may be written and nothing after the instruction at hand reads
        it."""
        if allocation == NOTHING or not self.allocations[allocation].is_writable:
            return False
        return all(scope.is_dead(source) for scope, source in self._holders[allocation])

    def bind(self, scope: Scope, source: Source, allocation: int) -> None:
        """A further value that the allocation holds."""
        scope.allocations[source] = allocation
        if allocation != NOTHING:
            self.allocations[allocation].record(source[0])
            alive = [(s, v) for s, v in self._holders[allocation] if not s.is_dead(v)]
            self._holders[allocation] = [*alive, (scope, source)]

    def define(self, scope: Scope, source: Source, allocation: int) -> None:
        """The one value that the allocation holds from now on."""
        scope.allocations[source] = allocation
        if allocation != NOTHING:
            self.allocations[allocation].record(source[0])
            self._holders[allocation] = [(scope, source)]

    def clear(self, allocation: int) -> None:
        """The allocation holds no value."""
        self._holders[allocation] = []

    def snapshot(self) -> Snapshot:
        """What `rewind` needs to forget all that is planned from here on."""
        rows = [(c.start, c.end, len(c.held)) for c in self.allocations]
        return Snapshot(rows, [list(h) for h in self._holders])

    def rewind(self, snapshot: Snapshot) -> None:
        """Forget what was planned since the snapshot; constants met since then stay.
        O(allocations)."""
        for allocation, (start, end, held) in zip(self.allocations, snapshot.rows, strict=False):
            allocation.start, allocation.end = start, end
            del allocation.held[held:]
        for number in range(len(snapshot.rows), len(self.allocations)):
            if self.allocations[number].kind is AllocationKind.ARENA:
                self.allocations[number].size = 0
        self._holders[: len(snapshot.holders)] = [list(h) for h in snapshot.holders]

    def pin(self, allocations: list[int], key: Source) -> None:
        """Keep the allocations from being written until they are unpinned."""
        for allocation in allocations:
            self._holders[allocation].append((PINNED, key))

    def unpin(self, allocations: list[int], key: Source) -> None:
        for allocation in allocations:
            self._holders[allocation] = [h for h in self._holders[allocation] if h != (PINNED, key)]
