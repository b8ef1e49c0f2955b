"""The plan of a product in a line or two, as --emit=loops shows it."""

from __future__ import annotations

from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.amx import TilePlan
from hlo.backend.kernels.contraction.axes import Contraction
from hlo.backend.kernels.contraction.packing_form import Packing
from hlo.backend.kernels.contraction.plan import Plan, Reading

_READINGS = {
    Reading.IN_PLACE: "read in place",
    Reading.IN_UNIT: "packed by each unit",
    Reading.IN_TILE: "packed by groups of tiles",
    Reading.PACKED: "packed before",
}


def plan_lines(plan: Plan) -> tuple[str, ...]:
    """Tiles, panels and blocks; how each factor is read; where sums are cut."""
    lanes = plan.ring.lanes
    tile = f"tiles of {plan.rows.step} rows by {plan.vectors} x {lanes} lanes"
    blocks = f"{plan.row_blocks} x {plan.column_blocks} blocks"
    lines = [
        f"product: {_sizes(plan.contraction)}, {plan.sums.plan}",
        f"{tile}, {plan.rows.count} x {plan.columns.count} of them in {blocks}",
        f"lhs {_READINGS[plan.lhs]}, rhs {_READINGS[plan.rhs]}",
        f"depth in {_blocks(plan)}, chains of {plan.sums.chain} additions at most",
    ]
    if plan.group:
        lines.append(f"groups of {plan.group} tiles meet all panels of a unit")
    return tuple(lines)


def _blocks(plan: Plan) -> str:
    count = plan.depth_blocks
    text = f"{count} block" + "s" * (count != 1) + f" of {plan.depth_block}"
    if (cut := plan.cut) is not None:
        text += f", sums in blocks of {cut.rounds} rounds of loop {cut.level}"
        text += "".join(f" of {' of '.join(map(str, sizes))}" for sizes in cut.sizes if sizes)
    return text


def vector_lines(c: Contraction, sums: Sums) -> tuple[str, ...]:
    """A product of few rows, which reads the other factor once."""
    return (
        f"product: {_sizes(c)}, {sums.plan}",
        f"chains of {sums.chain} additions at most",
    )


def tile_lines(plan: TilePlan) -> tuple[str, ...]:
    """On matrix units."""
    return (
        f"product: {_sizes(plan.c)}, {plan.sums.plan} ({plan.tiles.instruction})",
        f"{plan.row_tiles} x {plan.column_tiles} tiles, {plan.steps} steps of {plan.depths} depths",
        f"{plan.blocks} block" + "s" * (plan.blocks != 1) + f" of {plan.block_steps} steps, "
        f"chains of {plan.sums.chain} additions at most",
    )


def packing_line(packing: Packing, side: str) -> str:
    """A factor packed before its product."""
    panels = packing.panels
    order = "row by row" if packing.by_rows else "depth by depth"
    return f"packed: {side} in {panels.count} panels of {panels.width} lanes, {order}"


def _sizes(c: Contraction) -> str:
    batches = f"{c.batches} of " if c.batches > 1 else ""
    return f"{batches}{c.m} x {c.n} over {c.k}"
