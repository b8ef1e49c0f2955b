"""The product on the matrix units: 2 x 2 tiles of sums at a time (amx.py)."""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, advanced, clipped, shared, split_index, strided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.control import loop, ranged, remembering, set_flag, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.matrix_units.amx import (
    SQUARE_BYTES,
    STEP_BYTES,
    TILE,
    TILE_BYTES,
    TilePlan,
)
from hlo.backend.kernels.contraction.matrix_units.packing import (
    Range,
    group_words,
    in_groups,
    pack_group,
)
from hlo.backend.kernels.contraction.matrix_units.turning import turn_squares
from hlo.backend.kernels.contraction.matrix_units.work import tile_work
from hlo.backend.kernels.contraction.problem.axes import merged, only
from hlo.backend.kernels.contraction.problem.bounds import within_bounds
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.problem.result import Epilogue, Result
from hlo.backend.kernels.contraction.problem.result_prefetch import ResultPrefetch
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal
from hlo.backend.lanes import masked
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.transposed import turned_parts
from hlo.backend.lanes.types import storage_scalar


class AmxProduct:
    """The product being written. Tile registers: 0-3 sums, 4 5 rows, 6 7 columns."""

    def __init__(
        self,
        plan: TilePlan,
        epilogue: Epilogue | None,
        *,
        checks: tuple[bool, bool] = (False, False),
    ) -> None:
        self.w = Writer()
        self.plan = plan
        self.c = plan.c
        self.tiles = plan.tiles
        # Windows that move far in the base may lie beside each other here.
        self.result_rows = [(a.size, a.out) for a in merged(only(plan.by_result.rows, "out"))]
        self.bounded = plan.c.bounded_side
        self.epilogue = epilogue
        self.checks = checks  # for subnormal numbers in rows and columns that it packs
        self.flag: Value | None = None
        self.functions: list[Kernel] = []
        self.stage_at = plan.packed_pairs * 2 * plan.row_strip_bytes
        self.totals_at = self.stage_at + SQUARE_BYTES
        squares = plan.row_pairs * plan.column_pairs if plan.blocks > 1 else 0
        self.turned_at = self.totals_at + squares * SQUARE_BYTES
        self.columns_at = self.turned_at + plan.is_turned * SQUARE_BYTES
        columns = plan.packed_column_pairs * 2 * plan.strip_bytes
        self.scratch_bytes = self.columns_at + columns

    def kernel(self) -> Kernel:
        """buffers: lhs, the blocks of rhs or rhs itself, result, what the epilogue reads, starts,
        the byte that is set for subnormal numbers where it checks, scratch.
        """
        w, c, plan = self.w, self.c, self.plan
        lhs, self.blocks = (w.buffer_address(i) for i in range(2))
        self.result = Result(w, plan.ring, c.out, 2, self.epilogue)
        self.result_prefetch = ResultPrefetch(
            w,
            c,
            plan.ring.target.machine,
            rows=2 * TILE,
            columns=2 * TILE,
            loads=4 * TILE * plan.steps,
        )
        first = 2 + self.result.buffers  # of the starts
        beyond = first + len(c.lhs.starts)
        if plan.packs_columns:
            self.rhs = address_0(w, self.blocks, c.rhs, beyond)
            beyond += len(c.rhs.starts)
        flag = w.buffer_address(beyond) if any(self.checks) else None
        self.flag, self.column_flag = (flag if checks else None for checks in self.checks)
        self.scratch = w.buffer_address(beyond + any(self.checks))
        self.stage = advanced(w, self.scratch, self.stage_at, "i8")
        self.lhs = address_0(w, lhs, c.lhs, first)
        self.tiles.configure(w)
        units = c.batches * plan.row_blocks * plan.column_blocks
        begin, end = (w.int(0), w.int(units)) if self.bounded else (BEGIN, END)
        remembering(w, begin, end, [w.int(-1)], self._unit)
        self.tiles.release(w)
        moved = c.m * c.k + c.k * c.n + 4 * c.m * c.n
        return Kernel(
            w.bounded_function() if self.bounded else w.kernel_function(),
            units,
            *w.beside,
            functions=tuple(self.functions),
            scratch_bytes=self.scratch_bytes,
            bytes_moved=c.batches * moved * plan.item_bytes,
            flops=c.flops // (plan.ring.target.machine.cycles.tiled * plan.group // 2),
            work=tile_work(plan),
            is_bounded=bool(self.bounded),
        )

    def _unit(self, unit: Value, packed_before: list[Value]) -> list[Value]:
        w, c, plan = self.w, self.c, self.plan
        b, row_block, column_block = split_index(
            w, unit, (1 << 40, plan.row_blocks, plan.column_blocks)
        )
        self.out_index = strided(w, b, [(a.size, a.out) for a in c.batch])
        rows = shared(w, row_block, plan.row_tiles // 2, plan.row_blocks)
        columns = shared(w, column_block, plan.column_tiles // 2, plan.column_blocks)
        if self.bounded == "rows":
            rows = self._within(rows, 2 * TILE)
        elif self.bounded == "columns":
            columns = self._within(columns, 2 * TILE)
        lhs = strided(w, b, [(a.size, a.lhs) for a in c.batch])
        base = element_address(w, self.lhs, lhs, c.lhs.dtype)
        step = plan.column_tiles * plan.strip_bytes
        moved: list[tuple[int, int]] = []
        for axis in reversed(c.batch):
            moved.insert(0, (axis.size, step if axis.rhs else 0))
            step *= axis.size if axis.rhs else 1
        blocks = advanced(w, self.blocks, strided(w, b, moved), "i8")

        if plan.blocks == 1:
            key = add(w, times(w, b, plan.row_blocks), row_block)
            is_new = w.compare("icmp ne", key, packed_before[0])
            steps = self._within((w.int(0), w.int(plan.steps)), plan.depths, "depth")
            if plan.packs_groups:
                self._pack_and_multiply(base, rows, columns, blocks, steps)
                return packed_before
            when(w, is_new, lambda: self._call_packing(base, rows, steps))
            if plan.packs_columns:
                self._pack_columns(b, rows, columns, steps)
            else:
                self._block(w.int(0), rows, columns, blocks, steps)
            return [key]
        self.own_blocks = self._within(
            (w.int(0), w.int(plan.blocks)), plan.block_steps * plan.depths, "depth"
        )

        def at_block(block: Value) -> None:
            first = times(w, block, plan.block_steps)
            end = add(w, first, clipped(w, first, plan.block_steps, plan.steps))
            steps = self._within((first, end), plan.depths, "depth")
            self._call_packing(base, rows, steps)
            self._block(block, rows, columns, blocks, steps)

        ranged(w, *self.own_blocks, at_block)
        return packed_before

    def _pack_and_multiply(
        self, base: Value, rows: Range, columns: Range, blocks: Value, steps: Range
    ) -> None:
        """Some pairs of tiles of a unit's rows after the other, while they are near."""

        def at_group(pairs: Range) -> None:
            self._call_packing(base, pairs, steps)
            self._block(self.w.int(0), pairs, columns, blocks, steps)

        in_groups(self.w, rows, self.plan.row_pairs, self.plan.packed_pairs, at_group)

    def _pack_columns(self, b: Value, rows: Range, columns: Range, steps: Range) -> None:
        """Some pairs of tiles of a unit's columns after the other, which meet all rows."""
        w, c, plan = self.w, self.c, self.plan
        moved = strided(w, b, [(a.size, a.rhs) for a in c.batch])
        base = element_address(w, self.rhs, moved, c.rhs.dtype)
        to = advanced(w, self.scratch, self.columns_at, "i8")

        def at_group(pairs: Range) -> None:
            tiles = times(w, pairs[0], 2), times(w, pairs[1], 2)
            pack_group(w, plan, base, to, tiles, self.column_flag)
            # Where the first of all columns would be.
            before = w.binary("sub", w.int(0), times(w, tiles[0], plan.strip_bytes))
            self._block(w.int(0), rows, pairs, advanced(w, to, before, "i8"), steps)

        in_groups(self.w, columns, plan.column_pairs, plan.packed_column_pairs, at_group)

    def _within(self, own: Range, size: int, side: str = "") -> Range:
        """What of some pieces of so many elements is between the bounds, where a side has some."""
        return own if side and side != self.bounded else within_bounds(self.w, own, size)

    def _block(
        self, block: Value, rows: Range, columns: Range, blocks: Value, steps: Range
    ) -> None:
        """The unit's squares over one block of steps, whose rows are packed."""
        w, plan = self.w, self.plan
        first, count = steps[0], w.binary("sub", steps[1], steps[0])
        rhs = advanced(w, blocks, times(w, first, TILE_BYTES), "i8")

        def at_column(column: Value) -> None:
            strip = advanced(w, rhs, times(w, column, 2 * plan.strip_bytes), "i8")
            before = times(w, w.binary("sub", column, columns[0]), plan.row_pairs)

            def at_row(row: Value) -> None:
                local = w.binary("sub", row, rows[0])
                strips = advanced(w, self.scratch, times(w, local, 2 * plan.row_strip_bytes), "i8")
                corner = times(w, row, 2 * TILE), times(w, column, 2 * TILE)
                if plan.blocks == 1:
                    index = add(w, self.out_index, corner[1])
                    self.result_prefetch.tile(self.result.address, index, corner[0])
                self._multiply_some(strips, strip, count, row, column)
                if plan.blocks == 1:
                    self._finish(*corner)
                else:
                    self._add_block(block, add(w, before, local), *corner)

            ranged(w, *rows, at_row)

        ranged(w, *columns, at_column)

    def _call_packing(self, base: Value, pairs: Range, steps: Range) -> None:
        """Rows of the unit to their tiles; LLVM takes as long for squares as for the product."""
        if self.plan.is_lhs_along_depth:
            self._pack_rows(base, pairs, steps)
            return
        product, scratch, flag = self.w, self.scratch, self.flag
        parameters = (base, scratch, *pairs, *steps, *([] if flag is None else [flag]))
        names = [Value(f"%x{i}", p.type) for i, p in enumerate(parameters)]
        self.w, self.scratch = w, _ = (Writer(), names[1])
        self.flag = None if flag is None else names[-1]
        self._pack_rows(names[0], (names[2], names[3]), (names[4], names[5]))
        self.w, self.scratch, self.flag = product, scratch, flag
        packing = as_function(w, names, has_entry=False)
        self.functions.append(packing)
        call(product, packing, *parameters)

    def _pack_rows(self, base: Value, pairs: Range, steps: Range) -> None:
        """Rows of the unit to their tiles, over some steps."""
        w, c = self.w, self.c
        first, end = (times(w, pair, 2 * TILE) for pair in pairs)
        last = w.intrinsic("llvm.umin", "i64", end, w.int(c.m))
        if self.plan.is_lhs_along_depth:
            ranged(w, first, last, lambda row: self._copy_row(base, row, first, steps))
            return
        begin = w.binary("udiv", first, w.int(TILE))
        beyond = w.binary("udiv", add(w, last, w.int(TILE - 1)), w.int(TILE))
        ranged(w, begin, beyond, lambda tile: self._transpose_tile(base, tile, begin, steps))

    def _copy_row(self, base: Value, row: Value, first: Value, steps: Range) -> None:
        """One row, 64 bytes of depth at a time."""
        w, c, plan = self.w, self.c, self.plan
        tile, r = split_index(w, w.binary("sub", row, first), (1 << 40, TILE))
        to = advanced(w, self.scratch, times(w, tile, plan.row_strip_bytes), "i8")
        to = advanced(w, to, times(w, r, STEP_BYTES), "i8")
        source = element_address(
            w, base, strided(w, row, [(a.size, a.lhs) for a in c.rows]), c.lhs.dtype
        )
        flag = self.flag

        def copy(moved: Value, local: Value, mask: Value | None) -> None:
            at = element_address(w, source, moved, c.lhs.dtype)
            raw = plan.loaded(w, "lhs", at, plan.depths, mask)
            if flag is not None:
                set_flag(w, are_subnormal(w, [raw]), flag)
            w.store(plan.elements(w, "lhs", raw), advanced(w, to, local, "i8"), 4)

        if plan.runs > 1 and plan.blocks == 1:
            self._copy_runs(copy)
            return

        def at_step(step: Value, mask: Value | None) -> None:
            moved = plan.moved(w, "lhs", times(w, step, plan.depths))
            copy(moved, times(w, w.binary("sub", step, steps[0]), TILE_BYTES), mask)

        if not plan.rest:
            ranged(w, *steps, lambda step: at_step(step, None))
            return
        rest = masked.first_of(plan.rest, plan.depths)

        def at_any(step: Value) -> None:
            own = split_index(w, step, (plan.runs, plan.run_steps))[1]
            is_last = w.compare("icmp eq", own, w.int(plan.run_steps - 1))
            when(w, is_last, lambda: at_step(step, rest), lambda: at_step(step, None))

        if plan.runs > 1:
            ranged(w, *steps, at_any)
            return
        whole = w.int(plan.steps - 1)
        last = w.intrinsic("llvm.umin", "i64", steps[1], whole)
        ranged(w, steps[0], last, lambda step: at_step(step, None))
        when(w, w.compare("icmp ugt", steps[1], whole), lambda: at_step(whole, rest))

    def _copy_runs(self, copy: Callable[[Value, Value, Value | None], None]) -> None:
        """One row, run after run, from places that are counted rather than divided out."""
        w, plan = self.w, self.plan
        outer = [(a.size, a.lhs) for a in plan.c.depth[:-1]]
        whole = plan.run_steps - (plan.rest > 0)

        def at_run(run: Value) -> None:
            first = strided(w, run, outer)
            begin = times(w, run, plan.run_steps * TILE_BYTES)

            def at_step(step: Value, mask: Value | None = None) -> None:
                moved = add(w, first, times(w, step, plan.depths))
                copy(moved, add(w, begin, times(w, step, TILE_BYTES)), mask)

            ranged(w, w.int(0), w.int(whole), at_step)
            if plan.rest:
                at_step(w.int(whole), masked.first_of(plan.rest, plan.depths))

        ranged(w, w.int(0), w.int(plan.runs), at_run)

    def _transpose_tile(self, base: Value, tile: Value, first: Value, steps: Range) -> None:
        """16 rows that are neighbours: squares of 4 x 4 words in each 128 bits, stored by these."""
        w, c, plan = self.w, self.c, self.plan
        row = times(w, tile, TILE)
        exists = below(w, row, c.m, TILE)
        moved = strided(w, row, [(a.size, a.lhs) for a in c.rows])
        start = element_address(w, base, moved, c.lhs.dtype)
        local = times(w, w.binary("sub", tile, first), plan.row_strip_bytes)
        to = advanced(w, self.scratch, local, "i8")

        first_quarter, end_quarter = (times(w, step, 4) for step in steps)

        def at_quarter(i: Value) -> None:
            step, quarter = split_index(w, i, (1 << 40, 4))
            k = times(w, add(w, i, first_quarter), plan.quarter)
            first = [add(w, k, w.int(g * plan.group)) for g in range(4)]
            words = [group_words(w, plan, "lhs", start, k, exists, self.flag) for k in first]
            target = advanced(w, to, times(w, step, TILE_BYTES), "i8")
            target = advanced(w, target, times(w, quarter, 16), "i8")
            for j, vector in enumerate(turned_parts(w, words)):
                for part in range(4):
                    piece = w.shuffle(vector, None, range(4 * part, 4 * part + 4))
                    w.store(piece, advanced(w, target, (4 * part + j) * STEP_BYTES, "i8"), 4)

        ranged(w, w.int(0), w.binary("sub", end_quarter, first_quarter), at_quarter)

    def _add_block(self, block: Value, square: Value, row: Value, column: Value) -> None:
        """The sums of one block of steps, added to those of the blocks before; the last one's are
        finished.
        """
        w, plan = self.w, self.plan
        count = SQUARE_BYTES // 4 // plan.ring.lanes
        all_totals = advanced(w, self.scratch, self.totals_at, "i8")
        totals = advanced(w, all_totals, times(w, square, SQUARE_BYTES), "i8")
        is_first = w.compare("icmp eq", block, self.own_blocks[0])

        def at_vector(v: Value) -> None:
            parts, total = (
                advanced(w, memory, times(w, v, plan.ring.lanes), plan.ring.scalar)
                for memory in (self.stage, totals)
            )
            new, before = (
                w.load(at, plan.ring.vector, plan.ring.scalar_bytes) for at in (parts, total)
            )
            sums = w.binary("fadd" if plan.ring.rounds else "add", before, new)
            both = w.select(is_first, new, sums)
            w.store(both, total, plan.ring.scalar_bytes)

        self._stage_tiles()
        ranged(w, w.int(0), w.int(count), at_vector)
        is_last = w.compare("icmp eq", add(w, block, w.int(1)), self.own_blocks[1])
        when(w, is_last, lambda: self._store_rows(totals, row, column))

    def _multiply_some(
        self, rows: Value, strip: Value, steps: Value, row: Value, column: Value
    ) -> None:
        """Those of 2 x 2 tiles of sums that exist: the last pair of an odd number is one."""
        w, c = self.w, self.c

        def by_rows(count: int) -> None:
            def by_columns(number: int) -> None:
                self._multiply(rows, strip, steps, (count, number))

            self._by_pair(column, c.n, by_columns)

        for tile in range(4):
            self.tiles.zero(w, tile)
        self._by_pair(row, c.m, by_rows)

    def _by_pair(self, pair: Value, size: int, body: Callable[[int], None]) -> None:
        """body of as many tiles as a pair has."""
        w, (pairs, odd) = self.w, divmod(-(-size // TILE), 2)
        if odd and pairs:
            is_last = w.compare("icmp eq", pair, w.int(pairs))
            when(w, is_last, lambda: body(1), lambda: body(2))
        else:
            body(1 if odd else 2)

    def _multiply(self, rows: Value, strip: Value, steps: Value, shape: tuple[int, int]) -> None:
        """Tiles of sums over some steps, in tile registers. shape: how many by how many."""
        w, plan = self.w, self.plan

        def at_step(step: Value, _: list[Value]) -> list[Value]:
            moved = times(w, step, TILE_BYTES)

            def filled(register: int) -> None:
                side, i = divmod(register - 4, 2)
                at, apart = ((rows, plan.row_strip_bytes), (strip, plan.strip_bytes))[side]
                at = advanced(w, at, add(w, moved, w.int(i * apart)), "i8")
                self.tiles.load(w, register, at, STEP_BYTES)
                self._ask_for(advanced(w, at, TILE_BYTES, "i8"))

            # A product begins when its two factors are there.
            for tile, registers in enumerate(((6, 4), (7,), (5,), ())):
                if tile // 2 < shape[0] and tile % 2 < shape[1]:
                    for register in registers:
                        filled(register)
                    self.tiles.multiply(w, tile, 4 + tile // 2, 6 + tile % 2)
            return []

        loop(w, steps, [], at_step)

    def _ask_for(self, tile: Value) -> None:
        """For the lines of a tile that is loaded a step later. Rows come from the second cache, and
        where two processors share a core's window and caches, columns too: on such a host a product
        of 1024 x 1024 x 1024 takes 0.62 of the time, 1.03 on an idle one.
        """
        for byte in range(0, TILE_BYTES, self.plan.ring.target.machine.line_bytes):
            self.w.prefetch(advanced(self.w, tile, byte, "i8"))

    @property
    def _is_direct(self) -> bool:
        """Whether sums are results as they are, in rows of one stride."""
        held = storage_scalar(self.c.out) == self.plan.ring.scalar
        is_plain = self.epilogue is None and not self.plan.is_turned
        return held and is_plain and len(self.result_rows) == 1

    def _finish(self, row: Value, column: Value) -> None:
        """Sums in tile registers to the result."""
        w = self.w
        if not self._is_direct:
            self._finish_staged(row, column)
            return
        whole = w.compare("icmp ule", add(w, row, w.int(2 * TILE)), w.int(self.c.m))
        across = w.compare("icmp ule", add(w, column, w.int(2 * TILE)), w.int(self.c.n))
        when(
            w,
            w.binary("and", whole, across),
            lambda: self._finish_direct(row, column),
            lambda: self._finish_staged(row, column),
        )

    def _finish_direct(self, row: Value, column: Value) -> None:
        w, c = self.w, self.c
        ((_, stride),) = self.result_rows
        index = add(w, add(w, self.out_index, times(w, row, stride)), column)
        corner = element_address(w, self.result.address, index, c.out)
        for tile in range(4):
            offset = (tile // 2) * TILE * stride + (tile % 2) * TILE
            at = element_address(w, corner, w.int(offset), c.out)
            self.tiles.store(w, tile, at, 4 * stride)

    def _finish_staged(self, row: Value, column: Value) -> None:
        self._stage_tiles()
        self._store_rows(self.stage, row, column)

    def _stage_tiles(self) -> None:
        width = 2 * TILE * 4
        for tile in range(4):
            offset = (tile // 2) * TILE * width + (tile % 2) * TILE * 4
            at = advanced(self.w, self.stage, offset, "i8")
            self.tiles.store(self.w, tile, at, width)

    def _store_rows(self, finished: Value, row: Value, column: Value) -> None:
        """Rows and columns of finished sums that exist, to the result."""
        w, c, ring = self.w, self.plan.by_result, self.plan.ring
        if self.plan.is_turned:
            to = advanced(w, self.scratch, self.turned_at, "i8")
            turn_squares(w, ring, finished, to)
            finished, row, column = to, column, row
        lanes = ring.lanes
        starts = [add(w, column, w.int(v)) for v in range(0, 2 * TILE, lanes)]
        masks = [below(w, s, c.n, lanes) if c.n % (2 * TILE) else None for s in starts]
        left = w.binary("sub", w.int(c.m), row)
        count = w.intrinsic("llvm.umin", "i64", left, w.int(2 * TILE))

        def at_row(r: Value) -> None:
            offset = add(w, self.out_index, strided(w, add(w, row, r), self.result_rows))
            at = advanced(w, finished, times(w, r, 2 * TILE), ring.scalar)
            for v, (start, mask) in enumerate(zip(starts, masks, strict=True)):
                address = advanced(w, at, v * lanes, ring.scalar)
                sums = w.load(address, ring.vector, ring.scalar_bytes)
                self.result.store((sums,), add(w, offset, start), 1, mask)

        ranged(w, w.int(0), count, at_row)
