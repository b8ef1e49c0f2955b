"""Column prefetch: the last tiles of a unit ask for the columns that are packed next.

    ProductPlan --column_lines--> how they lie, and how many of their lines a depth asks for
    ColumnPrefetch: where a tile begins to ask, and how far each depth moves on

A unit's columns are packed in one go, for which a core would have to read faster than it does from
beyond the second cache: 200 rows have 200 multiply-adds for each number. Tiles before are bound by
their products, and need little of that cache. Zen 4, of the time without: f32, one thread beside
other programs, 200 x 768 x 3,072 and 200 x 3,072 x 768 0.92 to 0.96, 256 x 1,024 x 1,024 0.95 to
0.99, 1,024 cubed 0.97; two threads alone 0.97 to 1.0. Columns along depth took 1.0 to 1.02.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, advanced, shared, split_index, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.microkernels.assembly import Ahead
from hlo.backend.kernels.contraction.problem.addressing import Place, address_of, moved
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.products.partial_sums import Range
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import row_prefetch_bytes
from hlo.backend.kernels.contraction.products.units import unit_after, unit_numbers


class ColumnLines(Struct, frozen=True):
    """Lines of a block of columns that tiles ask for.

    ahead_bytes: from the columns that are multiplied; row_bytes: from depth to depth; lines: of a
    row of memory; rows: of memory in a depth, row_step bytes apart; each: lines that a depth of a
    tile asks for; tiles: of rows that share the lines, the last ones of a unit.
    """

    ahead_bytes: int
    row_bytes: int
    lines: int
    rows: int
    row_step: int
    each: int
    tiles: int


def column_lines(plan: ProductPlan) -> ColumnLines | None:
    """None where columns are not packed in groups, come from nearby, or are no lines of rows."""
    packing, machine = plan.rhs_packing, plan.ring.target.machine
    source, item_bytes = packing.source, packing.source.dtype.item_bytes
    is_apart = plan.group > 0 and plan.rhs is Reading.IN_UNIT and packing.is_far
    if not is_apart or source.is_computed or plan.contraction.bounded_side:
        return None
    if plan.shared_runs * plan.depth_blocks == 1:
        return None
    if len(source.depth) != 1 or not source.is_free_contiguous:
        return None
    each = max(1, -(-row_prefetch_bytes(plan) // machine.line_bytes))
    part_bytes = plan.panels_per_block * plan.columns.width * item_bytes
    lines = -(-part_bytes // machine.line_bytes) + 1  # A row may begin inside of one.
    lines = -(-lines // each) * each
    rows, step = (joined.group, joined.step * item_bytes) if (joined := source.joined) else (1, 0)
    row_bytes = source.depth[0][1] * item_bytes
    tiles = -(-rows * lines // (each * plan.panels_per_block))
    ahead = part_bytes if plan.depth_blocks == 1 else plan.depth_block * row_bytes
    return ColumnLines(ahead, row_bytes, lines, rows, step, each, tiles)


class ColumnPrefetch:
    """The unit that is computed, or the block of its depths. following: where the columns lie that
    are packed next; wanted: how many of the unit's last tiles ask for them.
    """

    following: Value
    wanted: Value

    def __init__(self, w: Writer, plan: ProductPlan, lines: ColumnLines | None) -> None:
        self.w = w
        self.plan = plan
        self.lines = lines
        self.source = plan.rhs_packing.source
        self.after = w.int(0)  # the columns of the unit after this one

    def unit(self, unit: Value, memory: Place) -> None:
        """memory: element 0 of all columns."""
        if self.lines is None:
            return
        w, plan, c = self.w, self.plan, self.plan.contraction
        b, _, column = unit_numbers(w, plan, unit_after(w, plan, unit))
        there = moved(w, memory, b, [(a.size, a.rhs) for a in c.batch], self.source.dtype)
        first, _ = shared(w, column, plan.columns.count, plan.column_blocks)
        self.after = self._at(there, w.int(0), first)
        self.wanted = w.int(self.lines.tiles)
        if plan.shared_bytes and plan.units > plan.shared_runs:
            own, _, now = unit_numbers(w, plan, unit)
            is_new = w.compare("icmp ne", column, now)
            if c.differs("rhs"):
                is_new = w.binary("or", is_new, w.compare("icmp ne", b, own))
            self.wanted = w.select(is_new, self.wanted, w.int(0))

    def place(self, memory: Place, begin: Value, panels: Range) -> None:
        """The block that begins at a depth. memory: depth 0 of column 0."""
        if self.lines is None:
            return
        w, plan = self.w, self.plan
        self.first, self.following = panels[0], self.after
        if plan.depth_blocks > 1:
            end = add(w, begin, w.int(plan.depth_block))
            is_over = w.compare("icmp uge", end, w.int(plan.contraction.k))
            self.following = w.select(is_over, self.after, self._at(memory, end, panels[0]))

    def _at(self, memory: Place, depth: Value, panel: Value) -> Value:
        w, source = self.w, self.source
        row = times(w, depth, source.depth[0][1])
        offset = add(w, row, times(w, panel, self.plan.columns.step))
        return element_address(w, address_of(memory), offset, source.dtype)

    def start(
        self, panel: Value, tile: Value, end: Value, rows: Value | None, near: Value
    ) -> Ahead | None:
        """Where a tile begins to ask. rows: in the next group's rows; near: what is there anyway;
        end: behind the unit's last tile. A hint may lie behind an array.
        """
        if (lines := self.lines) is None:
            return Ahead(rows) if rows is not None else None
        w = self.w
        behind = w.binary("sub", end, tile)
        asks = w.compare("icmp ule", behind, self.wanted)
        number = times(w, w.binary("sub", panel, self.first), lines.tiles)
        number = add(w, number, w.binary("sub", w.int(lines.tiles), behind))
        at = advanced(w, self.following, self._offset(number, lines), "i8")
        step = w.select(asks, w.int(lines.row_bytes), w.int(row_prefetch_bytes(self.plan)))
        return Ahead(w.select(asks, at, near if rows is None else rows), step)

    def _offset(self, number: Value, lines: ColumnLines) -> Value:
        """Of the lines that the unit's tile with a number among those that ask begins with."""
        w, line_bytes = self.w, self.plan.ring.target.machine.line_bytes
        row, part = w.int(0), number
        if lines.rows > 1:
            row, part = split_index(w, number, (1 << 40, lines.lines // lines.each))
        return add(w, times(w, row, lines.row_step), times(w, part, lines.each * line_bytes))
