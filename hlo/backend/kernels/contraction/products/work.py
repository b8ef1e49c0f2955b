"""The work of a product, from its plan.

ProductPlan --product_work--> Work, which speeds turn into time (backend/ir/work.py)
"""

from __future__ import annotations

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.packing.work import read_and_made
from hlo.backend.kernels.contraction.problem.axes import extent
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.work import factor_bytes, instructions, reach
from hlo.backend.kernels.contraction.products.band_limits import share_of
from hlo.backend.kernels.contraction.products.form import ProductForm
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import row_prefetch_bytes
from hlo.machine import COMMON

# What a vector of finished sums takes that does not go to the result as it is: it is stored and
# loaded again, as half a vector or masked.
FINISHED = 4
# What a tile takes beside its products: its loops begin, its first products wait for their factors
# and its sums for the last ones. Zen 4, f32: 14 rows by 2 vectors take 70 more than 28 for each
# depth, 16 by 1 as many as 16 for each.
TILE = 32


def product_work(plan: ProductPlan, form: ProductForm, *, checks: bool = False) -> Work:
    """Of product.py's kernel. checks: whether words are looked at while they are made."""
    c, ring = plan.contraction, plan.ring
    tiles = c.batches * plan.rows.count * plan.columns.count
    stored = plan.rows.step * plan.vectors * ring.parts
    finished = plan.depth_blocks + FINISHED * (not form.is_direct)
    (shared, shared_packed), runs = _shared(plan, checks=checks)
    copied, fetched, packed = _copied(plan, form, checks=checks)
    written = float(c.batches * c.m * c.n * c.out.item_bytes)
    asked = _asked_columns(plan, form)
    return Work(
        instructions=share_of(plan) * tiles * c.k * _of_a_depth(plan.rows.step, plan.vectors, ring),
        chain=share_of(plan) * tiles * c.k,
        sums=tiles * (finished * stored + TILE),
        copied=copied,
        fetched=fetched + asked,
        packed=packed,
        shared=0.0 if asked else shared,
        shared_packed=shared_packed,
        runs=runs,
        moved=0.0 if form.prefetched_factors else _in_place(plan),
        streamed=_fetched(plan) + asked + written * (1 if form.streams else 2),
        reach=reach(c),
    )


def _of_a_depth(rows: int, vectors: int, ring: Ring) -> float:
    """Multiply-adds that take as long as one depth of a tile: its own, or what it loads."""
    cycles, parts = COMMON.cycles, ring.parts
    products = rows * vectors * parts**2 * instructions(ring)
    read = rows // ring.rows + vectors * ring.rows
    loads = read * parts * cycles.operations / cycles.loads
    return max(products, loads)


def _in_place(plan: ProductPlan) -> float:
    """Bytes of the factors that tiles read where they lie, once: a batch stays near. What they ask
    for ahead is counted there.
    """
    c = plan.contraction
    sides = [s for s in ("lhs", "rhs") if getattr(plan, s) in (Reading.IN_PLACE, Reading.PACKED)]
    if "lhs" in sides and row_prefetch_bytes(plan):
        sides.remove("lhs")
    return sum(factor_bytes(c, side) for side in sides)


def _fetched(plan: ProductPlan) -> float:
    """Bytes that tiles ask for ahead: of rows, again for each block of columns; of columns that the
    first tile packs.
    """
    c, found = plan.contraction, 0
    if row_prefetch_bytes(plan):
        found += plan.column_blocks * factor_bytes(c, "lhs")
    if plan.packs_in_tiles:
        found += factor_bytes(c, "rhs")
    return float(found)


def _asked_columns(plan: ProductPlan, form: ProductForm) -> float:
    """Bytes that units pack of columns which the ones before have asked for."""
    if form.column_lines is None:
        return 0.0
    again = 1 if plan.shared_bytes else plan.row_blocks
    return float(again * factor_bytes(plan.contraction, "rhs"))


def _copied(plan: ProductPlan, form: ProductForm, *, checks: bool) -> tuple[float, float, float]:
    """What units pack for themselves: bytes, those of rows asked for before, instructions."""
    c, lhs, rhs = plan.contraction, plan.lhs_packing, plan.rhs_packing
    copied = fetched = packed = 0.0
    if plan.lhs is Reading.IN_TILE:
        read, packed = read_and_made(lhs, c.batch, plan.group, plan.column_blocks)
        copied, fetched = (0.0, read) if row_prefetch_bytes(plan) else (read, 0.0)
    if plan.rhs is Reading.IN_UNIT and not plan.shared_bytes and not plan.packs_in_tiles:
        again = plan.row_blocks if plan.column_blocks > 1 or plan.depth_first else 1
        read, made = read_and_made(rhs, c.batch, plan.panels_per_block, again, checks=checks)
        copied += read * (form.column_lines is None)
        packed += made
    return copied, fetched, packed


def _shared(plan: ProductPlan, *, checks: bool) -> tuple[tuple[float, float], int]:
    """What runs of units have packed, in all, and how many runs there are."""
    c = plan.contraction
    if plan.shared_bytes:
        own = tuple(a for a in c.batch if a.rhs)
        packed = read_and_made(plan.rhs_packing, own, plan.panels_per_block, checks=checks)
        return packed, plan.shared_runs
    if plan.lhs is Reading.IN_UNIT:
        own = tuple(a for a in c.batch if a.lhs)
        packed = read_and_made(plan.lhs_packing, own, plan.tiles_per_block)
        return packed, plan.row_blocks * extent(own)
    return (0.0, 0.0), 1
