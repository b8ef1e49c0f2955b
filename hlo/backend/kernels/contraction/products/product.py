"""Product: the blocked loop nest around the microkernel.

    for unit (batch, row block, column block):      in parallel
        pack what the plan packs in a unit
        for panel of columns: for depth block: for tile of rows: microkernel
        or, where columns are packed by blocks that fit the cache,
        for depth block: for tile of rows: for panel of columns: microkernel

With one depth block a tile goes straight to the result, unless something is done to its sums
first; then, and with several blocks, it waits in scratch (partial_sums.py). In a depth-first plan
the depth blocks come outside: each is packed for all the unit's panels (so that long stretches of a
row-major rhs are read), and all their tiles wait. A tile's own depths are summed in blocks of
BLOCK (sum_blocks.py), so chains of additions are as long as ProductPlan.sums says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import (
    add,
    advanced,
    clipped,
    divided,
    shared,
    strided,
    times,
)
from hlo.backend.ir.control import each, loop, remembering, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.microkernels.assembly import write_tile
from hlo.backend.kernels.contraction.microkernels.microkernel import product, zero_tile
from hlo.backend.kernels.contraction.packing.assembly_copies import called, is_assembly, packed
from hlo.backend.kernels.contraction.packing.form import Packing, PanelRange
from hlo.backend.kernels.contraction.packing.panels import packed_strides
from hlo.backend.kernels.contraction.problem.addressing import Place, address_of, moved
from hlo.backend.kernels.contraction.problem.offsets import element_0, offsets_of, start_buffers
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.result_prefetch import ResultPrefetch
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.products.band_limits import BandLimits, Depths, one
from hlo.backend.kernels.contraction.products.batch_prefetch import BatchPrefetch
from hlo.backend.kernels.contraction.products.column_prefetch import ColumnPrefetch
from hlo.backend.kernels.contraction.products.finishing import (
    Columns,
    Finishing,
    PartialTile,
    columns_from,
)
from hlo.backend.kernels.contraction.products.form import ProductForm, read_in_memory
from hlo.backend.kernels.contraction.products.partial_sums import PartialSums, Range
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.products.tile_packing import TilePacking
from hlo.backend.kernels.contraction.products.units import unit_numbers
from hlo.backend.kernels.contraction.products.work import product_work


def product_kernel(
    plan: ProductPlan, epilogue: Epilogue | None = None, *, checks: bool = False
) -> Kernel:
    """buffers: lhs and rhs (or their panels), result, what the epilogue reads, starts, the byte
    that is set for subnormal numbers where it `checks` at words that it makes, scratch.
    """
    return _Product(plan, epilogue, checks=checks).kernel()


class _Product:
    """One product kernel being written: the plan and what is known in the current loop."""

    def __init__(self, plan: ProductPlan, epilogue: Epilogue | None, *, checks: bool) -> None:
        self.w = Writer()
        self.checks = checks
        self.flag: Value | None = None
        self.plan = plan
        self.epilogue = epilogue
        self.c = plan.contraction
        self.ring, self.scalar = plan.ring, plan.ring.factors.scalar  # of sums; of factors
        self.form = form = ProductForm(plan, has_epilogue=epilogue is not None)
        self.packings, self.staged, self.is_direct = form.packings, form.staged, form.is_direct
        self.has_assembly = form.is_assembly
        self.is_glue = self.is_direct or self.has_assembly
        self.functions: dict[str, Kernel] = {}
        self.limits = BandLimits(self.w, plan)
        self.bounded = self.c.bounded_side
        self.all_depths = Depths(self.w.int(self.c.k), *[self.w.int(0)] * 3)
        self.partial_sums = PartialSums(self.w, plan)
        self.batch_prefetch = BatchPrefetch(self.w, plan, form.prefetched_factors)
        self.row_prefetch = RowPrefetch(self.w, plan, form.row_prefetch_bytes)
        self.tile_packing = TilePacking(self.w, plan, form.row_lines)
        self.column_prefetch = ColumnPrefetch(self.w, plan, form.column_lines)
        sizes = form.scratch_sizes
        self.scratch_at = [sum(sizes[:i]) for i in range(4)]
        self.scratch_bytes = sum(sizes)

    def kernel(self) -> Kernel:
        w, c, plan, form = self.w, self.c, self.plan, self.form
        lhs, rhs = (w.buffer_address(i) for i in range(2))
        self.finishing = Finishing(w, plan, self.form, self.epilogue)
        self.result = self.finishing.result
        self.result_prefetch = ResultPrefetch(
            w, c, plan.ring.target.machine, rows=plan.rows.step, columns=plan.columns.width,
            loads=(plan.rows.step + plan.vectors) * c.k, streams=form.streams,
        )  # fmt: skip
        scratch = lhs
        first = 2 + self.result.buffers  # of the starts
        last = first + len(start_buffers(read_in_memory(plan)))
        if self.checks:
            self.flag = w.buffer_address(last)
        if self.scratch_bytes:
            scratch = w.buffer_address(last + self.checks)
        addresses = [advanced(w, scratch, at, "i8") for at in self.scratch_at]
        lhs_scratch, rhs_scratch, stage, self.aside = addresses
        self.scratch = {"lhs": lhs_scratch, "rhs": rhs_scratch}
        self.base: dict[str, Place] = {"lhs": lhs, "rhs": rhs}
        if plan.lhs is not Reading.PACKED:
            self.base["lhs"] = element_0(w, lhs, c.lhs, first)
            first += offsets_of(c.lhs)
        if plan.rhs is not Reading.PACKED:
            self.base["rhs"] = element_0(w, rhs, c.rhs, first)
        self.at = dict(self.base)
        self.first = {"lhs": w.int(0), "rhs": w.int(0)}
        self.partial_sums.place(stage)
        packed_before = [w.int(-1), w.int(-1)]
        units = (w.int(0), w.int(plan.units)) if self.bounded else (BEGIN, END)
        remembering(w, *units, packed_before, self._unit)
        if form.streams:
            plan.ring.target.isa.fence_streams(w)
        return Kernel(
            w.bounded_function() if self.bounded else w.kernel_function(),
            plan.units,
            *w.beside,
            functions=tuple(self.functions.values()),
            scratch_bytes=self.scratch_bytes,
            bytes_moved=form.bytes_moved,
            flops=c.flops,
            is_glue=self.is_glue,
            packed_bytes=plan.shared_bytes,
            packed_runs=plan.shared_runs,
            work=product_work(plan, form, checks=self.checks),
            own=form.own_buffers(self.epilogue),
            is_bounded=bool(self.bounded),
        )

    # -- units and their factors ---------------------------------------------------------------

    def _unit(self, unit: Value, packed_before: list[Value]) -> list[Value]:
        """One unit; what it packs is remembered, so that the next one need not pack it again."""
        w, c, plan = self.w, self.c, self.plan
        b, row_block, column_block = unit_numbers(w, plan, unit)
        self.column_prefetch.unit(unit, self.base["rhs"])
        self.out_index = strided(w, b, [(a.size, a.out) for a in c.batch])
        tiles = shared(w, row_block, plan.rows.count, plan.row_blocks)
        panels = shared(w, column_block, plan.columns.count, plan.column_blocks)
        blocks = ("lhs", row_block, plan.row_blocks), ("rhs", column_block, plan.column_blocks)
        keys = [
            add(w, times(w, b, n), block) if c.differs(side) else block for side, block, n in blocks
        ]
        new = [w.compare("icmp ne", k, p) for k, p in zip(keys, packed_before, strict=True)]
        if self.bounded == "rows":
            tiles = self.limits.within("rows", tiles)
        elif self.bounded == "columns":
            panels = self.limits.within("columns", panels)
        else:
            self._placed(b, tiles, panels, new)
            return keys
        own = tiles if self.bounded == "rows" else panels
        some = w.compare("icmp ult", *own)
        when(w, some, lambda: self._placed(b, tiles, panels, new))
        return [w.select(some, k, p) for k, p in zip(keys, packed_before, strict=True)]

    def _placed(self, b: Value, tiles: Range, panels: Range, new: list[Value]) -> None:
        """A unit's tiles and panels, after what is packed of them."""
        plan, self.end = self.plan, tiles[1]
        self._place("lhs", b, tiles, new[0])
        self._place("rhs", b, panels, new[1])
        if plan.depth_first:
            self._depth_first(panels, tiles)
        elif plan.group:
            self._groups(tiles, panels, self.all_depths)
        else:
            each(self.w, *panels, lambda p: self._panel(p, tiles))

    def _place(self, side: str, b: Value, panels: Range, new: Value) -> None:
        """Where this unit finds a factor, and the panel that lies there; packed if it has to be."""
        w, packing, reading = self.w, self.packings[side], self.form.readings[side]
        batch = [(a.size, getattr(a, side)) for a in self.c.batch]
        self.first[side] = w.int(0)
        if reading is Reading.PACKED:
            step = strided(w, b, packed_strides(batch, packing))
            self.at[side] = advanced(w, address_of(self.base[side]), step, self.scalar)
            return
        base = moved(w, self.base[side], b, batch, packing.source.dtype)
        self.at[side] = base
        if side == "rhs":
            self.column_prefetch.place(base, w.int(0), panels)
        if isinstance(base, Value):
            self.batch_prefetch.place(side, base)
        if reading is Reading.IN_UNIT and not (self.plan.depth_first and side == "rhs"):
            self._pack(side, base, panels, self.all_depths, new)

    def _pack(
        self, side: str, base: Place, panels: Range, depths: Depths, new: Value | None
    ) -> None:
        """Panels of these depths into scratch, when `new` (or always)."""
        w, packing = self.w, self.packings[side]
        begin, size = depths.lhs if side == "lhs" else depths.rhs, depths.count
        count = w.binary("sub", panels[1], panels[0])
        zero = w.binary("sub", w.int(0), times(w, begin, packing.k_step))
        target = self.scratch[side]
        if begin.integer != 0:  # the block's first depth comes to the scratch's beginning
            target = advanced(w, target, zero, self.scalar)
        elif self.bounded == "depth" and not self.staged:
            begin, end = self.limits.between()
            size = w.binary("sub", end, begin)
        flag = self.flag if side == "rhs" else None
        block = PanelRange(base, target, panels[0], count, begin, size, flag)
        if new is None:
            self._packed(packing, block)
        else:
            when(w, new, lambda: self._packed(packing, block))
        self.at[side], self.first[side] = self.scratch[side], panels[0]

    def _packed(self, packing: Packing, block: PanelRange) -> None:
        if is_assembly(packing):
            packed(self.w, packing, block)
        else:
            function = called(self.w, packing, block)
            self.functions[function.text] = function

    def _address(self, side: str, panel: Value, start: Value) -> Value:
        """Depth 0 of a tile or panel that begins at index `start`."""
        w, packing = self.w, self.packings[side]
        if self.form.readings[side] is Reading.IN_PLACE:
            offset = strided(w, start, packing.source.free)
            return element_address(w, address_of(self.at[side]), offset, packing.source.dtype)
        first = self.first[side]
        local = panel if first.integer == 0 else w.binary("sub", panel, first)
        offset = times(w, local, packing.panel_size)
        return advanced(w, address_of(self.at[side]), offset, self.scalar)

    # -- panels and depth blocks -----------------------------------------------------------------

    def _columns(self, panel: Value) -> Columns:
        self.panel = self.batch_prefetch.panel = panel
        return columns_from(self.w, self.plan, self.plan.columns.start(self.w, panel))

    def _panel(self, panel: Value, tiles: Range) -> None:
        w, plan = self.w, self.plan
        columns = self._columns(panel)
        at = self._address("rhs", panel, columns.start)
        self.row_prefetch.base, self.row_prefetch.panel = address_of(self.at["lhs"]), w.int(0)
        if not self.staged:
            self._tiles(tiles, self.all_depths, at, columns)
            return
        self.partial_sums.clear(tiles)

        def at_block(block: Value, _: list[Value]) -> list[Value]:
            depths = self._depths(block)
            self._if_met(depths, lambda: self._tiles(tiles, depths, at, columns))
            return []

        loop(w, w.int(plan.depth_blocks), [], at_block)
        self._finish_stage(tiles, columns)

    def _if_met(self, depths: Depths, make: Callable[[], None]) -> None:
        """A block of depths, if some are between the bounds."""
        if self.bounded != "depth":
            make()
            return
        when(self.w, self.limits.is_met(depths.first, depths.count), make)

    def _groups(self, tiles: Range, panels: Range, depths: Depths) -> None:
        """Groups of the unit's tiles. depths.lhs: the first depth's number."""
        w, size = self.w, self.plan.group

        def at_group(first: Value) -> None:
            end = w.intrinsic("llvm.umin", "i64", add(w, first, w.int(size)), tiles[1])
            self._group((first, end), tiles, panels, depths)

        if size == 1:
            each(w, *tiles, lambda t: self._group((t, add(w, t, w.int(1))), tiles, panels, depths))
            return
        count = add(w, w.binary("sub", tiles[1], tiles[0]), w.int(size - 1))
        groups = divided(w, count, size)
        each(w, w.int(0), groups, lambda g: at_group(add(w, tiles[0], times(w, g, size))))

    def _group(self, group: Range, tiles: Range, panels: Range, depths: Depths) -> None:
        """Some tiles of rows, packed if they have to be, and all panels of the unit."""
        w, base = self.w, self.at["lhs"]
        self.row_prefetch.base = address_of(base)
        if self.plan.lhs is Reading.IN_TILE:
            self._pack("lhs", base, group, depths, self.limits.is_wanted(group, panels))
            depths = replace(depths, lhs=w.int(0))
        elif self.staged:
            (axis,) = self.plan.nest
            depths = replace(depths, lhs=times(w, depths.lhs, axis.lhs))

        def at_panel(panel: Value) -> None:
            columns = self._columns(panel)
            at = self._address("rhs", panel, columns.start)
            self.row_prefetch.panel = w.binary("sub", panel, panels[0])
            each(w, *group, lambda tile: self._tile(tile, tiles, depths, at, columns))

        if self.staged:
            self.partial_sums.each_panel(panels, at_panel)
        else:
            each(w, *panels, at_panel)
        self.at["lhs"] = base

    def _depth_first(self, panels: Range, tiles: Range) -> None:
        w, base = self.w, self.at["rhs"]
        self.partial_sums.each_panel(panels, lambda _: self.partial_sums.clear(tiles))

        def at_block(block: Value, _: list[Value]) -> list[Value]:
            depths = self._depths(block)
            self._if_met(depths, lambda: at_depths(block, depths))
            return []

        def at_depths(block: Value, depths: Depths) -> None:
            begin = times(w, block, self.plan.depth_block)
            if self.plan.rhs is Reading.IN_UNIT:
                self.column_prefetch.place(base, begin, panels)
                if self.form.packs_first:
                    self.tile_packing.place(address_of(base), begin, panels)
                else:
                    self._pack("rhs", base, panels, replace(depths, rhs=begin), None)
                depths = replace(depths, rhs=w.int(0))
            if self.plan.group:
                self._groups(tiles, panels, replace(depths, lhs=begin))
                return

            def at_panel(panel: Value) -> None:
                columns = self._columns(panel)
                if self.form.packs_first:
                    self._tiles_that_pack(tiles, depths, columns)
                else:
                    at = self._address("rhs", panel, columns.start)
                    self._tiles(tiles, depths, at, columns)

            self.partial_sums.each_panel(panels, at_panel)

        loop(w, w.int(self.plan.depth_blocks), [], at_block)
        self.partial_sums.each_panel(panels, lambda p: self._finish_stage(tiles, self._columns(p)))

    def _depths(self, block: Value) -> Depths:
        w, size = self.w, self.plan.depth_block
        begin = times(w, block, size)
        (axis,) = self.plan.nest
        count = clipped(w, begin, size, self.c.k)
        return Depths(count, times(w, begin, axis.lhs), times(w, begin, axis.rhs), begin)

    # -- tiles ---------------------------------------------------------------------------------

    def _tiles(self, tiles: Range, depths: Depths, rhs: Value, columns: Columns) -> None:
        """The microkernel over tiles of rows, for some depths."""
        each(self.w, *tiles, lambda tile: self._tile(tile, tiles, depths, rhs, columns))

    def _tiles_that_pack(self, tiles: Range, depths: Depths, columns: Columns) -> None:
        """The same, where the first tile packs a panel's columns for the others."""
        w, (first, end), packed = self.w, tiles, self.scratch["rhs"]
        memory = self.tile_packing.columns(columns.start)
        self._tile(first, tiles, depths, packed, columns, memory)
        if self.plan.tiles_per_block > 1:
            second = add(w, first, w.int(1))
            each(w, second, end, lambda t: self._tile(t, tiles, depths, packed, columns))

    def _tile(
        self,
        tile: Value,
        tiles: Range,
        depths: Depths,
        rhs: Value,
        columns: Columns,
        memory: Value | None = None,
    ) -> None:
        """The microkernel for one tile of a unit's, if its sums are wanted. memory: where columns
        lie that it packs to `rhs`.
        """
        w, rows = self.w, self.plan.rows
        start = rows.start(w, tile)
        local = times(w, w.binary("sub", tile, tiles[0]), rows.step) if self.staged else None
        wanted = self.limits.is_wanted(one(w, tile), one(w, self.panel))
        is_rest_made = self.c.bands.is_rest_made

        def make() -> None:
            self._sums_of_tile(tile, start, local, depths, rhs, columns, memory)
            if not is_rest_made:
                finish()

        def finish() -> None:
            if not self.staged and not self.is_direct:
                self._finish_waiting(columns, tile, start, self.partial_sums.base)

        if wanted is None:
            make()
        else:
            when(w, wanted, make)
        if is_rest_made:
            finish()

    def _sums_of_tile(
        self,
        tile: Value,
        start: Value,
        local: Value | None,
        depths: Depths,
        rhs: Value,
        columns: Columns,
        memory: Value | None,
    ) -> None:
        """A tile's sums to where they wait, or to the result."""
        w, depths = self.w, self.limits.depths(tile, self.panel, depths)
        rhs = self.form.factor("rhs").moved(w, rhs, depths.rhs)
        form = self.form.assembly(depths.count, packs=memory is not None)
        if not self.staged:
            index = add(w, self.out_index, columns.start)
            self.result_prefetch.tile(self.result.address, index, start)
        lhs = self._address("lhs", tile, start)
        if self.c.is_diagonal:
            lhs = element_address(w, lhs, columns.start, self.c.lhs.dtype)
        lhs = self.form.factor("lhs").moved(w, lhs, depths.lhs)
        if form is not None:
            out = self._place_of_tile(start, local, columns)
            ahead = self.batch_prefetch.start(tile) or self.row_prefetch.start(tile)
            ahead = ahead or self.tile_packing.ahead(self.panel, tile)
            asked = self.column_prefetch.start(self.panel, tile, self.end, ahead, rhs)
            at, panel = (rhs, None) if memory is None else (memory, rhs)
            write_tile(w, form, lhs, at, out, self.aside, asked, panel)
        else:
            self.is_glue = False
            self._in_registers(lhs, rhs, depths, start, local, columns)

    def _place_of_tile(self, start: Value, local: Value | None, columns: Columns) -> Value:
        """Where a tile's sums go: to scratch, to wait, or straight to the result."""
        w, c = self.w, self.c
        if not self.is_direct:
            return self.partial_sums.base if local is None else self.partial_sums.row(local)
        index = add(w, self.out_index, strided(w, start, self.form.row_axes))
        return element_address(w, self.result.address, add(w, index, columns.start), c.out)

    def _in_registers(
        self,
        lhs: Value,
        rhs: Value,
        depths: Depths,
        start: Value,
        local: Value | None,
        columns: Columns,
    ) -> None:
        """The tile as LLVM's values."""
        w, micro, masks = self.w, self.form.microkernel(depths.count), list(columns.masks)
        first = w.int(0) if local is None else local
        stages = [
            self.partial_sums.row(add(w, first, w.int(r))) for r in range(self.plan.rows.step)
        ]
        before = None if local is None else [self.partial_sums.sums(stage) for stage in stages]
        sums = product(w, micro, lhs, rhs, before, masks) if self.c.k else zero_tile(w, micro)
        if self.is_direct:
            self.finishing.tile(sums, start, self.out_index, columns)
            return
        for stage, row in zip(stages, sums, strict=True):
            self.partial_sums.put(stage, row)

    # -- the result ------------------------------------------------------------------------------

    def _finish_stage(self, tiles: Range, columns: Columns) -> None:
        self.partial_sums.each_tile(tiles, partial(self._finish_waiting, columns))

    def _finish_waiting(self, columns: Columns, tile: Value, start: Value, sums: Value) -> None:
        """A tile that waits in scratch, to the result's rows from `start` on, each once: what an
        epilogue reads may lie there.
        """
        first, end = self.plan.rows.again(self.w, tile, start), self.w.int(self.plan.rows.step)
        if self.bounded == "rows":
            first, end = self.limits.stored(start, first)
        waiting = PartialTile(sums, start, first, self.out_index, columns.start, end)
        if self.has_assembly:
            function = self.finishing.called(waiting)
            self.functions[function.text] = function
        else:
            self.finishing.waiting(waiting, columns)
