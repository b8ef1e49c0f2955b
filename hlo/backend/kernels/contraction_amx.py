"""Tile products: bf16 and 8-bit contractions on the matrix units of AMX.

    lhs -> blocks [tile of 16 rows][step][row][64 bytes of depth]            in scratch, by a unit
    rhs -> blocks [tile of 16 columns][step][depth / group][column][group]   by a kernel before
    2 x 2 tiles of 16 x 16 sums per round of `step` depths; finished sums leave through the stage

A step is 64 bytes of depth; a group (2 bf16 or 4 bytes) fills 32 bits. Sums are f32 or s32, as
elsewhere; the unit takes subnormal bf16 as zero. Linux grants the tile registers to a process on
request; each kernel asks again (0.2 us), since its object may come from a cache.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import cache

from hlo.backend.kernels.contraction_axes import Axes, Contraction, extent
from hlo.backend.kernels.contraction_loops import (
    add,
    advanced,
    buffer_address,
    kernel_text,
    loop,
    ranged,
    remembering,
    shared,
    split_index,
    strided,
    times,
    when,
)
from hlo.backend.kernels.contraction_packing import (
    Block,
    Packing,
    Panels,
    Source,
    below,
    pack,
    transposed,
)
from hlo.backend.kernels.contraction_result import Epilogue, Result
from hlo.backend.kernels.contraction_ring import Ring, element_address, read, ring_of
from hlo.backend.kernels.kernel import Kernel
from hlo.backend.types import storage_scalar
from hlo.backend.writer import Value, Writer
from hlo.ir import dtype as dt

TILE = 16  # rows and columns of a tile of sums
STEP_BYTES = 64
TILE_BYTES = TILE * STEP_BYTES
LEAST_ROWS = 9  # fewer are bound by memory
LEAST_FLOPS = 1 << 19
BLOCK_BYTES = 512 << 10
UNITS = 16

_SYS_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def is_permitted() -> bool:
    """Whether this process may use tile registers (asked once)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return int(call(_SYS_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)) == 0


@dataclass(frozen=True, slots=True)
class TilePlan:
    """A contraction for the matrix units. group: depths in 32 bits; instruction: its name."""

    c: Contraction
    ring: Ring
    group: int
    instruction: str

    @property
    def depths(self) -> int:
        """Depths of one step."""
        return STEP_BYTES // self.item_bytes

    @property
    def item_bytes(self) -> int:
        return 4 // self.group

    @property
    def element(self) -> str:
        return f"i{8 * self.item_bytes}"

    @property
    def steps(self) -> int:
        return -(-self.c.k // self.depths)

    @property
    def row_tiles(self) -> int:
        return -(-self.c.m // (2 * TILE)) * 2

    @property
    def column_tiles(self) -> int:
        return -(-self.c.n // (2 * TILE)) * 2

    @property
    def strip_bytes(self) -> int:
        """Bytes of one packed tile of rows or columns over all of depth."""
        return self.steps * TILE_BYTES

    @property
    def row_blocks(self) -> int:
        pairs = self.row_tiles // 2
        return min(pairs, max(1, pairs * 2 * self.strip_bytes // BLOCK_BYTES))

    @property
    def column_blocks(self) -> int:
        wanted = min(UNITS, max(1, self.c.flops >> 24))
        wanted = -(-wanted // (self.c.batches * self.row_blocks))
        return min(self.column_tiles // 2, wanted)

    @property
    def is_lhs_along_depth(self) -> bool:
        return self._runs(self.c.depth, "lhs", self.depths)

    @property
    def is_rhs_along_depth(self) -> bool:
        """Whether the columns lie along depth, in words that hold whole groups."""
        inner, *axes = reversed(self.c.depth)
        strides = [a.rhs for a in (*axes, *self.c.columns, *self.c.batch)] + [self.c.rhs.offset]
        whole = self.c.k % self.depths == 0 and inner.size % self.group == 0
        return inner.rhs == 1 and whole and all(s % self.group == 0 for s in strides)

    @property
    def fits(self) -> bool:
        """Whether both factors lie so that they can be packed."""
        lhs = self.is_lhs_along_depth or self._runs(self.c.rows, "lhs", TILE)
        return lhs and (self.is_rhs_along_depth or self._runs(self.c.columns, "rhs", TILE))

    @staticmethod
    def _runs(axes: Axes, side: str, length: int) -> bool:
        """Whether `length` indices from a multiple of it are neighbours in memory."""
        if not axes or getattr(axes[-1], side) != 1:
            return False
        return len(axes) == 1 or axes[-1].size % length == 0


def tile_plan(c: Contraction, ring: Ring) -> TilePlan | None:
    """How the matrix units would do it; None where they cannot, or need not."""
    form = _instruction(c, ring)
    if form is None or c.m < LEAST_ROWS or c.n < TILE or c.flops < LEAST_FLOPS:
        return None
    plan = TilePlan(c, ring, *form)
    if c.k < plan.depths or c.is_diagonal or c.columns[-1].out != 1 or not plan.fits:
        return None
    return plan if is_permitted() else None


def _instruction(c: Contraction, ring: Ring) -> tuple[int, str] | None:
    """(group, name of the product) for the operands' types."""
    has = ring.target.has
    types = (c.lhs.dtype, c.rhs.dtype)
    if types == (dt.BF16, dt.BF16) and has("amx-bf16") and ring.scalar == "float":
        return (2, "tdpbf16ps") if ring.parts == 1 else None
    signs = {dt.S8: "s", dt.U8: "u"}
    is_integer = ring.scalar == "i32" and not ring.result.is_pred
    if is_integer and has("amx-int8") and types[0] in signs and types[1] in signs:
        return 4, f"tdpb{signs[types[0]]}{signs[types[1]]}d"
    return None


# -- the columns, packed beforehand ----------------------------------------------------------------


def tile_packing_kernel(plan: TilePlan) -> tuple[Kernel, int]:
    """buffers: rhs, blocks. The kernel, and the bytes of the blocks."""
    c = plan.c
    batch: Axes = tuple(a for a in c.batch if a.rhs)
    w = Writer()
    source, target = (buffer_address(w, i) for i in (0, 1))
    source = element_address(w, source, w.int(c.rhs.offset), c.rhs.dtype)
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

    ranged(w, Value("%begin", "i64"), Value("%end", "i64"), unit)
    size = extent(batch) * plan.column_tiles * plan.strip_bytes
    units = extent(batch) * parts
    declarations = tuple(w.declarations.values())
    return Kernel(kernel_text(w), units, declarations, bytes_moved=2 * size), size


def _pack_columns(w: Writer, plan: TilePlan, base: Value, to: Value, tile: Value) -> None:
    """One tile of columns that lie along depth: groups are words, and these are transposed."""
    c, group = plan.c, plan.group
    words = ring_of(dt.S32, plan.ring.target)
    free = tuple((a.size, a.rhs // group) for a in c.columns)
    inner = c.depth[-1].size // group
    depth = (*((a.size, a.rhs // group) for a in c.depth[:-1]), (inner, 1))
    count = -(-c.n // TILE)
    packing = Packing(words, Source(dt.S32, free, depth), Panels(count, TILE, TILE, count))
    exists = w.compare("icmp ult", tile, w.int(count))
    some = w.cast("zext", exists, "i64")
    target = advanced(w, to, times(w, tile, plan.strip_bytes), "i8")
    block = Block(base, target, tile, w.int(1), w.int(0), w.int(c.k // group))
    ranged(w, w.int(0), some, lambda _: pack(w, packing, block))


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
            joined = _group(w, plan, start, first, depth, exists)
            w.store(joined, advanced(w, target, times(w, g, STEP_BYTES), "i8"), 4)
            return []

        loop(w, w.int(TILE), [], at_group)

    ranged(w, w.int(0), w.int(plan.column_tiles), at_tile)


def _group(
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
        rows.append(read(w, f"<{TILE} x {plan.element}>", address, plan.item_bytes, mask))
    return _interleaved(w, rows)


def _interleaved(w: Writer, rows: list[Value]) -> Value:
    """Lane 0 of every row, lane 1 of every row, ... (a power of two of rows)."""
    while len(rows) > 1:
        half = len(rows) // 2
        pairs = zip(rows[:half], rows[half:], strict=True)
        rows = [_zipped(w, a, b) for a, b in pairs]
    return rows[0]


def _zipped(w: Writer, a: Value, b: Value) -> Value:
    lanes = 2 * a.lanes
    order = ", ".join(f"i32 {i // 2 + (i % 2) * a.lanes}" for i in range(lanes))
    type = f"<{lanes} x {a.scalar_type}>"
    return w.pure(type, f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{order}>")


# -- the product -------------------------------------------------------------------------------


def tile_product_kernel(plan: TilePlan, epilogue: Epilogue | None = None) -> Kernel:
    """buffers: lhs, the blocks of rhs, result, what the epilogue reads, scratch."""
    return _TileProduct(plan, epilogue).kernel()


class _TileProduct:
    """The product being written. Tile registers: 0-3 sums, 4 5 rows, 6 7 columns."""

    def __init__(self, plan: TilePlan, epilogue: Epilogue | None) -> None:
        self.w = Writer()
        self.plan = plan
        self.c = plan.c
        self.epilogue = epilogue
        pairs = -(-plan.row_tiles // 2 // plan.row_blocks)
        self.stage_at = pairs * 2 * plan.strip_bytes
        self.scratch_bytes = self.stage_at + 4 * TILE * TILE * 4

    def kernel(self) -> Kernel:
        w, c, plan = self.w, self.c, self.plan
        lhs, self.blocks = (buffer_address(w, i) for i in range(2))
        self.result = Result(w, plan.ring, c.out, 2, self.epilogue)
        self.scratch = buffer_address(w, 2 + self.result.buffers)
        self.stage = advanced(w, self.scratch, self.stage_at, "i8")
        self.lhs = element_address(w, lhs, w.int(c.lhs.offset), c.lhs.dtype)
        self._configure()
        begin, end = Value("%begin", "i64"), Value("%end", "i64")
        remembering(w, begin, end, [w.int(-1)], self._unit)
        w.declare("void", "llvm.x86.tilerelease", [])
        w.emit("call void @llvm.x86.tilerelease()")
        moved = c.m * c.k + c.k * c.n + 4 * c.m * c.n
        return Kernel(
            kernel_text(w),
            c.batches * plan.row_blocks * plan.column_blocks,
            tuple(w.declarations.values()),
            scratch_bytes=self.scratch_bytes,
            bytes_moved=c.batches * moved * plan.item_bytes,
            flops=c.flops // 16,  # what an f32 product would cost in that time
        )

    def _configure(self) -> None:
        """Permission, then eight tiles of 16 rows of 64 bytes."""
        w = self.w
        w.declare("i64", "syscall", ["i64", "..."])
        w.emit(
            f"call i64 (i64, ...) @syscall(i64 {_SYS_ARCH_PRCTL}, i64 {_REQUEST_PERMISSION},"
            f" i64 {_TILE_DATA})"
        )
        sizes = [1, 0] + [0] * 14 + [STEP_BYTES, 0] * 8 + [0] * 16 + [TILE] * 8 + [0] * 8
        words = [int.from_bytes(bytes(sizes[i : i + 4]), "little") for i in range(0, 64, 4)]
        text = ", ".join(f"i32 {word}" for word in words)
        table = w.assign("ptr", "alloca [64 x i8], align 64")
        w.store(Value(f"<{text}>", "<16 x i32>"), table, 64)
        w.declare("void", "llvm.x86.ldtilecfg", ["ptr"])
        w.emit(f"call void @llvm.x86.ldtilecfg(ptr {table})")

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
        ranged(w, w.int(0), changed, lambda _: self._pack_rows(base, rows))
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
        source = w.address(base, strided(w, row, [(a.size, a.lhs) for a in c.rows]), plan.element)
        depth = [(a.size, a.lhs) for a in c.depth]

        def copy(step: Value, mask: Value | None) -> list[Value]:
            offset = strided(w, times(w, step, plan.depths), depth)
            address = w.address(source, offset, plan.element)
            type = f"<{plan.depths} x {plan.element}>"
            value = read(w, type, address, plan.item_bytes, mask)
            w.store(value, advanced(w, to, times(w, step, TILE_BYTES), "i8"), 4)
            return []

        whole, rest = divmod(c.k, plan.depths)
        loop(w, w.int(whole), [], lambda step, _: copy(step, None))
        if rest:
            kept = ", ".join(f"i1 {int(i < rest)}" for i in range(plan.depths))
            copy(w.int(whole), Value(f"<{kept}>", f"<{plan.depths} x i1>"))

    def _transpose_tile(self, base: Value, tile: Value, first: Value) -> None:
        """16 rows that are neighbours: squares of 4 x 4 words in each 128 bits, stored by these."""
        w, c, plan = self.w, self.c, self.plan
        row = times(w, tile, TILE)
        exists = below(w, row, c.m, TILE)
        start = w.address(base, strided(w, row, [(a.size, a.lhs) for a in c.rows]), plan.element)
        local = times(w, w.binary("sub", tile, first), plan.strip_bytes)
        to = advanced(w, self.scratch, local, "i8")
        depth = [(a.size, a.lhs) for a in c.depth]

        def at_quarter(i: Value, _: list[Value]) -> list[Value]:
            step, quarter = split_index(w, i, (1 << 40, 4))
            k = times(w, i, plan.depths // 4)
            words = [
                _group(w, plan, start, add(w, k, w.int(g * plan.group)), depth, exists)
                for g in range(4)
            ]
            words = [w.cast("bitcast", x, "<16 x i32>") for x in words]
            target = advanced(w, to, times(w, step, TILE_BYTES), "i8")
            target = advanced(w, target, times(w, quarter, 16), "i8")
            for j, vector in enumerate(transposed(w, words)):
                for part in range(4):
                    order = ", ".join(f"i32 {4 * part + lane}" for lane in range(4))
                    piece = w.pure(
                        "<4 x i32>",
                        f"shufflevector {vector.typed}, <16 x i32> poison, <4 x i32> <{order}>",
                    )
                    w.store(piece, advanced(w, target, (4 * part + j) * STEP_BYTES, "i8"), 4)
            return []

        loop(w, w.int(4 * plan.steps), [], at_quarter)

    def _square(self, pair: Value, first: Value, strip: Value, column: Value) -> None:
        """2 x 2 tiles of sums over all of depth."""
        w, plan = self.w, self.plan
        local = times(w, w.binary("sub", pair, first), 2 * plan.strip_bytes)
        rows = advanced(w, self.scratch, local, "i8")
        for tile in range(4):
            self._tile("tilezero", f"i8 {tile}")

        def at_step(step: Value, _: list[Value]) -> list[Value]:
            moved = times(w, step, TILE_BYTES)
            for i in range(2):
                for register, strips in ((4 + i, rows), (6 + i, strip)):
                    at = advanced(w, strips, add(w, moved, w.int(i * plan.strip_bytes)), "i8")
                    self._tile("tileloadd64", f"i8 {register}", f"ptr {at}", f"i64 {STEP_BYTES}")
            for tile in range(4):
                self._tile(
                    plan.instruction, f"i8 {tile}", f"i8 {4 + tile // 2}", f"i8 {6 + tile % 2}"
                )
            return []

        loop(w, w.int(plan.steps), [], at_step)
        row = times(w, pair, 2 * TILE)
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
            self._tile("tilestored64", f"i8 {tile}", f"ptr {at}", f"i64 {4 * stride}")

    def _finish_staged(self, row: Value, column: Value) -> None:
        width = 2 * TILE * 4
        for tile in range(4):
            offset = (tile // 2) * TILE * width + (tile % 2) * TILE * 4
            at = advanced(self.w, self.stage, offset, "i8")
            self._tile("tilestored64", f"i8 {tile}", f"ptr {at}", f"i64 {width}")
        self._finish(row, column)

    def _tile(self, name: str, *operands: str) -> None:
        types = [operand.partition(" ")[0] for operand in operands]
        types = ["i8 immarg" if t == "i8" else t for t in types]
        self.w.declare("void", f"llvm.x86.{name}", types)
        self.w.emit(f"call void @llvm.x86.{name}({', '.join(operands)})")

    def _finish(self, row: Value, column: Value) -> None:
        """The stage's rows and columns that exist, to the result."""
        w, c, ring = self.w, self.c, self.plan.ring
        axes = [(a.size, a.out) for a in c.rows]
        lanes = ring.lanes
        starts = [add(w, column, w.int(v)) for v in range(0, 2 * TILE, lanes)]
        masks = [below(w, s, c.n, lanes) if c.n % (2 * TILE) else None for s in starts]
        left = w.binary("sub", w.int(c.m), row)
        count = w.intrinsic("llvm.umin", "i64", left, w.int(2 * TILE))

        def at_row(r: Value) -> None:
            offset = add(w, self.out_index, strided(w, add(w, row, r), axes))
            at = advanced(w, self.stage, times(w, r, 2 * TILE), ring.scalar)
            for v, (start, mask) in enumerate(zip(starts, masks, strict=True)):
                address = advanced(w, at, v * lanes, ring.scalar)
                sums = w.load(address, ring.vector, ring.scalar_bytes)
                self.result.store((sums,), add(w, offset, start), 1, mask)

        ranged(w, w.int(0), count, at_row)
