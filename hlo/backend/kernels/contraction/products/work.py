"""The work of a product, from its plan.

ProductPlan --product_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from math import log2

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.packing.runs import runs_met
from hlo.backend.kernels.contraction.packing.strided import stretch_of
from hlo.backend.kernels.contraction.problem.axes import Axes, extent
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.work import factor_bytes, instructions, reach
from hlo.backend.kernels.contraction.products.band_limits import share_of
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import row_prefetch_bytes
from hlo.machine import COMMON

COPIED = 2  # Instructions for a vector that is packed: it is loaded and stored.


def product_work(plan: ProductPlan) -> Work:
    """Of product.py's kernel."""
    c, ring = plan.contraction, plan.ring
    tiles = c.batches * plan.rows.count * plan.columns.count
    stored = plan.rows.step * plan.vectors * ring.parts
    (shared, shared_packed), runs = _shared(plan)
    copied, packed = _copied(plan)
    is_fetched = plan.lhs is Reading.IN_TILE and row_prefetch_bytes(plan) > 0
    return Work(
        instructions=share_of(plan) * tiles * c.k * _of_a_depth(plan.rows.step, plan.vectors, ring),
        chain=share_of(plan) * tiles * c.k,
        sums=tiles * plan.depth_blocks * stored,
        copied=0.0 if is_fetched else copied,
        fetched=copied if is_fetched else 0.0,
        packed=packed,
        shared=shared,
        shared_packed=shared_packed,
        runs=runs,
        moved=_in_place(plan) + 2 * c.batches * c.m * c.n * c.out.item_bytes,
        reach=reach(c),
    )


def _of_a_depth(rows: int, vectors: int, ring: Ring) -> float:
    """Multiply-adds that take as long as one depth of a tile: its own, or what it loads."""
    cycles, parts = COMMON.cycles, ring.parts
    products = rows * vectors * parts**2 * instructions(ring)
    read = rows // ring.rows + vectors * ring.rows
    loads = read * parts * cycles.operations / cycles.loads
    return max(products, loads)


def _packing(packing: Packing, batch: Axes, times: int = 1) -> tuple[float, float]:
    """Bytes that are read where a factor is packed for so many batches, so many times; instructions
    that it takes: a square of vectors that lies across is turned by shuffles, halves, quarters and
    so on of each; elements that are no runs are gathered one by one.
    """
    source, ring = packing.source, packing.ring
    elements = float(times * source.size * extent(batch))
    vectors = elements * ring.parts / ring.lanes
    is_read = source.is_free_contiguous or packing.by_rows or runs_met(packing)
    if is_read or stretch_of(packing):
        instructions = COPIED * vectors
    elif source.is_depth_contiguous:
        instructions = (COPIED + log2(ring.lanes)) * vectors
    else:
        instructions = COPIED * elements
    return elements * source.number_bytes, instructions


def _in_place(plan: ProductPlan) -> float:
    """Bytes of the factors that tiles read where they lie, once: a batch stays near."""
    c = plan.contraction
    sides = [s for s in ("lhs", "rhs") if getattr(plan, s) in (Reading.IN_PLACE, Reading.PACKED)]
    sides += ["rhs"] * plan.packs_in_tiles
    return sum(factor_bytes(c, side) for side in sides)


def _copied(plan: ProductPlan) -> tuple[float, float]:
    """What units pack for themselves: bytes and instructions."""
    c, lhs, rhs = plan.contraction, plan.lhs_packing, plan.rhs_packing
    found = [(0.0, 0.0)]
    if plan.lhs is Reading.IN_TILE:
        found.append(_packing(lhs, c.batch, plan.column_blocks))
    if plan.rhs is Reading.IN_UNIT and not plan.shared_bytes and not plan.packs_in_tiles:
        again = plan.row_blocks if plan.column_blocks > 1 or plan.depth_first else 1
        found.append(_packing(rhs, c.batch, again))
    return sum(of for of, _ in found), sum(instructions for _, instructions in found)


def _shared(plan: ProductPlan) -> tuple[tuple[float, float], int]:
    """What runs of units have packed, in all, and how many runs there are."""
    c = plan.contraction
    if plan.shared_bytes:
        own = tuple(a for a in c.batch if a.rhs)
        return _packing(plan.rhs_packing, own), plan.shared_runs
    if plan.lhs is Reading.IN_UNIT:
        own = tuple(a for a in c.batch if a.lhs)
        return _packing(plan.lhs_packing, own), plan.row_blocks * extent(own)
    return (0.0, 0.0), 1
