"""The product on the matrix units: 2 x 2 tiles of sums at a time (amx.py)."""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, advanced, clipped, shared, split_index, strided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.control import loop, ranged, remembering, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.matrix_units.amx import STEP_BYTES, TILE, TILE_BYTES, TilePlan
from hlo.backend.kernels.contraction.matrix_units.packing import group_words
from hlo.backend.kernels.contraction.problem.beginnings import address_0
from hlo.backend.kernels.contraction.problem.result import Epilogue, Result
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.lanes import masked
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.transposed import turned_parts
from hlo.backend.lanes.types import storage_scalar

SQUARE_BYTES = 4 * TILE * TILE * 4  # Bytes of 2 x 2 tiles of sums.


class AmxProduct:
    """The product being written. Tile registers: 0-3 sums, 4 5 rows, 6 7 columns."""

    def __init__(self, plan: TilePlan, epilogue: Epilogue | None) -> None:
        self.w = Writer()
        self.plan = plan
        self.c = plan.c
        self.tiles = plan.tiles
        self.epilogue = epilogue
        self.functions: list[Kernel] = []
        pairs = -(-plan.row_tiles // 2 // plan.row_blocks)
        self.stage_at = pairs * 2 * plan.strip_bytes
        self.totals_at = self.stage_at + SQUARE_BYTES
        self.scratch_bytes = self.totals_at + (SQUARE_BYTES if plan.blocks > 1 else 0)

    def kernel(self) -> Kernel:
        """buffers: lhs, the blocks of rhs, result, what the epilogue reads, starts, scratch."""
        w, c, plan = self.w, self.c, self.plan
        lhs, self.blocks = (w.buffer_address(i) for i in range(2))
        self.result = Result(w, plan.ring, c.out, 2, self.epilogue)
        first = 2 + self.result.buffers  # of the starts
        self.scratch = w.buffer_address(first + len(c.lhs.starts))
        self.stage = self.finished = advanced(w, self.scratch, self.stage_at, "i8")
        self.lhs = address_0(w, lhs, c.lhs, first)
        self.tiles.configure(w)
        begin, end = BEGIN, END
        remembering(w, begin, end, [w.int(-1)], self._unit)
        self.tiles.release(w)
        moved = c.m * c.k + c.k * c.n + 4 * c.m * c.n
        return Kernel(
            w.kernel_function(),
            c.batches * plan.row_blocks * plan.column_blocks,
            *w.beside,
            functions=tuple(self.functions),
            scratch_bytes=self.scratch_bytes,
            bytes_moved=c.batches * moved * plan.item_bytes,
            flops=c.flops // 16,  # what an f32 product would cost in that time
        )

    def _unit(self, unit: Value, packed_before: list[Value]) -> list[Value]:
        w, c, plan = self.w, self.c, self.plan
        b, row_block, column_block = split_index(
            w, unit, (1 << 40, plan.row_blocks, plan.column_blocks)
        )
        self.out_index = strided(w, b, [(a.size, a.out) for a in c.batch])
        rows = shared(w, row_block, plan.row_tiles // 2, plan.row_blocks)
        columns = shared(w, column_block, plan.column_tiles // 2, plan.column_blocks)
        key = add(w, times(w, b, plan.row_blocks), row_block)
        changed = w.cast("zext", w.compare("icmp ne", key, packed_before[0]), "i64")
        lhs = strided(w, b, [(a.size, a.lhs) for a in c.batch])
        base = element_address(w, self.lhs, lhs, c.lhs.dtype)
        ranged(w, w.int(0), changed, lambda _: self._call_packing(base, rows))
        step = plan.column_tiles * plan.strip_bytes
        moved: list[tuple[int, int]] = []
        for axis in reversed(c.batch):
            moved.insert(0, (axis.size, step if axis.rhs else 0))
            step *= axis.size if axis.rhs else 1
        blocks = advanced(w, self.blocks, strided(w, b, moved), "i8")

        def at_pair(pair: Value) -> None:
            strip = advanced(w, blocks, times(w, pair, 2 * plan.strip_bytes), "i8")
            ranged(w, *rows, lambda r: self._square(r, rows[0], strip, times(w, pair, 2 * TILE)))

        ranged(w, *columns, at_pair)
        return [key]

    def _call_packing(self, base: Value, pairs: tuple[Value, Value]) -> None:
        """Rows of the unit to their tiles; LLVM takes as long for squares as for the product."""
        if self.plan.is_lhs_along_depth:
            self._pack_rows(base, pairs)
            return
        product, scratch = self.w, self.scratch
        parameters = (base, scratch, *pairs)
        names = [Value(f"%x{i}", p.type) for i, p in enumerate(parameters)]
        self.w, self.scratch = w, _ = (Writer(), names[1])
        self._pack_rows(names[0], (names[2], names[3]))
        self.w, self.scratch = product, scratch
        packing = as_function(w, names, has_entry=False)
        self.functions.append(packing)
        call(product, packing, *parameters)

    def _pack_rows(self, base: Value, pairs: tuple[Value, Value]) -> None:
        """Rows of the unit to their tiles."""
        w, c = self.w, self.c
        first, end = (times(w, pair, 2 * TILE) for pair in pairs)
        last = w.intrinsic("llvm.umin", "i64", end, w.int(c.m))
        if self.plan.is_lhs_along_depth:
            ranged(w, first, last, lambda row: self._copy_row(base, row, first))
            return
        begin = w.binary("udiv", first, w.int(TILE))
        beyond = w.binary("udiv", add(w, last, w.int(TILE - 1)), w.int(TILE))
        ranged(w, begin, beyond, lambda tile: self._transpose_tile(base, tile, begin))

    def _copy_row(self, base: Value, row: Value, first: Value) -> None:
        """One row, 64 bytes of depth at a time."""
        w, c, plan = self.w, self.c, self.plan
        tile, r = split_index(w, w.binary("sub", row, first), (1 << 40, TILE))
        to = advanced(w, self.scratch, times(w, tile, plan.strip_bytes), "i8")
        to = advanced(w, to, times(w, r, STEP_BYTES), "i8")
        source = element_address(
            w, base, strided(w, row, [(a.size, a.lhs) for a in c.rows]), c.lhs.dtype
        )
        depth = [(a.size, a.lhs) for a in c.depth]

        def copy(step: Value, mask: Value | None) -> list[Value]:
            offset = strided(w, times(w, step, plan.depths), depth)
            at = element_address(w, source, offset, c.lhs.dtype)
            raw = plan.loaded(w, "lhs", at, plan.depths, mask)
            w.store(
                plan.elements(w, "lhs", raw), advanced(w, to, times(w, step, TILE_BYTES), "i8"), 4
            )
            return []

        whole, rest = divmod(c.k, plan.depths)
        loop(w, w.int(whole), [], lambda step, _: copy(step, None))
        if rest:
            copy(w.int(whole), masked.first_of(rest, plan.depths))

    def _transpose_tile(self, base: Value, tile: Value, first: Value) -> None:
        """16 rows that are neighbours: squares of 4 x 4 words in each 128 bits, stored by these."""
        w, c, plan = self.w, self.c, self.plan
        row = times(w, tile, TILE)
        exists = below(w, row, c.m, TILE)
        moved = strided(w, row, [(a.size, a.lhs) for a in c.rows])
        start = element_address(w, base, moved, c.lhs.dtype)
        local = times(w, w.binary("sub", tile, first), plan.strip_bytes)
        to = advanced(w, self.scratch, local, "i8")

        def at_quarter(i: Value, _: list[Value]) -> list[Value]:
            step, quarter = split_index(w, i, (1 << 40, 4))
            k = times(w, i, plan.quarter)
            words = [
                group_words(w, plan, "lhs", start, add(w, k, w.int(g * plan.group)), exists)
                for g in range(4)
            ]
            target = advanced(w, to, times(w, step, TILE_BYTES), "i8")
            target = advanced(w, target, times(w, quarter, 16), "i8")
            for j, vector in enumerate(turned_parts(w, words)):
                for part in range(4):
                    piece = w.shuffle(vector, None, range(4 * part, 4 * part + 4))
                    w.store(piece, advanced(w, target, (4 * part + j) * STEP_BYTES, "i8"), 4)
            return []

        loop(w, w.int(4 * plan.steps), [], at_quarter)

    def _square(self, pair: Value, first: Value, strip: Value, column: Value) -> None:
        """2 x 2 tiles of sums over all of depth, in blocks of steps where it is long."""
        w, plan = self.w, self.plan
        local = times(w, w.binary("sub", pair, first), 2 * plan.strip_bytes)
        rows = advanced(w, self.scratch, local, "i8")
        row = times(w, pair, 2 * TILE)
        if plan.blocks > 1:
            self._blocks(rows, strip)
            self._finish(row, column)
            return
        self._multiply(rows, strip, w.int(plan.steps))
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

    def _blocks(self, rows: Value, strip: Value) -> None:
        """One block of steps after the other, their sums added up in scratch."""
        w, plan = self.w, self.plan
        count = SQUARE_BYTES // 4 // plan.ring.lanes
        totals = advanced(w, self.scratch, self.totals_at, "i8")

        def at_vector(v: Value, is_first: Value) -> None:
            parts, total = (
                advanced(w, memory, times(w, v, plan.ring.lanes), plan.ring.scalar)
                for memory in (self.stage, totals)
            )
            new, before = (
                w.load(at, plan.ring.vector, plan.ring.scalar_bytes) for at in (parts, total)
            )
            both = w.select(is_first, new, w.binary("fadd", before, new))
            w.store(both, total, plan.ring.scalar_bytes)

        def at_block(block: Value) -> None:
            first = times(w, block, plan.block_steps)
            moved = times(w, first, TILE_BYTES)
            left = clipped(w, first, plan.block_steps, plan.steps)
            lhs, rhs = (advanced(w, at, moved, "i8") for at in (rows, strip))
            self._multiply(lhs, rhs, left)
            self._stage_tiles()
            is_first = w.compare("icmp eq", block, w.int(0))
            ranged(w, w.int(0), w.int(count), lambda v: at_vector(v, is_first))

        ranged(w, w.int(0), w.int(plan.blocks), at_block)
        self.finished = totals

    def _multiply(self, rows: Value, strip: Value, steps: Value) -> None:
        """2 x 2 tiles of sums over some steps, in tile registers."""
        w, plan = self.w, self.plan
        for tile in range(4):
            self.tiles.zero(w, tile)

        def at_step(step: Value, _: list[Value]) -> list[Value]:
            moved = times(w, step, TILE_BYTES)
            for i in range(2):
                for register, strips in ((4 + i, rows), (6 + i, strip)):
                    at = advanced(w, strips, add(w, moved, w.int(i * plan.strip_bytes)), "i8")
                    self.tiles.load(w, register, at, STEP_BYTES)
            for tile in range(4):
                self.tiles.multiply(w, tile, 4 + tile // 2, 6 + tile % 2)
            return []

        loop(w, steps, [], at_step)

    @property
    def _is_direct(self) -> bool:
        """Whether sums are results as they are, in rows of one stride."""
        held = storage_scalar(self.c.out) == self.plan.ring.scalar
        return held and self.epilogue is None and len(self.c.rows) == 1

    def _finish_direct(self, row: Value, column: Value) -> None:
        w, c = self.w, self.c
        stride = c.rows[0].out
        index = add(w, add(w, self.out_index, times(w, row, stride)), column)
        corner = element_address(w, self.result.address, index, c.out)
        for tile in range(4):
            offset = (tile // 2) * TILE * stride + (tile % 2) * TILE
            at = element_address(w, corner, w.int(offset), c.out)
            self.tiles.store(w, tile, at, 4 * stride)

    def _finish_staged(self, row: Value, column: Value) -> None:
        self._stage_tiles()
        self._finish(row, column)

    def _stage_tiles(self) -> None:
        width = 2 * TILE * 4
        for tile in range(4):
            offset = (tile // 2) * TILE * width + (tile % 2) * TILE * 4
            at = advanced(self.w, self.stage, offset, "i8")
            self.tiles.store(self.w, tile, at, width)

    def _finish(self, row: Value, column: Value) -> None:
        """Rows and columns of finished sums that exist, to the result."""
        w, c, ring = self.w, self.c, self.plan.ring
        axes = [(a.size, a.out) for a in c.rows]
        lanes = ring.lanes
        starts = [add(w, column, w.int(v)) for v in range(0, 2 * TILE, lanes)]
        masks = [below(w, s, c.n, lanes) if c.n % (2 * TILE) else None for s in starts]
        left = w.binary("sub", w.int(c.m), row)
        count = w.intrinsic("llvm.umin", "i64", left, w.int(2 * TILE))

        def at_row(r: Value) -> None:
            offset = add(w, self.out_index, strided(w, add(w, row, r), axes))
            at = advanced(w, self.finished, times(w, r, 2 * TILE), ring.scalar)
            for v, (start, mask) in enumerate(zip(starts, masks, strict=True)):
                address = advanced(w, at, v * lanes, ring.scalar)
                sums = w.load(address, ring.vector, ring.scalar_bytes)
                self.result.store((sums,), add(w, offset, start), 1, mask)

        ranged(w, w.int(0), count, at_row)
