"""Product: the blocked loop nest around the microkernel, and the kernels that pack beforehand.

    for unit (batch, row block, column block):      in parallel
        pack what the plan packs in a unit
        for panel of columns: for depth block: for tile of rows: microkernel

With one depth block a tile goes straight to the result; with several it waits in scratch, in L1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hlo.backend.kernels.contraction_axes import Axes, Contraction, extent
from hlo.backend.kernels.contraction_loops import (
    add,
    advanced,
    buffer_address,
    kernel_text,
    loop,
    ranged,
    remembering,
    split_index,
    strided,
    times,
    when,
)
from hlo.backend.kernels.contraction_microkernel import (
    DepthAxis,
    Factor,
    Microkernel,
    Tile,
    product,
    zero_tile,
)
from hlo.backend.kernels.contraction_packing import Block, Packing, below, pack
from hlo.backend.kernels.contraction_plan import Plan, Reading
from hlo.backend.kernels.contraction_result import Epilogue, Result
from hlo.backend.kernels.contraction_ring import Parts, element_address
from hlo.backend.kernels.kernel import Kernel
from hlo.backend.writer import Value, Writer

CHUNK = 64  # depths that one unit of a packing kernel copies


# -- packing kernels ---------------------------------------------------------------------------


def packing_kernel(packing: Packing, batch: Axes, offset: int, side: str) -> Kernel:
    """buffers: source, panels. batch: the axes on which the factor depends, panels in their order."""
    w = Writer()
    ring, source, panels = packing.ring, packing.source, packing.panels
    group = -(-panels.count // max(1, min(8, panels.count // 4)))
    groups = -(-panels.count // group)
    depth = source.depth_size
    chunks = -(-depth // CHUNK) if source.is_free_contiguous and len(source.depth) == 1 else 1
    units = extent(batch) * groups * chunks
    memory, target = (buffer_address(w, i) for i in (0, 1))
    memory = element_address(w, memory, w.int(offset), source.dtype)

    def unit(u: Value) -> None:
        b, g, chunk = split_index(w, u, (1 << 40, groups, chunks))
        moved = strided(w, b, [(a.size, getattr(a, side)) for a in batch])
        base = element_address(w, memory, moved, source.dtype)
        first = times(w, g, group)
        start = add(w, times(w, b, panels.count), first)
        to = advanced(w, target, times(w, start, packing.panel_size), ring.scalar)
        block = Block(
            base, to, first, _clipped(w, first, group, panels.count),
            times(w, chunk, CHUNK if chunks > 1 else depth),
            _clipped(w, times(w, chunk, CHUNK), CHUNK, depth) if chunks > 1 else w.int(depth),
        )  # fmt: skip
        pack(w, packing, block)

    ranged(w, Value("%begin", "i64"), Value("%end", "i64"), unit)
    bytes_moved = 2 * extent(batch) * packing.size_bytes
    return _kernel(w, units, 0, bytes_moved, 0)


def _clipped(w: Writer, first: Value, size: int, total: int) -> Value:
    """min(size, total - first)."""
    if total % size == 0:
        return w.int(size)
    left = w.binary("sub", w.int(total), first)
    return w.intrinsic("llvm.umin", "i64", left, w.int(size))


def _kernel(w: Writer, units: int, scratch: int, bytes_moved: int, flops: int) -> Kernel:
    return Kernel(
        kernel_text(w),
        units,
        tuple(w.declarations.values()),
        tuple(w.globals.values()),
        scratch,
        bytes_moved=bytes_moved,
        flops=flops,
    )


# -- the product -------------------------------------------------------------------------------


def product_kernel(plan: Plan, epilogue: Epilogue | None = None) -> Kernel:
    """buffers: lhs (or its panels), rhs (or its panels), result, what the epilogue reads, scratch."""
    return _Product(plan, epilogue).kernel()


class _Product:
    """One product kernel being written: the plan and what is known in the current loop."""

    def __init__(self, plan: Plan, epilogue: Epilogue | None) -> None:
        self.w = Writer()
        self.plan = plan
        self.epilogue = epilogue
        self.c: Contraction = plan.contraction
        self.ring = plan.ring
        self.lhs_packing = plan.lhs_packing
        self.rhs_packing = plan.rhs_packing
        self.staged = plan.depth_blocks > 1
        scalar = self.ring.scalar_bytes
        tiles, panels = plan.tiles_per_block, plan.panels_per_block
        in_unit = Reading.IN_UNIT
        sizes = [
            tiles * self.lhs_packing.panel_size * scalar if plan.lhs is in_unit else 0,
            panels * self.rhs_packing.panel_size * scalar if plan.rhs is in_unit else 0,
            tiles * plan.rows.step * self.rhs_packing.k_step * scalar if self.staged else 0,
        ]
        sizes = [-(-size // 64) * 64 for size in sizes]
        self.scratch_at = [sum(sizes[:i]) for i in range(3)]
        self.scratch_bytes = sum(sizes)

    def kernel(self) -> Kernel:
        w, c, plan = self.w, self.c, self.plan
        lhs, rhs = (buffer_address(w, i) for i in range(2))
        self.result = Result(w, self.ring, c.out, 2, self.epilogue)
        scratch = lhs
        if self.scratch_bytes:
            scratch = buffer_address(w, 2 + self.result.buffers)
        self.lhs_scratch, self.rhs_scratch, self.stage = (
            advanced(w, scratch, at, "i8") for at in self.scratch_at
        )
        if plan.lhs is not Reading.PACKED:
            lhs = element_address(w, lhs, w.int(c.lhs.offset), c.lhs.dtype)
        if plan.rhs is not Reading.PACKED:
            rhs = element_address(w, rhs, w.int(c.rhs.offset), c.rhs.dtype)
        self.lhs_base, self.rhs_base = lhs, rhs
        packed_before = [w.int(-1), w.int(-1)]
        remembering(w, Value("%begin", "i64"), Value("%end", "i64"), packed_before, self._unit)
        moved = sum(
            s.free_size * s.depth_size * 4
            for s in (self.lhs_packing.source, self.rhs_packing.source)
        )
        moved = c.batches * (moved + 4 * c.m * c.n)
        return _kernel(w, plan.units, self.scratch_bytes, moved, c.flops)

    def _unit(self, unit: Value, packed_before: list[Value]) -> list[Value]:
        """One unit; what it packs is remembered, so that the next one need not pack it again."""
        w, c, plan = self.w, self.c, self.plan
        b, row_block, column_block = split_index(
            w, unit, (1 << 40, plan.row_blocks, plan.column_blocks)
        )
        self.out_index = strided(w, b, [(a.size, a.out) for a in c.batch])
        tiles = _share(w, row_block, plan.rows.count, plan.row_blocks)
        panels = _share(w, column_block, plan.columns.count, plan.column_blocks)
        keys = [
            add(w, times(w, self._moves(b, side), blocks), block)
            for side, blocks, block in (
                ("lhs", plan.row_blocks, row_block),
                ("rhs", plan.column_blocks, column_block),
            )
        ]
        news = [w.compare("icmp ne", *pair) for pair in zip(keys, packed_before, strict=True)]
        self.lhs_at, self.lhs_first = self._factor("lhs", b, tiles, news[0])
        self.rhs_at, self.rhs_first = self._factor("rhs", b, panels, news[1])
        ranged(w, *panels, lambda p: self._panel(p, *tiles))
        return keys

    def _moves(self, b: Value, side: str) -> Value:
        """The batch, or 0 where the factor is the same in all of them."""
        return b if any(getattr(a, side) for a in self.c.batch) else self.w.int(0)

    def _factor(
        self, side: str, b: Value, panels: tuple[Value, Value], new: Value
    ) -> tuple[Value, Value]:
        """Where a unit finds a factor: the address, and the panel that lies there."""
        first, last = panels
        w, plan = self.w, self.plan
        reading: Reading = getattr(plan, side)
        packing: Packing = getattr(self, f"{side}_packing")
        base: Value = getattr(self, f"{side}_base")
        batch = [(a.size, getattr(a, side)) for a in self.c.batch]
        if reading is Reading.PACKED:
            moved = strided(w, b, packed_strides(batch, packing))
            return advanced(w, base, moved, self.ring.scalar), w.int(0)
        dtype = packing.source.dtype
        base = element_address(w, base, strided(w, b, batch), dtype)
        if reading is Reading.IN_PLACE:
            return base, w.int(0)
        scratch: Value = getattr(self, f"{side}_scratch")
        count = w.binary("sub", last, first)
        block = Block(base, scratch, first, count, w.int(0), w.int(self.c.k))
        when(w, new, lambda: pack(w, packing, block))
        return scratch, first

    def _panel(self, panel: Value, first: Value, last: Value) -> None:
        w, plan, ring = self.w, self.plan, self.ring
        column = plan.columns.start(w, panel)
        at = self._panel_address("rhs", self.rhs_at, panel, self.rhs_first, column)
        masks: list[Value | None] = [None] * plan.vectors
        if plan.columns.exceeds(self.c.n):
            starts = [add(w, column, w.int(v * ring.lanes)) for v in range(plan.vectors)]
            masks = [below(w, start, self.c.n, ring.lanes) for start in starts]
        if not self.staged:
            self._tiles(first, last, w.int(self.c.k), lambda a: (a, at), column, masks)
            return
        tiles = first, last
        self._each_stage_row(tiles, lambda _, stage: self._put_stage(stage, None))
        loop(
            w,
            w.int(plan.depth_blocks),
            [],
            lambda d, _: self._depth_block(d, first, last, at, column, masks),
        )
        self._each_stage_row(tiles, lambda row, stage: self._finish_row(row, stage, column, masks))

    def _depth_block(
        self,
        block: Value,
        first: Value,
        last: Value,
        at: Value,
        column: Value,
        masks: list[Value | None],
    ) -> list[Value]:
        w, plan = self.w, self.plan
        begin = times(w, block, plan.depth_block)
        (axis,) = plan.nest
        lhs_step, rhs_step = times(w, begin, axis.lhs), times(w, begin, axis.rhs)
        size = _clipped(w, begin, plan.depth_block, self.c.k)
        lhs, rhs = self._factor_form("lhs"), self._factor_form("rhs")
        moved = rhs.moved(w, at, rhs_step)
        self._tiles(first, last, size, lambda a: (lhs.moved(w, a, lhs_step), moved), column, masks)
        return []

    def _panel_address(
        self, side: str, at: Value, panel: Value, first: Value, start: Value
    ) -> Value:
        """Depth 0 of a tile or panel."""
        w = self.w
        packing: Packing = getattr(self, f"{side}_packing")
        if getattr(self.plan, side) is Reading.IN_PLACE:
            return element_address(
                w, at, strided(w, start, packing.source.free), packing.source.dtype
            )
        local = panel if first.text == "0" else w.binary("sub", panel, first)
        return advanced(w, at, times(w, local, packing.panel_size), self.ring.scalar)

    def _factor_form(self, side: str) -> Factor:
        packing: Packing = getattr(self, f"{side}_packing")
        if getattr(self.plan, side) is not Reading.IN_PLACE:
            return Factor(self.ring, None, width=packing.panels.width)
        free = packing.source.free
        spread = side == "lhs" and self.c.is_diagonal
        unit = free[-1][1] if free else 1
        return Factor(self.ring, packing.source.dtype, unit=unit, spread=spread)

    # -- tiles ---------------------------------------------------------------------------------

    def _tiles(self, first: Value, last: Value, size: Value, placed, column: Value, masks) -> None:  # type: ignore[no-untyped-def]
        """The microkernel over tiles [first, last), for `size` depths."""
        w, rows = self.w, self.plan.rows

        def at_tile(tile: Value) -> None:
            start = rows.start(w, tile)
            address = self._panel_address("lhs", self.lhs_at, tile, self.lhs_first, start)
            if self.c.is_diagonal:
                address = element_address(w, address, column, self.c.lhs.dtype)

            lhs, rhs = placed(address)
            self._tile(tile, size, lhs, rhs, start, first, column, masks)

        ranged(w, first, last, at_tile)

    def _tile(
        self,
        index: Value,
        size: Value,
        lhs: Value,
        rhs: Value,
        start: Value,
        first: Value,
        column: Value,
        masks: list[Value | None],
    ) -> None:
        w, plan, height = self.w, self.plan, self.plan.rows.step
        tall = plan.rows.is_tall(w, index)
        factor = self._factor_form("lhs")
        if tall is not None and plan.lhs is Reading.IN_PLACE:
            at_last = [w.int(r * factor.unit) for r in (height - 1, max(height - 2, 0))]
            factor = replace(factor, last=(height - 1, w.select(tall, *at_last)))
        micro = Microkernel(
            height, plan.vectors, factor, self._factor_form("rhs"),
            self._depth_axes(size), _unroll(height * plan.vectors),
        )  # fmt: skip
        if not self.staged:
            tile = zero_tile(w, micro)
            if self.c.k:
                tile = product(w, micro, lhs, rhs, tile, masks)
            self._finish_tile(tile, start, tall, column, masks)
            return
        local = times(w, w.binary("sub", index, first), height)
        stages = [self._stage_address(add(w, local, w.int(r))) for r in range(height)]
        tile = [self._get_stage(stage) for stage in stages]
        tile = product(w, micro, lhs, rhs, tile, masks)
        for stage, row in zip(stages, tile, strict=True):
            self._put_stage(stage, row)

    def _depth_axes(self, size: Value) -> tuple[DepthAxis, ...]:
        if self.staged:
            (axis,) = self.plan.nest
            return (DepthAxis(size, axis.lhs, axis.rhs),)
        return tuple(DepthAxis(self.w.int(a.size), a.lhs, a.rhs) for a in self.plan.nest)

    # -- the stage: tiles that wait for further depth blocks -------------------------------------

    def _stage_address(self, row: Value) -> Value:
        step = self.rhs_packing.k_step
        return advanced(self.w, self.stage, times(self.w, row, step), self.ring.scalar)

    def _each_stage_row(
        self, tiles: tuple[Value, Value], body: Callable[[Value, Value], None]
    ) -> None:
        """body(row, where it waits) for all rows of tiles [first, last)."""
        w, rows = self.w, self.plan.rows
        first, last = tiles

        def at_tile(tile: Value) -> None:
            start = rows.start(w, tile)
            local = times(w, w.binary("sub", tile, first), rows.step)
            tall = rows.is_tall(w, tile)
            height = w.int(rows.step)
            if tall is not None:
                height = w.select(tall, height, w.int(rows.step - 1))
            ranged(
                w,
                w.int(0),
                height,
                lambda r: body(add(w, start, r), self._stage_address(add(w, local, r))),
            )

        ranged(w, first, last, at_tile)

    def _vector_addresses(self, stage: Value) -> list[list[Value]]:
        ring, width = self.ring, self.plan.columns.width
        return [
            [
                advanced(self.w, stage, i * width + v * ring.lanes, ring.scalar)
                for i in range(ring.parts)
            ]
            for v in range(self.plan.vectors)
        ]

    def _put_stage(self, stage: Value, row: Sequence[Parts] | None) -> None:
        ring = self.ring
        values = row or [ring.zero(self.w, ring.lanes)] * self.plan.vectors
        for parts, addresses in zip(values, self._vector_addresses(stage), strict=True):
            for part, address in zip(parts, addresses, strict=True):
                self.w.store(part, address, ring.scalar_bytes)

    def _get_stage(self, stage: Value) -> list[Parts]:
        ring = self.ring
        return [
            tuple(self.w.load(a, ring.vector, ring.scalar_bytes) for a in addresses)
            for addresses in self._vector_addresses(stage)
        ]

    # -- the result ------------------------------------------------------------------------------

    def _finish_row(
        self, row: Value, stage: Value, column: Value, masks: list[Value | None]
    ) -> None:
        self._store_row(
            self._get_stage(stage), strided(self.w, row, self._row_axes()), column, masks
        )

    def _finish_tile(
        self,
        tile: Tile,
        start: Value,
        tall: Value | None,
        column: Value,
        masks: list[Value | None],
    ) -> None:
        """Rows to the result; the last one only where the tile is tall."""
        w, axes = self.w, self._row_axes()
        base = strided(w, start, axes) if len(axes) == 1 else None

        def store(r: int) -> None:
            if base is not None:
                offset = add(w, base, w.int(r * axes[0][1]))
            else:
                offset = strided(w, add(w, start, w.int(r)), axes)
            self._store_row(tile[r], offset, column, masks)

        for r in range(len(tile) - 1):
            store(r)
        if tall is None:
            store(len(tile) - 1)
        else:
            when(w, tall, lambda: store(len(tile) - 1))

    def _row_axes(self) -> list[tuple[int, int]]:
        return [(a.size, a.out) for a in self.c.rows]

    def _store_row(
        self, row: Sequence[Parts], offset: Value, column: Value, masks: list[Value | None]
    ) -> None:
        w, stride = self.w, self.c.columns[-1].out if self.c.columns else 1
        index = add(w, add(w, self.out_index, offset), times(w, column, stride))
        for v, (parts, mask) in enumerate(zip(row, masks, strict=True)):
            at = add(w, index, w.int(v * self.ring.lanes * stride))
            self.result.store(parts, at, stride, mask)


def packed_strides(batch: Sequence[tuple[int, int]], packing: Packing) -> list[tuple[int, int]]:
    """Strides of the batch axes in panels; an axis that does not move the factor stays 0."""
    step = packing.panels.count * packing.panel_size
    result: list[tuple[int, int]] = []
    for size, stride in reversed(batch):
        result.insert(0, (size, step if stride else 0))
        step *= size if stride else 1
    return result


def _share(w: Writer, block: Value, count: int, blocks: int) -> tuple[Value, Value]:
    """Part [first, last) of `count` things that are shared out evenly to blocks."""
    if blocks == 1:
        return w.int(0), w.int(count)
    if count == blocks:
        return block, w.binary("add", block, w.int(1))
    size = -(-count // blocks)
    less = blocks * size - count  # the last `less` blocks hold one fewer
    whole = blocks - less

    def before(index: Value) -> Value:
        beyond = w.intrinsic("llvm.smax", "i64", w.binary("sub", index, w.int(whole)), w.int(0))
        return w.binary("sub", times(w, index, size), beyond)

    return before(block), before(w.binary("add", block, w.int(1)))


def _unroll(products: int) -> int:
    """Depths per round of the inner loop: enough to hide its arithmetic."""
    return 1 if products >= 16 else 2 if products >= 8 else 4
