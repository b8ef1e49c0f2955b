"""Row prefetch: while a group of tiles is computed, the rows of the next group are fetched.

    ProductPlan --row_prefetch_bytes--> bytes that each depth of a tile moves on
    RowPrefetch: where a tile begins to ask

A group's rows are copied from the last cache or from memory just before they meet their panels, a
row at a time, and each row's beginning would be waited for. Rows that follow each other in memory
are one stretch: the tiles of a group share that of the next one, each panel a part of a tile.
Measured on Zen 4, two threads, of the time without: f32 of 1024^3 0.99, of 2048^3 0.93; f64 0.87
and 0.82; bf16 of 1024^3 0.97. A vector loop instead of memcpy for the copy gains nothing then.

Rows that tiles read in place are waited for as well, where they come from beyond the second cache:
a tile reads as many rows side by side as it has, each of less than a page. One thread, of the time
without: 100,352 rows of f32 with 96 depths and 16 columns 0.51 (AVX2: 0.57), 25,088 with 256 and 64
0.72 (0.76), 8,192 with 512 and 64 0.91 (0.86).
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, advanced, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.problem.ring import is_plain
from hlo.backend.kernels.contraction.problem.work import factor_bytes
from hlo.backend.kernels.contraction.products.batch_prefetch import prefetched_factors
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading

PRODUCTS_OF_A_LINE = 8  # The fewest products of vectors beside each line that is asked for.


def row_prefetch_bytes(plan: ProductPlan) -> int:
    """Bytes by which each depth of a tile moves on along the next group's rows; 0: rows are not
    fetched.
    """
    packing = plan.lhs_packing
    if not _is_grouped(plan) or plan.depth_blocks > 1 or not is_dense(packing):
        return 0
    if prefetched_factors(plan):  # Tiles ask for the next batch's rows then.
        return 0
    step_bytes = -(-plan.rows.step * packing.ring.scalar_bytes // plan.panels_per_block)
    lines = -(-step_bytes // plan.ring.target.machine.line_bytes)
    return step_bytes if lines * PRODUCTS_OF_A_LINE <= plan.rows.step * plan.vectors else 0


def _is_grouped(plan: ProductPlan) -> bool:
    """Whether the rows of some tiles are read once, and further ones after them. Rows that are read
    in place wait for lines from beyond the second cache alone.
    """
    if plan.lhs is Reading.IN_PLACE:
        near = plan.ring.target.machine.second_cache.bytes
        is_read_once = plan.group > 0 or plan.panels_per_block == 1
        return is_read_once and factor_bytes(plan.contraction, "lhs") > near
    return plan.lhs is Reading.IN_TILE or (plan.lhs is Reading.PACKED and plan.group > 0)


def tiles_ahead(plan: ProductPlan) -> int:
    """From a tile to the one whose rows it asks for: a group's, or the next one where a panel is
    all that a tile meets.
    """
    return max(1, plan.group)


def is_dense(packing: Packing) -> bool:
    """Whether rows are numbers of the ring, and each begins where the one before ends."""
    source = packing.source
    if not is_plain(source.dtype, packing.ring) or not packing.by_rows:
        return False
    return len(source.free) == len(source.depth) == 1 and source.free[0][1] == source.depth_size


class RowPrefetch:
    """Where a tile begins to ask. base: of the rows where they lie; panel: among those of the unit,
    whose tiles are written.
    """

    base: Value
    panel: Value

    def __init__(self, w: Writer, plan: ProductPlan, step_bytes: int) -> None:
        self.w = w
        self.plan = plan
        self.step_bytes = step_bytes

    def start(self, tile: Value) -> Value | None:
        """In the rows of the tile that is as far into the next group. A hint may lie behind an
        array.
        """
        if not self.step_bytes:
            return None
        w, plan = self.w, self.plan
        apart = plan.lhs_packing.row_step if plan.lhs is Reading.PACKED else plan.contraction.k
        row_bytes = apart * plan.ring.scalar_bytes
        row = times(w, add(w, tile, w.int(tiles_ahead(plan))), plan.rows.step)
        part = times(w, self.panel, plan.contraction.k * self.step_bytes)
        return advanced(w, self.base, add(w, times(w, row, row_bytes), part), "i8")
