"""Columns for the matrix units, packed by a kernel before the product or by its units (amx.py)."""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, advanced, split_index, strided, times
from hlo.backend.ir.control import loop, ranged, set_flag
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.matrix_units.amx import STEP_BYTES, TILE, TILE_BYTES, TilePlan
from hlo.backend.kernels.contraction.matrix_units.work import tile_packing_work
from hlo.backend.kernels.contraction.problem.axes import Axes, extent
from hlo.backend.kernels.contraction.problem.offsets import address_0, offsets_of
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.transposed import turned_parts
from hlo.ir.dtype import DType

Range = tuple[Value, Value]  # The first one, and the one behind the last.


def tile_packing_kernel(plan: TilePlan, *, checks: bool = False) -> Kernel:
    """buffers: rhs, blocks, starts, the flag set for subnormal numbers where it `checks`."""
    c = plan.c
    batch: Axes = tuple(a for a in c.batch if a.rhs)
    w = Writer()
    source, target = (w.buffer_address(i) for i in (0, 1))
    source = address_0(w, source, c.rhs, 2)
    flag = w.buffer_address(2 + offsets_of(c.rhs)) if checks else None
    parts = plan.column_tiles if plan.is_rhs_along_depth else plan.steps

    def unit(u: Value) -> None:
        b, part = split_index(w, u, (1 << 40, parts))
        moved = strided(w, b, [(a.size, a.rhs) for a in batch])
        base = element_address(w, source, moved, c.rhs.dtype)
        to = advanced(w, target, times(w, b, plan.column_tiles * plan.strip_bytes), "i8")
        if plan.is_rhs_along_depth:
            to = advanced(w, to, times(w, part, plan.strip_bytes), "i8")
            _pack_columns(w, plan, base, to, part, flag)
        else:
            tiles = w.int(0), w.int(plan.column_tiles)
            _pack_step(w, plan, base, to, tiles, part, flag)

    ranged(w, BEGIN, END, unit)
    units = extent(batch) * parts
    return Kernel(
        w.kernel_function(),
        units,
        *w.beside,
        bytes_moved=2 * plan.rhs_bytes,
        work=tile_packing_work(plan),
    )


def in_groups(w: Writer, pairs: Range, most: int, size: int, body: Callable[[Range], None]) -> None:
    """body of so many pairs at a time; most: how many there are at most."""
    if size >= most:
        body(pairs)
        return
    begin, end = pairs
    groups = w.binary("udiv", w.binary("sub", add(w, end, w.int(size - 1)), begin), w.int(size))

    def at_group(group: Value) -> None:
        first = add(w, begin, times(w, group, size))
        body((first, w.intrinsic("llvm.umin", "i64", add(w, first, w.int(size)), end)))

    ranged(w, w.int(0), groups, at_group)


def pack_group(
    w: Writer, plan: TilePlan, base: Value, to: Value, tiles: tuple[Value, Value],
    flag: Value | None,
) -> None:  # fmt: skip
    """Some tiles of columns, one after the other from `to` on."""
    if not plan.is_rhs_along_depth:
        steps = w.int(0), w.int(plan.steps)
        ranged(w, *steps, lambda step: _pack_step(w, plan, base, to, tiles, step, flag))
        return

    def at_tile(tile: Value) -> None:
        moved = times(w, w.binary("sub", tile, tiles[0]), plan.strip_bytes)
        _pack_columns(w, plan, base, advanced(w, to, moved, "i8"), tile, flag)

    ranged(w, *tiles, at_tile)


def _pack_columns(
    w: Writer, plan: TilePlan, base: Value, target: Value, tile: Value, flag: Value | None
) -> None:
    """One tile of columns that lie along depth: a quarter of a step of each, whose words are
    transposed by squares of 4 x 4 in 128 bits. Columns beyond the last one repeat it.
    """
    c = plan.c
    column, last = times(w, tile, TILE), w.int(c.n - 1)
    numbers = [w.intrinsic("llvm.umin", "i64", add(w, column, w.int(r)), last) for r in range(TILE)]
    axes = [(a.size, a.rhs) for a in c.columns]
    columns = [element_address(w, base, strided(w, n, axes), c.rhs.dtype) for n in numbers]

    def at_quarter(i: Value, _: list[Value]) -> list[Value]:
        k = times(w, i, plan.quarter)
        mask = below(w, plan.in_run(w, k), plan.run, plan.quarter) if plan.rest else None
        offset = plan.moved(w, "rhs", k)
        raw = [
            plan.loaded(w, "rhs", element_address(w, at, offset, c.rhs.dtype), plan.quarter, mask)
            for at in columns
        ]
        if flag is not None:
            set_flag(w, are_subnormal(w, raw), flag)
        parts = [plan.elements(w, "rhs", w.end_to_end(raw[r::4])) for r in range(4)]
        words = [w.cast("bitcast", part, vector_of("i32", TILE)) for part in parts]
        at = advanced(w, target, times(w, i, 4 * STEP_BYTES), "i8")
        for g, word in enumerate(turned_parts(w, words)):
            w.store(word, advanced(w, at, g * STEP_BYTES, "i8"), 4)
        return []

    loop(w, w.int(4 * plan.steps), [], at_quarter)


def _pack_step(
    w: Writer, plan: TilePlan, base: Value, to: Value, tiles: tuple[Value, Value], step: Value,
    flag: Value | None,
) -> None:  # fmt: skip
    """One step of depth of some tiles of columns, which lie along rows: rows of a group are
    interleaved. to: where the first tile begins.
    """
    c, group = plan.c, plan.group
    axes = [(a.size, a.rhs) for a in c.columns]

    def at_tile(tile: Value) -> None:
        column = times(w, tile, TILE)
        exists = below(w, column, c.n, TILE)
        moved = times(w, w.binary("sub", tile, tiles[0]), plan.strip_bytes)
        target = advanced(w, to, moved, "i8")
        target = advanced(w, target, times(w, step, TILE_BYTES), "i8")
        start = element_address(w, base, strided(w, column, axes), c.rhs.dtype)

        def at_group(g: Value, _: list[Value]) -> list[Value]:
            first = add(w, times(w, step, plan.depths), times(w, g, group))
            joined = group_words(w, plan, "rhs", start, first, exists, flag)
            w.store(joined, advanced(w, target, times(w, g, STEP_BYTES), "i8"), 4)
            return []

        loop(w, w.int(TILE), [], at_group)

    ranged(w, *tiles, at_tile)


def group_words(
    w: Writer,
    plan: TilePlan,
    side: str,
    start: Value,
    first: Value,
    exists: Value,
    flag: Value | None = None,
) -> Value:
    """The depths of one group of 16 neighbours, as 16 words; zero beyond a run's last depth. flag:
    the flag that is set for subnormal numbers among them.
    """
    dtype: DType = getattr(plan.c, side).dtype
    raw = []
    for i in range(plan.group):
        k = add(w, first, w.int(i))
        mask = exists
        if plan.rest:
            inside = w.compare("icmp ult", plan.in_run(w, k), w.int(plan.run))
            mask = w.binary("and", exists, w.splat(inside, TILE))
        address = element_address(w, start, plan.moved(w, side, k), dtype)
        raw.append(plan.loaded(w, side, address, TILE, mask))
    if flag is not None:
        set_flag(w, are_subnormal(w, raw), flag)
    return joined_words(w, [plan.elements(w, side, row) for row in raw])


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
