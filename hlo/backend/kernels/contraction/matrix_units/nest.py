"""The loops of products on matrix units, and of what packs for them, as a schedule has them.

AmxProduct --tile_schedule--> LoopSchedule;  TilePlan --tile_packing_schedule--> LoopSchedule
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.matrix_units.amx import TILE, TilePlan
from hlo.backend.kernels.contraction.matrix_units.product import AmxProduct
from hlo.backend.kernels.contraction.problem.axes import extent
from hlo.backend.kernels.contraction.problem.nests import DEPTH, SUMS, batches, cached, stored
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Loop,
    LoopSchedule,
    Reduction,
    Role,
    Storage,
    Tail,
)

SQUARE = 2 * TILE  # Rows and columns of sums at a time.


def tile_schedule(product: AmxProduct) -> LoopSchedule:
    """The loops of product.py's kernel."""
    plan, c = product.plan, product.c
    rows = _block("i", c.m, plan.row_tiles // 2, plan.row_blocks)
    columns = _block("j", c.n, plan.column_tiles // 2, plan.column_blocks)
    dims = (2 * plan.packed_pairs, plan.block_steps, TILE, plan.depths)
    size_bytes = 2 * plan.packed_pairs * plan.row_strip_bytes
    lhs = Cache("lhs", dims, c.lhs.dtype.name, size_bytes, Storage.SCRATCH)
    inside = around((_inner(columns), _inner(rows)), _square(product))
    packed = _rows(plan, rows)
    if plan.packs_groups:
        groups, group = _groups(rows, plan.packed_pairs)
        inside = around((_inner(columns), _inner(group)), _square(product))
        body = around((rows, *groups), (lhs, *_rows(plan, group), *inside))
    elif plan.packs_columns:
        groups, group = _groups(columns, plan.packed_column_pairs)
        rhs = Cache(
            "rhs", (2 * plan.packed_column_pairs, plan.steps, TILE, plan.depths), c.rhs.dtype.name,
            2 * plan.packed_column_pairs * plan.strip_bytes, Storage.SCRATCH,
        )  # fmt: skip
        inside = around((_inner(group), _inner(rows)), _square(product))
        filled = _columns(plan, group)
        body = around((rows,), (lhs, *packed, *around((columns, *groups), (rhs, *filled, *inside))))
    elif plan.blocks == 1:
        body = around((rows,), (lhs, *packed, *around((columns,), inside)))
    else:
        block, whole = plan.block_steps * plan.depths, plan.steps * plan.depths
        blocks = Axis(DEPTH, whole, Role.REDUCED, block)
        body = around((rows, columns), (lhs, Loop(blocks, (*packed, *inside))))
    remarks = (
        f"sums: {plan.sums.plan} ({plan.tiles.instruction}), chains of {plan.sums.chain} additions"
        " at most",
        f"tiles: 2 x 2 of {TILE} x {TILE} sums, {plan.row_tiles} x {plan.column_tiles} in all",
        f"depth: {plan.steps} steps of {plan.depths}, {plan.blocks} block"
        + "s" * (plan.blocks != 1)
        + (f"; {plan.rest} in the last one of {plan.run_steps}" if plan.runs > 1 else ""),
        *(("result: squares of sums turned in registers",) if plan.is_turned else ()),
        f"rhs: packed {'by each unit' if plan.packs_columns else 'before'}; lhs: by each unit,"
        f" {_how_packed(plan)}",
    )
    axes = (batches(c), rows, columns)
    squares = (plan.column_pairs, plan.row_pairs, SQUARE, SQUARE)
    totals = (cached(SUMS, squares, plan.ring),) if plan.blocks > 1 else ()
    stage = cached("tile", (SQUARE, SQUARE), plan.ring)
    body = (stage, *totals, *around((batches(c),), body))
    return schedule_of(axes, body, remarks, scratch_bytes=product.scratch_bytes)


def _groups(block: Axis, pairs: int) -> tuple[tuple[Axis, ...], Axis]:
    """The loop over groups of so many pairs of tiles of a unit's block, unless it is one group, and
    what is packed at a time.
    """
    size = min(pairs * SQUARE, block.extent)
    if size >= min(block.step, block.extent):
        return (), block
    group = Axis(
        block.name, min(block.step, block.extent), Role.SERIAL, size,
        of=block.extent if block.rounds > 1 else 0,
    )  # fmt: skip
    return (group,), group


def _how_packed(plan: TilePlan) -> str:
    """How much of a unit's rows at a time."""
    if plan.packs_groups:
        return "some at a time"
    return "unless the one before has" if plan.blocks == 1 else "a block of depth at a time"


def _block(name: str, size: int, pairs: int, blocks: int) -> Axis:
    """The blocks of rows or columns that units take, of pairs of tiles."""
    step = -(-pairs // blocks) * SQUARE
    return Axis(name, size, Role.PARALLEL, step, parts=blocks if pairs % blocks else 0)


def _inner(block: Axis) -> Axis:
    """Pairs of tiles of a block, one after the other."""
    is_part = block.rounds > 1
    return Axis(
        block.name,
        min(block.step, block.extent),
        Role.SERIAL,
        SQUARE,
        tail=Tail.MASKED if block.extent % SQUARE else Tail.NONE,
        of=block.extent if is_part else 0,
    )


def _columns(plan: TilePlan, columns: Axis) -> Nodes:
    """A group of a unit's columns to their tiles."""
    source, whole = f"p{plan.c.rhs.buffer}", plan.steps * plan.depths
    size = -(-min(columns.step, columns.extent) // SQUARE) * SQUARE
    tiles = Axis("j", size, Role.SERIAL, TILE, of=columns.extent)
    if plan.is_rhs_along_depth:
        quarters = Axis(DEPTH, whole, Role.SERIAL, plan.quarter)
        return around(
            (tiles, quarters), (Fill("rhs", f"squares turned in registers, of {source}"),)
        )
    steps = Axis(DEPTH, whole, Role.SERIAL, plan.depths)
    groups = Axis(DEPTH, plan.depths, Role.SERIAL, plan.group)
    return around((steps, tiles, groups), (Fill("rhs", f"rows side by side of {source}"),))


def _rows(plan: TilePlan, rows: Axis) -> Nodes:
    """A unit's rows to their tiles, over a block of depth."""
    fill = Fill("lhs", f"rows of p{plan.c.lhs.buffer}")
    size, of = min(rows.step, rows.extent), rows.extent
    block, whole = plan.block_steps * plan.depths, plan.steps * plan.depths
    is_part = plan.blocks > 1
    if not plan.is_lhs_along_depth:
        tiles = Axis("i", size, Role.SERIAL, TILE, of=of)
        quarters = Axis(DEPTH, block, Role.SERIAL, plan.quarter, of=whole if is_part else 0)
        turned = Fill("lhs", f"squares turned in registers, of p{plan.c.lhs.buffer}")
        return (Loop(tiles, (Loop(quarters, (turned,)),)),)
    if plan.runs > 1 and not is_part:
        runs = Axis(DEPTH, whole, Role.SERIAL, plan.run_steps * plan.depths)
        tail = Tail.MASKED if plan.rest else Tail.NONE
        steps = Axis(
            DEPTH, plan.run, Role.VECTOR, plan.depths, plan.depths, tail,
            plan.depths if plan.rest else 0, of=whole,
        )  # fmt: skip
        return (Loop(Axis("i", size, Role.SERIAL, of=of), around((runs, steps), (fill,))),)
    has_tail = plan.rest and plan.runs == 1
    tail, tail_step = (Tail.MASKED, plan.depths) if has_tail else (Tail.NONE, 0)
    read = plan.c.k if plan.runs == 1 else whole
    steps = Axis(
        DEPTH, block if is_part else read, Role.VECTOR, plan.depths, plan.depths, tail,
        tail_step, of=read if is_part else 0,
    )  # fmt: skip
    return (Loop(Axis("i", size, Role.SERIAL, of=of), (Loop(steps, (fill,)),)),)


def _square(product: AmxProduct) -> Nodes:
    """2 x 2 tiles of sums over all of depth, and their store by rows."""
    plan, c = product.plan, product.c
    reads = ("lhs", "rhs" if plan.packs_columns else f"panels of p{c.rhs.buffer}")
    whole = plan.steps * plan.depths
    rows = Axis("i", SQUARE, Role.SERIAL, of=c.m)
    store = stored(c, product.epilogue)
    if plan.is_turned:
        rows = Axis("j", SQUARE, Role.SERIAL, of=c.n)
        store = replace(store, index=tuple(sorted(store.index, key="bji".index)))
    last: Nodes = (Loop(rows, (store,)),)
    if plan.is_turned:
        tiles = Axis("k", SQUARE * SQUARE, Role.SERIAL, TILE * TILE)
        last = (Loop(tiles, (Fill(SUMS, "squares turned in registers"),)), *last)
    if plan.blocks == 1:
        steps = Axis(DEPTH, whole, Role.REDUCED, plan.depths)
        return (Reduction(SUMS, "add of products", (steps,), TILE, 4 * TILE, reads=reads), *last)
    block = plan.block_steps * plan.depths
    steps = Axis(DEPTH, block, Role.REDUCED, plan.depths, of=whole if whole % block else 0)
    made = Reduction("tile", "add of products", (steps,), TILE, 4 * TILE, reads=reads)
    lanes = plan.ring.lanes
    joined = Axis("k", SQUARE * SQUARE, Role.VECTOR, lanes, lanes)
    added = Loop(joined, (Fill(SUMS, f"add of {SUMS} and tile"),))
    return made, added, *last


def tile_packing_schedule(plan: TilePlan) -> LoopSchedule:
    """The loops of packing.py's kernel."""
    c, source = plan.c, f"p{plan.c.rhs.buffer}"
    batch = Axis("b", extent(tuple(a for a in c.batch if a.rhs)), Role.PARALLEL)
    width = plan.column_tiles * TILE
    if plan.is_rhs_along_depth:
        axes = (batch, Axis("j", width, Role.PARALLEL, TILE))
        quarters = Axis(DEPTH, plan.steps * plan.depths, Role.SERIAL, plan.quarter)
        body = (Loop(quarters, (Fill("rhs", f"squares turned in registers, of {source}"),)),)
        order = "columns"
    else:
        axes = (batch, Axis(DEPTH, plan.steps * plan.depths, Role.PARALLEL, plan.depths))
        groups = Axis(DEPTH, plan.depths, Role.SERIAL, plan.group)
        columns = Axis("j", width, Role.VECTOR, TILE, TILE)
        body = (Loop(columns, (Loop(groups, (Fill("rhs", f"rows side by side of {source}"),)),)),)
        order = "steps"
    remark = f"panels: {plan.column_tiles} tiles of {TILE} columns, {plan.steps} steps, by {order}"
    return schedule_of(axes, around(axes, body), (remark,))
