"""Occupancy: the cells made so far, and which values each holds while a plan is made.

A value holds its cell until the last instruction of its scope that reads it; a cell whose values
are all dead may be written again.
"""

from __future__ import annotations

from msgspec import Struct, field

from hlo.backend.planning.cells import Cell, Node, Region
from hlo.backend.planning.schedule import Source
from hlo.ir.instruction import Instruction

NOTHING = 0  # the cell of values without bytes


class Scope(Struct, eq=False):
    """One call site's run of a computation while it is planned.

    last_use: the position of the last reader of each value. position: the instruction at hand.
    cells: where values are. wanted: where they should end up.
    """

    last_use: dict[Source, float]
    position: float = -1
    cells: dict[Source, int] = field(default_factory=dict)
    wanted: dict[Source, int] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def is_dead(self, source: Source) -> bool:
        """Whether nothing after the instruction at hand reads the value."""
        return self.last_use.get(source, -1) <= self.position


PINNED = Scope({}, position=-2)  # never dead: holds cells that a condition may not write


class Mark(Struct, frozen=True):
    """A moment of planning: per cell its interval and number of values, and its holders."""

    rows: list[tuple[int, int, int]]
    holders: list[list[tuple[Scope, Source]]]


class Occupancy:
    """Cells, their holders, and the clock that gives their intervals."""

    def __init__(self) -> None:
        self.cells = [Cell(Region.ARENA, 0)]
        self.clock = 0
        self.moments: list[Instruction | None] = [None]  # what runs at each time of the clock
        self._holders: list[list[tuple[Scope, Source]]] = [[]]

    def tick(self, instruction: Instruction | None) -> None:
        """The next moment; the instruction whose code runs then (None: copies at a scope's end)."""
        self.clock += 1
        self.moments.append(instruction)

    def new(
        self, region: Region, size: int, instruction: Instruction | None, *, index: int = 0
    ) -> int:
        """A new cell; the one without bytes for an arena cell of size 0."""
        if not size and region is Region.ARENA:
            return NOTHING
        self.cells.append(Cell(region, size, instruction, index))
        self._holders.append([])
        self.touch(len(self.cells) - 1)
        return len(self.cells) - 1

    def touch(self, cell: int) -> None:
        """The cell is in use now."""
        entry = self.cells[cell]
        entry.end = self.clock
        if entry.start < 0:
            entry.start = self.clock

    def is_free(self, cell: int) -> bool:
        """Whether the cell may be written and nothing after the instruction at hand reads it."""
        if cell == NOTHING or not self.cells[cell].is_writable:
            return False
        return all(scope.is_dead(source) for scope, source in self._holders[cell])

    def bind(self, scope: Scope, source: Source, cell: int) -> None:
        """A further value that the cell holds."""
        scope.cells[source] = cell
        if cell != NOTHING:
            self.cells[cell].record(source[0])
            alive = [(s, v) for s, v in self._holders[cell] if not s.is_dead(v)]
            self._holders[cell] = [*alive, (scope, source)]

    def define(self, scope: Scope, source: Source, cell: int) -> None:
        """The one value that the cell holds from now on."""
        scope.cells[source] = cell
        if cell != NOTHING:
            self.cells[cell].record(source[0])
            self._holders[cell] = [(scope, source)]

    def clear(self, cell: int) -> None:
        """The cell holds no value."""
        self._holders[cell] = []

    def mark(self) -> Mark:
        """What `rewind` needs to forget all that is planned from here on."""
        rows = [(c.start, c.end, len(c.held)) for c in self.cells]
        return Mark(rows, [list(h) for h in self._holders])

    def rewind(self, mark: Mark) -> None:
        """Forget what was planned since the mark; constants met since then stay. O(cells)."""
        for cell, (start, end, held) in zip(self.cells, mark.rows, strict=False):
            cell.start, cell.end = start, end
            del cell.held[held:]
        for number in range(len(mark.rows), len(self.cells)):
            if self.cells[number].region is Region.ARENA:
                self.cells[number].size = 0
        self._holders[: len(mark.holders)] = [list(h) for h in mark.holders]

    def pin(self, cells: list[int], key: Source) -> None:
        """Keep the cells from being written until they are unpinned."""
        for cell in cells:
            self._holders[cell].append((PINNED, key))

    def unpin(self, cells: list[int], key: Source) -> None:
        for cell in cells:
            self._holders[cell] = [h for h in self._holders[cell] if h != (PINNED, key)]
