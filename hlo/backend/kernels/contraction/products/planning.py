"""Planning of a product: tile shape, blocks, and how each factor reaches the microkernel.

Contraction, Ring --planned--> ProductPlan; everything follows from shapes and the target alone

How depth is cut, and what is decided on the way to it, is the same for machines of all caches
(COMMON): so are the sums. The machine's own caches say into which blocks of rows and columns the
result is parted.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from hlo.analysis.decisions import GRANULE
from hlo.backend.kernels.contraction.microkernels.tile_shape import row_steps, tile_shape
from hlo.backend.kernels.contraction.packing.form import Panels
from hlo.backend.kernels.contraction.problem.axes import (
    Contraction,
    extent,
)
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain
from hlo.backend.kernels.contraction.products.cache_sets import is_spread, rows_that_fit
from hlo.backend.kernels.contraction.products.depth_blocks import (
    DEPTH_BLOCK,
    DEPTH_WHOLE,
    depth_block,
)
from hlo.backend.kernels.contraction.products.lying_rows import (
    MOST_AXES,
    pairs_lie,
    rows_lie,
    rows_stay,
    windows_stay,
)
from hlo.backend.kernels.contraction.products.plan import LEAST_RUN, ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import is_dense
from hlo.ir.dtype import DType
from hlo.machine import COMMON, Machine

# The share of a first reading that it costs to read a factor again, or to pack it, where another
# thread does so in part.
PACKED_AGAIN = 0.1
PIECE_LINES = 3  # A row of a group up to so many lines is a piece: its ends are read in part.
# From so many bytes of lhs that are read again per product on, rows are packed whole.
READ_AGAIN = 0.03
COPIES_BYTES = 4 * COMMON.last_cache.bytes  # The largest rhs that is packed whole for that.
UNIT_FLOPS = 1 << 20  # Less work is not worth a unit
SECOND_FLOPS = 1 << 16  # but for a second thread.
UNITS = 16
LARGE_BYTES = COMMON.last_cache.bytes  # An rhs from this size on is packed however few the rows.
NEAR_BYTES = COMMON.first_cache.bytes  # A factor up to this size is read in place however often.
SHALLOW = 16  # Depths of a product that its result's bytes weigh more than.
LARGE_RESULT_BYTES = COMMON.second_cache.bytes // 4  # Of less, no page is far.
LEAST_SHALLOW_PANELS = 32  # Of columns, for each unit: its parts of rows are pages.
SHALLOW_BYTES = 1 << 14  # A unit's part of such a result, at least.
# Bytes of rhs that a depth-first plan packs at a time; of a panel that tiles pack, which stays in
# the first cache beside rows and sums that pass.
BLOCK_BYTES = COMMON.second_cache.bytes // 4
PANEL_BYTES = COMMON.first_cache.bytes * 3 // 4
LEAST_DEPTHS = 32  # Of a block: sums of fewer would be fetched and put back too often.
# Of a unit: with one, rows that are larger than the second cache are read from further away too
# often (Zen 5, two threads, 32 x 4096 x 4096 0.86, 128 x 1000 x 2048 0.81 of the time with one).
UNIT_PANELS = 4
# Of a block of packed columns. Zen 5, two threads, of the time with one: f64 2048 x 2048 x 2048
# 0.90, f32 1000 x 256 x 1536 0.88, 2048 x 2048 x 2048 0.96, others of those depths 0.98 to 1.06.
FEWEST_PANELS = 2
DEPTH_FIRST_ROWS = 128
DEPTH_FIRST_VECTOR = 64  # Bytes of vectors to which rows that run along depth come depth first.
SMALL_ROWS, SMALL_VECTORS = 4, 2  # Of a tile that is little code, at most.
SHARED = 2  # Threads that draw on the same memory.
LEAST_ROWS = 12  # Rows of a run that fill most of a tile.
WIDE = 128  # For more columns a packed lhs is read often enough.


def planned(c: Contraction, ring: Ring) -> ProductPlan:
    """The plan of a normal contraction without empty sets."""
    even = GRANULE if c.adds and c.bounded_side == "columns" else 0
    plan = of_tiles(c, ring, *tile_shape(c.m, c.n, ring, diagonal=c.is_diagonal, even=even))
    if c.n <= WIDE and not c.is_diagonal and (rows_lie(plan) or pairs_lie(plan)):
        plan = of_tiles(c, ring, *tile_shape(c.m, c.n, ring, most=rows_that_fit(plan.lhs_packing)))
    lhs, rhs = _readings(plan)
    plan = replace(plan, lhs=lhs, rhs=rhs)
    if _is_shallow(plan):
        return _shallow(plan)
    machine = ring.target.machine
    if _is_depth_first(plan) and (first := _with_depth_first(plan)).depth_blocks > 1:
        return replace(first, lhs=Reading.IN_PLACE) if rows_stay(first, machine) else first
    blocked = _with_blocks(plan, COMMON)
    if plan.rhs is Reading.IN_UNIT and (not _columns_first(plan) or c.k > DEPTH_WHOLE):
        grouped = _in_groups(plan, COMMON)
        if not _reads_in_pieces(grouped) or blocked.tiles_per_block < grouped.group:
            return _with_followed_rows(_in_groups(plan, machine), machine)
    depth_block = _with_depth_block(_with_packed(blocked)).depth_block
    return replace(_with_packed(_with_blocks(plan, machine)), depth_block=depth_block)


def packed_ahead(plan: ProductPlan, side: str) -> ProductPlan:
    """The plan with a factor packed before the product, where it would pack it or read it in parts:
    the same sums.
    """
    is_read = getattr(plan, side) is Reading.IN_PLACE
    if is_read and (side == "lhs" or not _reads_in_parts(plan)):
        return plan
    return replace(plan, **{side: Reading.PACKED})


def _reads_in_parts(plan: ProductPlan) -> bool:
    """Whether tiles read parts of the rows of a matrix where they lie, which no first cache holds:
    panels of it are runs of memory, which each thread reads from end to end.

    Matrices of 256 x 256 to 768 x 768 numbers of f32 and one to four rows take 0.62 to 0.85 of the
    time where panels are made once (Zen 5, two threads).
    """
    source = plan.rhs_packing.source
    size = source.size * plan.contraction.rhs.dtype.item_bytes
    is_shared = 2 * source.memory_bytes <= size  # windows: panels would be further away
    return plan.columns.count > 1 and size > NEAR_BYTES and not is_shared


def planned_small(c: Contraction, ring: Ring) -> ProductPlan:
    """A plan that is little code: a tile of few sums, factors read where they lie if that can be.
    It takes several times as long as the other, and serves what hardly ever runs. A tile has as
    many vectors as a line of columns has in memory: rows of pages drive lines out that were half
    read (16 rows by bf16[512,2048]: 0.7 of the time of one vector, Zen 4).
    """
    vectors = COMMON.line_bytes // (ring.lanes * c.rhs.dtype.item_bytes)
    vectors = min(max(vectors, 1), SMALL_VECTORS, -(-c.n // ring.lanes))
    plan = of_tiles(c, ring, min(SMALL_ROWS, c.m), vectors)
    lhs, rhs = _lie_well(plan)
    plan = replace(
        plan,
        lhs=Reading.IN_PLACE if lhs else Reading.IN_UNIT,
        rhs=Reading.IN_PLACE if rhs else Reading.IN_UNIT,
    )
    return _with_blocks(plan, ring.target.machine)


def of_tiles(c: Contraction, ring: Ring, rows: int, vectors: int) -> ProductPlan:
    """The result in tiles of so many rows and vectors, nothing else decided yet."""
    tiles, step = row_steps(c.m, rows, ring.rows)
    width = vectors * ring.lanes
    panels = -(-c.n // width)
    return ProductPlan(
        contraction=c,
        ring=ring,
        rows=Panels(tiles, -(-step // ring.lanes) * ring.lanes, step, c.m),
        columns=Panels(panels, width, width, c.n),
        vectors=vectors,
        depth_block=max(c.k, 1),
    )


def _is_shallow(plan: ProductPlan) -> bool:
    """Whether the result is large, and its bytes weigh more than its products."""
    c = plan.contraction
    size = c.m * c.n * c.out.item_bytes
    return 0 < c.k <= SHALLOW and not c.is_diagonal and size >= LARGE_RESULT_BYTES


def _shallow(plan: ProductPlan) -> ProductPlan:
    """Tiles of rows that meet all columns, so that the result is written from end to end: rows of
    pages far apart take memory twice as long. Columns of so few depths are packed once.
    """
    c = plan.contraction
    tiles = max(1, SHALLOW_BYTES // (plan.rows.step * c.n * c.out.item_bytes))
    packed = Reading.IN_PLACE if plan.rhs is Reading.IN_PLACE else Reading.PACKED
    blocks = -(-plan.rows.count // tiles)
    # Where rows are few, columns in long runs are the units.
    wanted = -(-min(UNITS, c.flops // UNIT_FLOPS) // (blocks * c.batches))
    columns = max(1, min(wanted, plan.columns.count // LEAST_SHALLOW_PANELS))
    return replace(plan, rhs=packed, row_blocks=blocks, column_blocks=columns)


def _is_depth_first(plan: ProductPlan) -> bool:
    """Whether few rows meet a large row-major rhs: panels of it would be read in short pieces.

    Shorter vectors multiply so slowly that to pack weighs less than sums that wait, if rows are no
    trouble either (Zen 3, bf16, 20 to 128 rows that run along depth: 0.81 to 0.98 of the time with
    depth first), unless tiles pack as they multiply (f32 on AVX2, Zen 5, the same rows: 1.02 to
    0.58 of the time without depth first).
    """
    c, source = plan.contraction, plan.rhs_packing.source
    size = source.size * plan.ring.scalar_bytes
    is_wide = plan.ring.lanes * plan.ring.scalar_bytes >= DEPTH_FIRST_VECTOR
    packs = replace(plan, rhs=Reading.IN_UNIT, depth_first=True).packs_in_tiles
    if not (is_wide or packs) and plan.lhs_packing.source.is_depth_contiguous:
        return False
    return (
        not c.is_diagonal
        and size >= LARGE_BYTES
        and source.is_free_contiguous
        and len(c.depth) == 1
        and c.m <= DEPTH_FIRST_ROWS
    )


def _with_depth_first(plan: ProductPlan) -> ProductPlan:
    """Blocks of depths of a unit's columns, whose sums wait."""
    first = replace(plan, rhs=Reading.IN_UNIT, depth_first=True)
    return _in_panels(first) if first.packs_in_tiles else _in_long_rows(first)


def _in_panels(plan: ProductPlan) -> ProductPlan:
    """Blocks of a panel, which its tiles pack, that stay in the first cache: what is copied further
    away takes twice as long as it takes to be read (Zen 5: 120 GB/s out of the last cache, 60 where
    the copy goes to the second one). A few panels of a unit meet rows while these are near.
    """
    k, row_bytes = plan.contraction.k, plan.columns.width * plan.ring.factors.scalar_bytes
    panels = min(UNIT_PANELS, -(-plan.columns.count // (UNITS // 2)))
    depth = max(LEAST_DEPTHS, PANEL_BYTES // row_bytes)
    return replace(
        plan,
        column_blocks=-(-plan.columns.count // panels),
        depth_block=-(-k // -(-k // depth)),
    )


def _in_long_rows(plan: ProductPlan) -> ProductPlan:
    """Blocks of rhs whose rows are long; the sums of all its columns wait in L2."""
    c, ring = plan.contraction, plan.ring
    width = ring.scalar_bytes * ring.parts
    columns = max(BLOCK_BYTES // (8 * max(c.m, 32) * width), plan.columns.width)
    columns = min(columns, -(-c.n // 4))
    blocks = min(plan.columns.count, -(-c.n // columns))
    panels = -(-plan.columns.count // blocks)
    depth = max(LEAST_DEPTHS, BLOCK_BYTES // (panels * plan.columns.width * width))
    depth = min(depth, c.k)
    return replace(plan, column_blocks=blocks, depth_block=-(-c.k // -(-c.k // depth)))


def _in_groups(plan: ProductPlan, machine: Machine) -> ProductPlan:
    """Blocks of rhs that fit the second-level cache; tiles of lhs come to them, a few at a time.

    Sums of several depth blocks wait in scratch. Units of one column block follow each other, so a
    thread packs a block that is as deep as the product once.
    """
    block = _depth_block(plan)
    first = block < plan.contraction.k
    whole = plan.lhs is Reading.IN_PLACE and not first
    lhs = Reading.IN_PLACE if whole or rows_stay(plan, machine) else Reading.IN_TILE
    plan = replace(plan, lhs=lhs, depth_block=block, depth_first=first, group=1)
    rows, columns = _unit_blocks(plan, machine)
    tile_bytes = plan.lhs_packing.panel_bytes
    group_bytes = machine.second_cache.bytes // 8  # What the tiles that are packed at a time take.
    group = max(1, min(group_bytes // tile_bytes, -(-plan.rows.count // rows)))
    return replace(plan, row_blocks=rows, column_blocks=columns, group=group)


def _with_followed_rows(plan: ProductPlan, machine: Machine) -> ProductPlan:
    """Groups of so few tiles that a core foresees the lines of the result that they write: a group
    meets a panel of columns after the other, so each row goes on where it ended a panel before.
    Rows on more pages than a core follows are forgotten by then, and every line is waited for.
    """
    c = plan.contraction
    if plan.depth_first or not c.rows:  # Sums wait in scratch; a row has nothing to wait for.
        return plan
    page_bytes, row_bytes = machine.cycles.page_bytes, abs(c.rows[-1].out) * c.out.item_bytes
    tiles = machine.cycles.streams * max(1, page_bytes // row_bytes) // plan.rows.step
    return replace(plan, group=max(1, min(plan.group, tiles)))


def _reads_in_pieces(plan: ProductPlan) -> bool:
    """Whether a group is a few lines of each row of memory, and read again by each column block:
    what is left over of lines would take longer than to pack whole rows once, and rhs beside them.
    """
    c, lhs, rhs = plan.contraction, plan.lhs_packing, plan.rhs_packing
    if plan.lhs is not Reading.IN_TILE or not lhs.source.is_free_contiguous:
        return False
    number = c.lhs.dtype.bits / 8
    run = plan.group * plan.rows.step * number
    line_bytes = COMMON.line_bytes
    again = plan.column_blocks * (1 + line_bytes / run) - 1
    copies = rhs.size_bytes * extent(tuple(a for a in c.batch if a.rhs))
    few = run <= PIECE_LINES * line_bytes and again * number > READ_AGAIN * c.n
    return few and copies <= COPIES_BYTES


def _unit_blocks(plan: ProductPlan, machine: Machine) -> tuple[int, int]:
    """Blocks of rows and of columns, so that little is packed again.

    A block of packed columns takes a quarter of the second-level cache: the other factor streams
    through the rest, and another thread of the core may want half. Of those that rows meet where
    they lie, more than half of that is not faster. It is half where rows come from memory for each
    block and take longer than products do (f64 of 2048^3 on Zen 5 in 0.87 of the time), and where
    two panels need that: what is packed, and streams by for a single one, comes as slowly as it is
    multiplied. What is read again weighs less than a thread that waits for the other: Zen 4, 79
    random products of 192 to 1000 rows, columns and depths 0.95 of the time (geometric mean).
    """
    cache_bytes = machine.second_cache.bytes
    c, rows, panels = plan.contraction, plan.rows, plan.columns
    in_place = plan.lhs is Reading.IN_PLACE
    units = UNITS // 2 if plan.depth_first else UNITS
    wanted = -(-max(1 + (c.flops >= SECOND_FLOPS), min(units, c.flops // UNIT_FLOPS)) // c.batches)
    panel_bytes = plan.rhs_packing.panel_bytes
    fitting = cache_bytes // (8 if in_place else 4) // panel_bytes
    half = cache_bytes // 2 // panel_bytes
    if _waits_for_rows(plan, -(-panels.count // max(1, fitting)), machine):
        fitting = half
    elif not in_place:
        fitting = max(fitting, min(FEWEST_PANELS, half))
    fewest = -(-panels.count // max(1, fitting))
    sums = rows.count * rows.step * panels.count * plan.rhs_packing.k_step * plan.ring.scalar_bytes
    number_us = c.k * plan.ring.scalar_bytes / machine.rates.cached_bytes
    products_us = c.flops / c.batches * plan.ring.scalar_bytes / 4 / machine.rates.contracted_ops
    best: tuple[float, int, int] | None = None
    for columns in range(fewest, max(fewest, min(panels.count, wanted)) + 1):
        blocks = -(-wanted // columns)
        if plan.depth_first:
            blocks = max(blocks, sums // columns // (cache_bytes // 4))  # they wait in there
        blocks = min(rows.count, _even(blocks, c.batches * columns))
        again = blocks if plan.depth_first else 1 + (blocks - 1) * PACKED_AGAIN
        numbers = columns * c.m * (PACKED_AGAIN if in_place else 1) + again * c.n
        cost = numbers * number_us + _longer(panels.count, columns) * products_us
        if best is None or cost < best[0]:
            best = (cost, blocks, columns)
    assert best is not None, "the range is not empty"
    return best[1], best[2]


def _longer(panels: int, blocks: int) -> float:
    """How many times as long as half of the panels the longer half of the blocks takes, of which
    each has its share; a block in the middle is parted by rows.
    """
    middles = (blocks // 2, (blocks + 1) // 2)
    halves = sum(middle * panels // blocks for middle in middles)  # two of them
    return max(halves, 2 * panels - halves) / panels


def _waits_for_rows(plan: ProductPlan, blocks: int, machine: Machine) -> bool:
    """Whether so many blocks of columns, which read all rows each, wait for memory: windows that
    are read where they lie, and not asked for ahead, do. Other rows do where they come from memory
    for longer than products take: SHARED threads get what one does.
    """
    c, rates = plan.contraction, machine.rates
    size = _bytes_of_rows(c)
    if plan.depth_first or size <= machine.last_cache.bytes:
        return False
    if plan.lhs is not Reading.IN_TILE:
        return plan.lhs is Reading.IN_PLACE and not is_dense(plan.lhs_packing)
    products_us = c.flops * plan.ring.scalar_bytes / 4 / rates.contracted_ops
    times = blocks * extent(tuple(a for a in c.batch if a.rhs))
    return times * size / rates.memory_bytes > products_us / SHARED


def _bytes_of_rows(c: Contraction) -> int:
    """What lies in memory of the rows that meet a block of columns before others meet the next one:
    batches that share their columns are rows, too, and windows share what they overlap in.
    """
    axes = (*(a for a in c.batch if not a.rhs), *c.rows, *c.depth)
    return (1 + sum((a.size - 1) * abs(a.lhs) for a in axes)) * c.lhs.dtype.item_bytes


def _even(blocks: int, others: int) -> int:
    """A few blocks, or one more so that units are not an odd number: threads are even."""
    units = blocks * others
    return blocks + 1 if units % 2 and blocks > 1 and units < 2 * UNITS else blocks


def _depth_block(plan: ProductPlan) -> int:
    row = plan.columns.count * plan.rhs_packing.k_step * plan.ring.scalar_bytes
    is_read = plan.lhs is Reading.IN_PLACE and not rows_lie(plan)
    return depth_block(plan.lhs_packing, row, is_read=is_read)


def _readings(plan: ProductPlan) -> tuple[Reading, Reading]:
    """In place where each element is read seldom or lies in L1, else packed."""
    c = plan.contraction
    lhs, rhs = plan.lhs_packing, plan.rhs_packing
    lhs_bytes, rhs_bytes = (p.source.size * 4 for p in (lhs, rhs))
    lhs_lies_well, rhs_lies_well = _lie_well(plan)
    exact_lhs = is_plain(c.lhs.dtype, plan.ring.factors)
    exact_rhs = is_plain(c.rhs.dtype, plan.ring.factors)
    tiles = plan.rows.count
    if c.k == 0 or c.is_diagonal:
        return Reading.IN_PLACE, Reading.IN_PLACE
    # Two rows that lie along depth take a load each, and are joined in a register.
    is_apart = plan.ring.rows > 1 and not lhs.source.is_free_contiguous
    # A number of another type is converted alone for each panel, and with its neighbours where it
    # is packed: 64 x 512 by 512 x 100 of f16 on Zen 4 in 0.5 of the time, of 8 bits by f32 on
    # Emerald Rapids in 0.28, by s32 in 0.75.
    is_widened = not exact_lhs and not c.lhs.dtype.is_complex
    keep_lhs = lhs_lies_well and (
        (c.n <= (plan.columns.width if is_apart else WIDE) and not is_widened)
        or (exact_lhs and not is_apart and (lhs_bytes <= NEAR_BYTES or is_spread(lhs)))
        or c.k < LEAST_RUN
    )
    # Windows share memory: what they read lies nearer than panels of it would.
    is_shared = 2 * rhs.source.memory_bytes <= rhs.source.size * c.rhs.dtype.item_bytes
    keep_rhs = rhs_lies_well and (
        tiles <= 2 or is_shared or (rhs_bytes <= NEAR_BYTES and (exact_rhs or tiles <= 4))
    )
    return (
        Reading.IN_PLACE if keep_lhs or windows_stay(plan) else Reading.IN_UNIT,
        Reading.IN_PLACE if keep_rhs else Reading.IN_UNIT,
    )


def _lie_well(plan: ProductPlan) -> tuple[bool, bool]:
    """Whether tiles could read each factor in place."""
    c, lhs, rhs = plan.contraction, plan.lhs_packing.source, plan.rhs_packing.source
    few_axes = len(c.depth) <= MOST_AXES
    return (
        len(lhs.free) <= 1 and few_axes and is_cheap(c.lhs.dtype),
        rhs.is_free_contiguous and few_axes and is_cheap(c.rhs.dtype) and not rhs.is_made,
    )


def is_cheap(dtype: DType) -> bool:
    """Whether an element becomes a ring number in a few instructions."""
    return not dtype.is_float or dtype.bits >= 16


def _with_blocks(plan: ProductPlan, machine: Machine) -> ProductPlan:
    """Units enough for several threads, a packed lhs (or rhs) block within half of the second-level
    cache.

    Units of one row block follow each other, so a thread packs each lhs block once.
    """
    c = plan.contraction
    wanted = max(1 + (c.flops >= SECOND_FLOPS), min(UNITS, c.flops // UNIT_FLOPS))
    wanted = -(-wanted // c.batches)
    block_bytes = machine.second_cache.bytes // 2
    if _columns_first(plan):
        panel_bytes = plan.rhs_packing.panel_bytes
        # What a unit packs for itself alone is written to the same memory by the next.
        near = machine.first_cache.bytes if plan.rhs is Reading.IN_UNIT else block_bytes
        fitting = -(-plan.columns.count * panel_bytes // near)
        columns = min(plan.columns.count, max(wanted, fitting))
        return replace(plan, column_blocks=columns)
    tile_bytes = plan.lhs_packing.panel_bytes
    rows = max(1, min(plan.rows.count, -(-plan.rows.count * tile_bytes // block_bytes)))
    columns = -(-wanted // rows)
    if rows == 1 and plan.rhs is Reading.IN_UNIT:  # then each unit packs its own columns
        panel_bytes = plan.rhs_packing.panel_bytes
        columns = max(columns, plan.columns.count * panel_bytes // (block_bytes // 2))
    columns = min(plan.columns.count, columns)
    if columns * rows < wanted:
        rows = min(plan.rows.count, -(-wanted // columns))
    return replace(plan, row_blocks=rows, column_blocks=columns)


def _columns_first(plan: ProductPlan) -> bool:
    """Whether a packed rhs would be far larger than what lies in memory (windows overlap)."""
    c = plan.contraction
    if plan.rhs is Reading.IN_PLACE:
        return plan.rows.count < plan.columns.count
    overlap = len(plan.rhs_packing.source.depth) > 1 or len(plan.rhs_packing.source.free) > 1
    return overlap and c.n > c.m


def _with_packed(plan: ProductPlan) -> ProductPlan:
    """A factor that many units would pack, each for little use, gets a kernel of its own."""
    c = plan.contraction
    lhs_uses = extent(tuple(a for a in c.batch if a.lhs == 0))
    rhs_uses = plan.row_blocks * extent(tuple(a for a in c.batch if a.rhs == 0))
    # A thread that takes its units some at a time packs a factor each time that it comes back.
    is_long = plan.row_blocks > 1 or c.differs("lhs") or c.flops >= UNITS * UNIT_FLOPS
    if plan.lhs is Reading.IN_UNIT and lhs_uses > 1 and is_long:
        plan = replace(plan, lhs=Reading.PACKED)
    if plan.rhs is Reading.IN_UNIT and rhs_uses > 1:
        plan = replace(plan, rhs=Reading.PACKED)
    return plan


def _with_depth_block(plan: ProductPlan) -> ProductPlan:
    k = plan.contraction.k
    blocks = -(-k // DEPTH_BLOCK)
    if blocks <= 1 or len(plan.nest) > 1 or plan.tiles_per_block <= 2:
        return plan
    return replace(plan, depth_block=math.ceil(k / blocks))


def limited_plan(plan: ProductPlan) -> ProductPlan | None:
    """The plan without the depths at which the text says that factors are zero, where that pays."""
    if not plan.contraction.zeros.has_depths:
        return None
    from hlo.backend.kernels.contraction.products.zero_check import limited

    return limited(plan)
