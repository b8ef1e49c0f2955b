"""The work of a product on the matrix units, from its plan.

TilePlan --tile_work, tile_packing_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from math import log2

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.matrix_units.amx import TILE, TilePlan
from hlo.backend.kernels.contraction.problem.axes import Operand
from hlo.backend.kernels.contraction.problem.work import reach

LEFT = 2  # Instructions on a vector of finished sums: it leaves through scratch.
TURNED = 2 + log2(TILE)  # And where its square is turned, and leaves through scratch once more.


def tile_work(plan: TilePlan) -> Work:
    """Of product.py's kernel: rows of a unit are packed by it, and again for each block of columns
    where depth is cut.
    """
    c = plan.c
    tiles = c.batches * plan.row_tiles * plan.column_tiles
    source, instructions = _packing(plan, c.lhs, c.batches * c.m, along=plan.is_lhs_along_depth)
    is_shared = plan.blocks == 1
    columns, joined = 0.0, 0.0
    if plan.packs_columns:
        columns, joined = _packing(plan, c.rhs, c.batches * c.n, along=plan.is_rhs_along_depth)
    left = LEFT + (TURNED if plan.is_turned else 0)
    again = 1 if is_shared else plan.column_blocks
    return Work(
        tiles=plan.products,
        sums=left * tiles * plan.blocks * TILE,
        copied=columns if is_shared else again * source,
        packed=joined if is_shared else again * instructions,
        shared=source if is_shared else 0.0,
        shared_packed=instructions if is_shared else 0.0,
        runs=c.batches * plan.row_blocks if is_shared else 1,
        streamed=2.0 * c.batches * c.m * c.n * c.out.item_bytes,
        reach=plan.rhs_bytes + reach(c),
    )


def tile_packing_work(plan: TilePlan) -> Work:
    """Of packing.py's kernel, which reads columns and writes tiles."""
    c = plan.c
    columns = plan.rhs_bytes // (plan.steps * plan.depths * plan.item_bytes)
    _, instructions = _packing(plan, c.rhs, columns, along=plan.is_rhs_along_depth)
    return Work(instructions, moved=2 * plan.rhs_bytes, reach=2 * plan.rhs_bytes, is_stream=True)


def _packing(plan: TilePlan, factor: Operand, lines: int, *, along: bool) -> tuple[float, float]:
    """Bytes of so many rows or columns, and what packs them: a vector that lies along depth is
    loaded and stored, one that lies across it is joined with others of its group before.
    """
    size = lines * plan.steps * plan.depths * plan.item_bytes
    vectors = size / plan.ring.target.vector_bytes
    joined = 0 if along else plan.group + log2(plan.group)
    return lines * plan.c.k * factor.read_bytes, (2 + joined) * vectors
