"""Row prefetch: while a group of tiles is computed, the rows of the next group are fetched.

    ProductPlan --row_prefetch_bytes--> bytes that each depth of a tile moves on
    RowPrefetch: where a tile begins to ask

A group's rows are copied from the last cache or from memory just before they meet their panels, a
row at a time, and each row's beginning would be waited for. Rows that follow each other in memory
are one stretch: the tiles of a group share that of the next one, each panel a part of a tile.
Measured on Zen 4, two threads, of the time without: f32 of 1024^3 0.99, of 2048^3 0.93; f64 0.87
and 0.82; bf16 of 1024^3 0.97. A vector loop instead of memcpy for the copy gains nothing then.
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, advanced, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.problem.ring import is_plain
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading


def row_prefetch_bytes(plan: ProductPlan) -> int:
    """Bytes by which each depth of a tile moves on along the next group's rows; 0: rows are not
    fetched.
    """
    packing = plan.lhs_packing
    is_grouped = plan.lhs is Reading.IN_TILE or (plan.lhs is Reading.PACKED and plan.group)
    if not is_grouped or plan.depth_blocks > 1 or not _is_dense(packing):
        return 0
    step_bytes = -(-plan.rows.step * packing.ring.scalar_bytes // plan.panels_per_block)
    return step_bytes if step_bytes <= plan.ring.target.machine.line_bytes else 0


def _is_dense(packing: Packing) -> bool:
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
        row = times(w, add(w, tile, w.int(plan.group)), plan.rows.step)
        part = times(w, self.panel, plan.contraction.k * self.step_bytes)
        return advanced(w, self.base, add(w, times(w, row, row_bytes), part), "i8")
