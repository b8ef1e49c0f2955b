"""Partial sums: a unit's tiles in scratch while further depth blocks are to come, or an epilogue.

panel --> tile --> row --> vectors of sums    as a packed factor of columns has its depths
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.ir.arithmetic import advanced, times
from hlo.backend.ir.control import each
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts
from hlo.backend.kernels.contraction.products.plan import ProductPlan

Range = tuple[Value, Value]  # [first, last)


class PartialSums:
    """Where the sums of a product being written wait. base: scratch; at: the current panel's."""

    def __init__(self, w: Writer, plan: ProductPlan) -> None:
        self.w = w
        self.plan = plan
        self.ring = plan.ring
        self.step = plan.rhs_packing.k_step
        self.panel = plan.tiles_per_block * plan.rows.step * self.step

    def place(self, base: Value) -> None:
        """The scratch memory, where panel 0 is current."""
        self.base = self.at = base

    def each_panel(self, panels: Range, body: Callable[[Value], None]) -> None:
        """body(panel) with the panel as the current one."""
        w = self.w

        def at_panel(panel: Value) -> None:
            moved = times(w, w.binary("sub", panel, panels[0]), self.panel)
            self.at = advanced(w, self.base, moved, self.ring.scalar)
            body(panel)

        each(w, *panels, at_panel)

    def row(self, row: Value) -> Value:
        """Where a row of the current panel's waits."""
        return advanced(self.w, self.at, times(self.w, row, self.step), self.ring.scalar)

    def each_tile(self, tiles: Range, body: Callable[[Value, Value, Value], None]) -> None:
        """body(tile, its first row, where that waits) for all tiles."""
        w, rows = self.w, self.plan.rows

        def at_tile(tile: Value) -> None:
            local = times(w, w.binary("sub", tile, tiles[0]), rows.step)
            body(tile, rows.start(w, tile), self.row(local))

        each(w, *tiles, at_tile)

    def clear(self, tiles: Range) -> None:
        """Zeros for all rows of the tiles."""
        w, rows = self.w, self.plan.rows
        zeros = [self.ring.zero(w, self.ring.lanes)] * self.plan.vectors

        def at_tile(_: Value, __: Value, stage: Value) -> None:
            def at_row(r: Value) -> None:
                at = advanced(w, stage, times(w, r, self.step), self.ring.scalar)
                self.put(at, zeros)

            each(w, w.int(0), w.int(rows.step), at_row)

        self.each_tile(tiles, at_tile)

    def _vector_addresses(self, stage: Value) -> list[list[Value]]:
        ring, width = self.ring, self.plan.columns.width
        addresses = [
            [i * width + v * ring.lanes for i in range(ring.parts)]
            for v in range(self.plan.vectors)
        ]
        return [[advanced(self.w, stage, at, ring.scalar) for at in row] for row in addresses]

    def put(self, stage: Value, row: Sequence[Parts]) -> None:
        """Store one row's sums."""
        for parts, addresses in zip(row, self._vector_addresses(stage), strict=True):
            for part, address in zip(parts, addresses, strict=True):
                self.w.store(part, address, self.ring.scalar_bytes)

    def sums(self, stage: Value) -> list[Parts]:
        """One row's sums."""
        ring = self.ring
        return [
            tuple(self.w.load(a, ring.vector, ring.scalar_bytes) for a in addresses)
            for addresses in self._vector_addresses(stage)
        ]
