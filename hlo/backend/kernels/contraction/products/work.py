"""The work of a product, from its plan.

ProductPlan --product_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.packing.strided import stretch_of
from hlo.backend.kernels.contraction.problem.axes import Axes, extent
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.work import factor_bytes, instructions, reach
from hlo.backend.kernels.contraction.products.limits import share_of
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.rows_ahead import rows_ahead
from hlo.machine import COMMON

GATHERED = 4  # Bytes that are gathered one by one take so many times as long as those of runs.


def product_work(plan: ProductPlan) -> Work:
    """Of product.py's kernel."""
    c, ring = plan.contraction, plan.ring
    tiles = c.batches * plan.rows.count * plan.columns.count
    stored = plan.rows.step * plan.vectors * ring.parts
    shared, runs = _shared(plan)
    copied = _copied(plan)
    is_fetched = plan.lhs is Reading.IN_TILE and rows_ahead(plan) > 0
    return Work(
        instructions=share_of(plan) * tiles * c.k * _of_a_depth(plan.rows.step, plan.vectors, ring),
        sums=tiles * plan.depth_blocks * stored,
        copied=0.0 if is_fetched else copied,
        fetched=copied if is_fetched else 0.0,
        shared=shared,
        runs=runs,
        moved=_in_place(plan) + 2 * c.batches * c.m * c.n * c.out.item_bytes,
        reach=reach(c),
    )


def _of_a_depth(rows: int, vectors: int, ring: Ring) -> float:
    """Multiply-adds that take as long as one depth of a tile: its own, or what it loads, or what a
    sum waits for the one before.
    """
    cycles, parts = COMMON.cycles, ring.parts
    products = rows * vectors * parts**2 * instructions(ring)
    read = rows // ring.rows + vectors * ring.rows
    loads = read * parts * cycles.operations / cycles.loads
    return max(products, loads, cycles.latency * cycles.operations)


def _moved(packing: Packing, batch: Axes) -> float:
    """Bytes that are read and written where a factor is packed for so many batches."""
    source = packing.source
    elements = source.free_size * source.depth_size * extent(batch)
    moved = elements * (source.number_bytes + packing.ring.scalar_bytes * packing.ring.parts)
    is_in_runs = source.is_free_contiguous or source.is_depth_contiguous
    return moved if is_in_runs or stretch_of(packing) else GATHERED * moved


def _in_place(plan: ProductPlan) -> float:
    """Bytes of the factors that tiles read where they lie, once: a batch stays near."""
    c = plan.contraction
    sides = [s for s in ("lhs", "rhs") if getattr(plan, s) in (Reading.IN_PLACE, Reading.PACKED)]
    return sum(factor_bytes(c, side) for side in sides)


def _copied(plan: ProductPlan) -> float:
    """What units pack for themselves."""
    c, lhs, rhs = plan.contraction, plan.lhs_packing, plan.rhs_packing
    copied = 0.0
    if plan.lhs is Reading.IN_TILE:
        copied += _moved(lhs, c.batch) * plan.column_blocks
    if plan.rhs is Reading.IN_UNIT and not plan.shared_bytes:
        again = plan.row_blocks if plan.column_blocks > 1 or plan.depth_first else 1
        copied += _moved(rhs, c.batch) * again
    return copied


def _shared(plan: ProductPlan) -> tuple[float, int]:
    """What a run of units has packed, in all, and how many runs there are."""
    c = plan.contraction
    if plan.shared_bytes:
        own = tuple(a for a in c.batch if a.rhs)
        return _moved(plan.rhs_packing, own), plan.shared_runs
    if plan.lhs is Reading.IN_UNIT:
        own = tuple(a for a in c.batch if a.lhs)
        return _moved(plan.lhs_packing, own), plan.row_blocks * extent(own)
    return 0.0, 1
