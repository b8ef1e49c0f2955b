"""Columns for the matrix units, packed by a kernel before the product (amx.py)."""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, advanced, split_index, strided, times
from hlo.backend.ir.control import loop, ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.amx import STEP_BYTES, TILE, TILE_BYTES, TilePlan
from hlo.backend.kernels.contraction.axes import Axes, extent
from hlo.backend.kernels.contraction.beginnings import element_0
from hlo.backend.kernels.contraction.packing import pack
from hlo.backend.kernels.contraction.packing_form import Packing, PanelRange, Panels, Source
from hlo.backend.kernels.contraction.ring import element_address, ring_of
from hlo.backend.lanes import masked
from hlo.backend.lanes.masked import below
from hlo.ir import dtype as dt


def tile_packing_kernel(plan: TilePlan) -> Kernel:
    """buffers: rhs, blocks, starts."""
    c = plan.c
    batch: Axes = tuple(a for a in c.batch if a.rhs)
    w = Writer()
    source, target = (w.buffer_address(i) for i in (0, 1))
    source = element_0(w, source, c.rhs, 2)
    parts = plan.column_tiles if plan.is_rhs_along_depth else plan.steps

    def unit(u: Value) -> None:
        b, part = split_index(w, u, (1 << 40, parts))
        moved = strided(w, b, [(a.size, a.rhs) for a in batch])
        base = element_address(w, source, moved, c.rhs.dtype)
        to = advanced(w, target, times(w, b, plan.column_tiles * plan.strip_bytes), "i8")
        if plan.is_rhs_along_depth:
            _pack_columns(w, plan, base, to, part)
        else:
            _pack_step(w, plan, base, to, part)

    ranged(w, BEGIN, END, unit)
    units = extent(batch) * parts
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=2 * plan.rhs_bytes)


def _pack_columns(w: Writer, plan: TilePlan, base: Value, to: Value, tile: Value) -> None:
    """One tile of columns that lie along depth: groups are words, and these are transposed."""
    packing = columns_packing(plan)
    exists = w.compare("icmp ult", tile, w.int(packing.panels.count))
    some = w.cast("zext", exists, "i64")
    target = advanced(w, to, times(w, tile, plan.strip_bytes), "i8")
    block = PanelRange(base, target, tile, w.int(1), w.int(0), w.int(packing.source.depth_size))
    ranged(w, w.int(0), some, lambda _: pack(w, packing, block))


def columns_packing(plan: TilePlan) -> Packing:
    """Columns that lie along depth as panels of words."""
    c, group = plan.c, plan.group
    words = ring_of(dt.S32, plan.ring.target)
    free = tuple((a.size, a.rhs // group) for a in c.columns)
    inner = c.depth[-1].size // group
    depth = (*((a.size, a.rhs // group) for a in c.depth[:-1]), (inner, 1))
    count = -(-c.n // TILE)
    return Packing(words, Source(dt.S32, free, depth), Panels(count, TILE, TILE, count * TILE))


def _pack_step(w: Writer, plan: TilePlan, base: Value, to: Value, step: Value) -> None:
    """One step of depth of all columns, which lie along rows: rows of a group are interleaved."""
    c, group = plan.c, plan.group
    axes = [(a.size, a.rhs) for a in c.columns]
    depth = [(a.size, a.rhs) for a in c.depth]

    def at_tile(tile: Value) -> None:
        column = times(w, tile, TILE)
        exists = below(w, column, c.n, TILE)
        target = advanced(w, to, times(w, tile, plan.strip_bytes), "i8")
        target = advanced(w, target, times(w, step, TILE_BYTES), "i8")
        start = w.address(base, strided(w, column, axes), plan.element)

        def at_group(g: Value, _: list[Value]) -> list[Value]:
            first = add(w, times(w, step, plan.depths), times(w, g, group))
            joined = group_words(w, plan, start, first, depth, exists)
            w.store(joined, advanced(w, target, times(w, g, STEP_BYTES), "i8"), 4)
            return []

        loop(w, w.int(TILE), [], at_group)

    ranged(w, w.int(0), w.int(plan.column_tiles), at_tile)


def group_words(
    w: Writer,
    plan: TilePlan,
    start: Value,
    first: Value,
    depth: list[tuple[int, int]],
    exists: Value,
) -> Value:
    """The depths of one group of 16 neighbours, as 16 words; zero beyond the last depth."""
    rows = []
    for i in range(plan.group):
        k = add(w, first, w.int(i))
        mask = exists
        if plan.c.k % plan.depths:
            inside = w.compare("icmp ult", k, w.int(plan.c.k))
            mask = w.binary("and", exists, w.splat(inside, TILE))
        address = w.address(start, strided(w, k, depth), plan.element)
        rows.append(masked.load(w, f"<{TILE} x {plan.element}>", address, plan.item_bytes, mask))
    return joined_words(w, rows)


def joined_words(w: Writer, rows: list[Value]) -> Value:
    """Lane 0 of every row in one word, lane 1 of every row in the next, ...

    By shifts: shuffles of bytes and halves over whole vectors take LLVM four times as long.
    """
    bits, type = 32 // len(rows), f"<{rows[0].lanes} x i32>"
    words = w.cast("zext", rows[0], type)
    for i, row in enumerate(rows[1:], 1):
        wide = w.cast("zext", row, type)
        words = w.binary("or", words, w.binary("shl", wide, w.int(bits * i, type)))
    return words
