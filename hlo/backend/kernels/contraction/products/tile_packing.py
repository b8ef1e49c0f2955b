"""Tile packing: the first tile of rows that meets a panel of columns packs it as it multiplies.

    ProductPlan --row_lines--> how columns lie, and how many of their lines a tile asks for
    TilePacking: where a block of depths lies in memory, and where tiles begin to ask for the next

Few rows meet a large matrix: to copy its panels first takes a fifth of the time. Tiles are bound by
their products, so that the first one can load columns from where they lie, and store them for the
others, at no cost. It reads a few lines from each row of memory, too few for a processor to
foresee: all tiles of a block ask for lines of the next one. Zen 5, two threads, of the time with
copies before: f32 of 16 to 128 rows by [768,3072] 0.79 to 0.86, 32 by [1024,4096] 0.79.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, advanced, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.products.partial_sums import Range
from hlo.backend.kernels.contraction.products.plan import ProductPlan


class RowLines(Struct, frozen=True):
    """Lines of rows that a tile asks for ahead while it packs columns.

    row_bytes: from one row of memory to the next; lines: that a unit's columns have in one;
    each: that a depth of a tile asks for.
    """

    row_bytes: int
    lines: int
    each: int


def row_lines(plan: ProductPlan) -> RowLines | None:
    """None where tiles do not pack."""
    if not plan.packs_in_tiles:
        return None
    source, columns = plan.rhs_packing.source, plan.panels_per_block * plan.columns.width
    # A row that begins inside of a line ends in one more.
    lines = -(-columns * source.dtype.item_bytes // plan.ring.target.machine.line_bytes) + 1
    tiles = plan.panels_per_block * plan.tiles_per_block
    row_bytes = source.depth[0][1] * source.dtype.item_bytes
    return RowLines(row_bytes, lines, -(-lines // tiles))


class TilePacking:
    """The block of depths that is multiplied. lines: None where tiles do not pack."""

    def __init__(self, w: Writer, plan: ProductPlan, lines: RowLines | None) -> None:
        self.w = w
        self.plan = plan
        self.lines = lines
        self.source = plan.rhs_packing.source
        self.memory = self.next = self.first = w.int(0)

    def place(self, memory: Value, begin: Value, panels: Range) -> None:
        """It begins at depth `begin`. memory: depth 0 of column 0."""
        w, plan = self.w, self.plan
        self.first = panels[0]
        self.memory = self._at(memory, begin, w.int(0))
        following = add(w, begin, w.int(plan.depth_block))
        is_last = w.compare("icmp uge", following, w.int(plan.contraction.k))
        depth = w.select(is_last, w.int(0), following)
        panel = w.select(is_last, panels[1], panels[0])
        self.next = self._at(memory, depth, times(w, panel, plan.columns.step))

    def columns(self, start: Value) -> Value:
        """Where those of a panel lie."""
        return element_address(self.w, self.memory, start, self.source.dtype)

    def ahead(self, panel: Value, tile: Value) -> Value | None:
        """Where a tile begins to ask for lines of the next block, behind the last one of the next
        unit's first. Tiles for which none is left ask for the last ones again; a hint may lie
        behind an array.
        """
        if self.lines is None:
            return None
        w, lines = self.w, self.lines
        tiles = times(w, w.binary("sub", panel, self.first), self.plan.tiles_per_block)
        line = times(w, add(w, tiles, tile), lines.each)
        line = w.intrinsic("llvm.umin", "i64", line, w.int(lines.lines - lines.each))
        line_bytes = self.plan.ring.target.machine.line_bytes
        return advanced(w, self.next, times(w, line, line_bytes), "i8")

    def _at(self, memory: Value, depth: Value, column: Value) -> Value:
        ((_, stride),) = self.source.depth
        offset = add(self.w, times(self.w, depth, stride), column)
        return element_address(self.w, memory, offset, self.source.dtype)
