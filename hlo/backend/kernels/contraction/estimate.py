"""Estimates: the work of a contraction's kernels, from their plans.

ProductPlan | Dots | Axpys | bytes that a copy moves --> Work, which speeds turn into time (work.py)
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.kernel import Work
from hlo.backend.kernels.contraction.axes import Axes, Contraction, Operand, extent
from hlo.backend.kernels.contraction.limits import share_of
from hlo.backend.kernels.contraction.packing_form import Packing
from hlo.backend.kernels.contraction.product_plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.ring import Ring
from hlo.backend.kernels.contraction.rows_ahead import rows_ahead
from hlo.backend.kernels.contraction.vector_plan import ACROSS, DEPTHS, at_once, is_dots, row_groups
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


def instructions(ring: Ring) -> float:
    """Of a product of vectors and its sum: one that does both, or two."""
    if ring.dot is not None:
        return 1.0 if ring.dot.adds else 2.0
    if ring.rounds:
        return 1.0 if ring.fused else 2.0
    return 1.5  # A product and a sum of integers, which begin on different ports.


def reach(c: Contraction) -> int:
    """Bytes of the factors and the result."""
    return sum((_bytes(c, "lhs"), _bytes(c, "rhs"), c.batches * c.m * c.n * c.out.item_bytes))


def _bytes(c: Contraction, side: str) -> int:
    """Bytes of a factor's elements, each counted once."""
    axes = (*c.batch, *c.rows, *c.columns, *c.depth)
    sizes = [a.size for a in axes if getattr(a, side)]
    factor: Operand = getattr(c, side)
    return round(prod(sizes) * factor.read_bytes)


def _moved(packing: Packing, batch: Axes) -> float:
    """Bytes that are read and written where a factor is packed for so many batches."""
    source = packing.source
    elements = source.free_size * source.depth_size * extent(batch)
    moved = elements * (source.dtype.item_bytes + packing.ring.scalar_bytes * packing.ring.parts)
    is_in_runs = source.is_free_contiguous or source.is_depth_contiguous
    return moved if is_in_runs else GATHERED * moved


def _in_place(plan: ProductPlan) -> float:
    """Bytes of the factors that tiles read where they lie, once: a batch stays near."""
    c = plan.contraction
    sides = [s for s in ("lhs", "rhs") if getattr(plan, s) in (Reading.IN_PLACE, Reading.PACKED)]
    return sum(_bytes(c, side) for side in sides)


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


def vector_work(c: Contraction, ring: Ring) -> Work:
    """Of gemv.py's kernels: dots load rows and columns for their products, a group of rows after
    the other; axpys the columns, and sums that they store again, each with a product of every
    depth.
    """
    is_along = is_dots(c, ring)
    groups = len(row_groups(c.m)) if is_along or ring.parts > 1 else 1
    rows, parts = -(-c.m // groups), ring.parts
    products = rows * parts**2 * instructions(ring)
    if is_along:
        columns = at_once(c, ring)
        vectors = c.n * -(-c.k // ring.lanes)
        loads = parts * (rows + columns) / columns
        sums = float(c.batches * c.m * c.n * parts)
    else:
        vectors, loads, sums = c.k * -(-c.n // ring.lanes), 0.0, 0.0
        products += parts * (1 + 2 * rows / DEPTHS)
    return Work(
        instructions=c.batches * vectors * groups * max(products, loads),
        sums=ACROSS * sums,
        moved=c.batches * c.k * c.n * c.rhs.read_bytes * groups,
        reach=reach(c),
        is_stream=True,
    )


def word_stream_work(c: Contraction, ring: Ring, rows: int) -> Work:
    """Of word_stream.py's kernel, whose contraction counts depths of elements. Beside products a
    vector of words is a shuffle or two, and of floats three operations that look at it, of which
    half find no room between products; a sum is read and stored once for DEPTHS rows, on ports of
    their own.
    """
    assert ring.dot is not None, "of words"
    group = ring.dot.group
    words = c.batches * -(-c.k // group) * -(-c.n // ring.lanes)
    made = group / 2 + 1.5 * ring.rounds
    return Work(
        instructions=words * (rows * instructions(ring) + made + rows / DEPTHS),
        moved=c.batches * c.k * c.n * c.rhs.dtype.item_bytes,
        reach=reach(c),
        is_stream=True,
    )


def copy_work(moved: int, reach: int) -> Work:
    """Of a kernel that looks at a factor or makes it ready: bytes that it reads and writes, of all
    that the product works on.
    """
    return Work(copied=moved, reach=reach)
