"""Lhs prepacking: rows that a product's units would copy again and again, packed once before it.

    ProductPlan --with_prepacked_lhs--> the plan whose lhs has a kernel of its own, where that pays

A group of rows is copied just before it meets its panels, out of the last cache into rows that lie
in different sets of the first. Each block of columns copies all of them: a factor of few panels a
block (deep products, wide types) is read and written for as little as 30 multiply-adds an element.
Packed whole, it is copied once, by streams to memory, and tiles read it where it lies then. Zen 4,
two threads, of the time without: f64 of 1024^3 0.95, of 2048^3 0.88; f32 0.99 and 0.95.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.problem.axes import extent, reach
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading

MOST_BESIDE = 1.2  # Rows of a copy have a line and more between them.


def with_prepacked_lhs(plan: ProductPlan) -> ProductPlan:
    """The same sums."""
    if plan.lhs is Reading.IN_TILE and _is_small(plan) and _pays(plan):
        return replace(plan, lhs=Reading.PACKED)
    return plan


def _copy_bytes(plan: ProductPlan) -> int:
    batches = extent(tuple(a for a in plan.contraction.batch if a.lhs))
    return batches * plan.lhs_packing.size_bytes


def _is_small(plan: ProductPlan) -> bool:
    """Whether the copy takes no more memory than rhs and the result do, and little more than its
    numbers: overlapping windows would be there several times, panels of few rows are mostly lanes
    beyond them.
    """
    c, size = plan.contraction, _copy_bytes(plan)
    numbers = reach(c, "lhs") * plan.lhs_packing.ring.scalar_bytes * plan.ring.parts
    results = c.batches * c.m * c.n * c.out.item_bytes
    others = results + reach(c, "rhs") * c.rhs.dtype.item_bytes
    return size <= MOST_BESIDE * others and size <= MOST_BESIDE * numbers


def _pays(plan: ProductPlan) -> bool:
    """What is copied again, near, takes longer than to copy all of it from memory and back."""
    c, rates = plan.contraction, plan.ring.target.machine.rates
    moved = reach(c, "lhs") * c.lhs.dtype.item_bytes + _copy_bytes(plan)
    uses = plan.column_blocks * extent(tuple(a for a in c.batch if not a.lhs))
    return (uses - 1) * moved / rates.cached_bytes > moved / rates.memory_bytes + rates.share_us
