"""Tiles of f32 and f64 sums as assembly: the microkernel that costs LLVM next to nothing.

    sums[r][v] += splat(lhs[r]) * rhs[v]    over the whole nest of depth, in registers of our choice

Where depth is cut into blocks, a block's sums are added to those of the blocks before it, which are
set aside in scratch meanwhile: the registers are all in use.

A number of lhs meets all vectors of rhs from a register. Where there is one vector, the product
takes it from memory by itself if it can: with a load of its own for each it took 1.3 times as long
on Zen 4.

As IR the same tile takes LLVM 4 to 6 ms: 28 sums through instruction selection, scheduling and
register allocation that have nothing to decide. Other rings, targets and forms of factors are left
to microkernel.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa import assembly
from hlo.backend.isa.assembly import Assembly
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.sum_blocks import Cut

REACH = 1 << 31  # Bytes that a displacement spans.
MOST_LOOPS = 3
UNROLLED = 16  # The least products of a round of the inner loop.
# Where the count that falls with each block begins; below it there is something to set aside.
BEFORE = 2
NEXT_BLOCK, FIRST_ASIDE, SET_ASIDE, ALL_ADDED = 6, 7, 8, 9  # Labels; those of loops are 1 to 3.
IS_APART, ALL_STORED = 4, 5


class DepthLoop(Struct, frozen=True):
    """One loop over depth: rounds (a Value where known at run time only), bytes to step."""

    count: int | Value
    lhs: int
    rhs: int


class Ahead(Struct, frozen=True):
    """Lines that a tile asks for. at: where it begins; step: bytes that each depth moves on, where
    the run knows them.
    """

    at: Value
    step: Value | None = None


class AssemblyTile(Struct, frozen=True):
    """A tile of rows x vectors of sums, and the loops over depth that make it.

    lhs_row, out_row: bytes from row to row.
    loops: outermost first. cut: where they are cut into blocks.
    adds: to what is stored.
    last_lanes: lanes of the last vector that exist, 0: all. is_rhs_masked, is_out_masked: where no
    others may be touched.
    ahead_bytes: how far each depth moves on in what is asked for ahead, where the run does not say.
    ahead_lines: how many lines it asks for there, 0: all that it moves over.
    panel_step: bytes from depth to depth of a panel to which the columns go as well, 0: there is
    none.
    streams: whether the sums go past the caches, where the tile begins with a line of memory.
    """

    ring: Ring
    rows: int
    vectors: int
    lhs_row: int
    out_row: int
    loops: tuple[DepthLoop, ...]
    cut: Cut | None = None
    adds: bool = False
    last_lanes: int = 0
    is_rhs_masked: bool = False
    is_out_masked: bool = False
    ahead_bytes: int = 0
    ahead_lines: int = 0
    panel_step: int = 0
    streams: bool = False

    @property
    def unroll(self) -> int:
        """Depths per round of the inner loop: enough products to hide its own instructions."""
        count, cut, level = self.loops[-1].count, self.cut, len(self.loops) - 1
        rounds = cut.rounds if cut and cut.level == level else 0
        unroll = 1
        while (
            isinstance(count, int)
            and gcd(count, rounds) % (2 * unroll) == 0
            and unroll * self.rows * self.vectors < UNROLLED
        ):
            unroll *= 2
        return unroll


def tile_assembly(ring: Ring) -> Assembly | None:
    """What tiles of the ring may be written in."""
    if ring.dot is not None:
        return ring.dot.assembly
    return ring.target.isa.assembly(ring.scalar) if ring.parts == 1 else None


def fits(tile: AssemblyTile, words: Assembly) -> bool:
    """Whether registers and displacements reach."""
    loops = tile.loops
    if len(loops) > MOST_LOOPS or (tile.last_lanes and not words.has_masks):
        return False
    far = [tile.rows * tile.lhs_row, tile.rows * tile.out_row, UNROLLED * tile.ahead_bytes]
    for loop in loops:
        if isinstance(loop.count, Value) and len(loops) > 1:
            return False
        rounds = UNROLLED if isinstance(loop.count, Value) else max(loop.count, UNROLLED)
        far += [rounds * loop.lhs, rounds * loop.rhs]
    return max(map(abs, far)) < REACH // 2


def write_tile(
    w: Writer,
    tile: AssemblyTile,
    lhs: Value,
    rhs: Value,
    out: Value,
    aside: Value,
    ahead: Ahead | None = None,
    panel: Value | None = None,
) -> None:
    """The sums over all depths from `lhs` and `rhs` to memory at `out`. aside: room for a tile of
    sums, used where depth is cut. ahead: what depths ask for. panel: where it begins what columns
    are copied to.
    """
    words = tile_assembly(tile.ring)
    assert words is not None, "asked for where there is assembly"
    step = ahead.step if ahead is not None else None
    text = _Text(tile, words, fetches=ahead is not None, steps=step is not None)
    lines = [*text.begin(), *text.nest(tile.loops, 0), *text.end()]
    counts = [loop.count for loop in tile.loops if isinstance(loop.count, Value)]
    counts += [w.int(0)] * (text.counters - len(counts))
    counts += [ahead.at] if ahead is not None else []
    counts += [panel] if panel is not None else []
    kept = [out, aside] if tile.cut else [out]
    kept += [step] if step is not None else []
    assembly.write(w, lines, (lhs, rhs, *counts), kept, words.names(tile.ring.registers))


class _Text:
    """The lines. Operands: $0 lhs, $1 rhs, $2 ... counters, where lines are that are asked for
    ahead, if any are, the panel, if there is one, then out, where sums are set aside, if they are,
    and the bytes that each depth moves on in those lines, if the run knows them.

    Counters: one for each loop; where they are cut, the rounds of a block and the blocks that are
    behind (BEFORE less them).
    """

    def __init__(self, tile: AssemblyTile, words: Assembly, *, fetches: bool, steps: bool) -> None:
        self.tile = tile
        self.words = words
        ring = tile.ring
        loops = len(tile.loops)
        self.block, self.blocks = f"${2 + loops}", f"${3 + loops}"
        self.counters = loops + (2 if tile.cut else 0)
        self.counters += bool(tile.last_lanes)  # the mask passes through the last
        self.ahead = f"${2 + self.counters}" if fetches else ""
        self.panel = f"${2 + self.counters + fetches}" if tile.panel_step else ""
        kept = 2 + self.counters + fetches + bool(tile.panel_step)
        self.out, self.aside = f"${kept}", f"${kept + 1}"
        self.step = f"${kept + 1 + (tile.cut is not None)}" if steps else ""
        self.bytes = ring.target.vector_bytes
        self.first_column = tile.rows * tile.vectors
        self.first_row = self.first_column + tile.vectors
        self.row_registers = min(2, ring.registers - self.first_row)

    def begin(self) -> Iterator[str]:
        """The mask, the first sums."""
        tile, words = self.tile, self.words
        if tile.last_lanes:
            passing = f"${{{1 + self.counters}:k}}"
            yield words.put_mask((1 << tile.last_lanes) - 1, passing)
            yield words.mask(passing)
        if tile.cut:
            yield words.put(BEFORE, self.blocks)
        yield from self._cleared()

    def _cleared(self) -> Iterator[str]:
        return map(self.words.clear, range(self.first_column))

    def nest(self, loops: Sequence[DepthLoop], level: int) -> Iterator[str]:
        """Loops from `level` on; a round moves the pointers by the loop's own steps, all flag."""
        if level == len(loops):
            yield from self._step(0, 0, 0)
            return
        words, loop, cut = self.words, loops[level], self.tile.cut
        inner = level + 1 == len(loops)
        unroll = self.tile.unroll if inner else 1
        left = f"${2 + level}"
        counter = left
        if not isinstance(loop.count, Value):
            yield words.put(loop.count // unroll, left)
        if cut and cut.level == level:
            counter = self.block
            yield from self._block_begin(loop, left, cut.rounds // unroll, unroll)
        yield words.label(level + 1)
        if inner:
            for u in range(unroll):
                yield from self._step(u * loop.lhs, u * loop.rhs, u * self.tile.panel_step)
            if self.panel:
                yield words.advance(self.panel, unroll * self.tile.panel_step)
            yield from self._asked_ahead(unroll)
            moved = [unroll * loop.lhs, unroll * loop.rhs]
        else:
            yield from self.nest(loops, level + 1)
            following = loops[level + 1]
            assert isinstance(following.count, int), "a count known at run time has one loop"
            moved = [
                loop.lhs - following.count * following.lhs,
                loop.rhs - following.count * following.rhs,
            ]
        yield from (words.advance(f"${n}", step) for n, step in enumerate(moved) if step)
        yield words.count_down(counter)
        yield words.again(level + 1)
        if counter != left:
            yield from (words.test(left), words.again(NEXT_BLOCK))

    def _asked_ahead(self, depths: int) -> Iterator[str]:
        """The lines of so many depths, and on to the next."""
        if self.step:
            size = self.tile.ring.target.machine.line_bytes
            for _ in range(depths):
                for n in range(self.tile.ahead_lines):
                    yield self.words.fetch(f"{n * size}({self.ahead})")
                yield self.words.advance_by(self.ahead, self.step)
        elif self.ahead:
            tile, size = self.tile, self.tile.ring.target.machine.line_bytes
            moved = depths * tile.ahead_bytes
            places = list(range(0, moved, size))
            if tile.ahead_lines:
                rows = range(0, moved, tile.ahead_bytes)
                places = [row + size * n for row in rows for n in range(tile.ahead_lines)]
            yield from (self.words.fetch(f"{at}({self.ahead})") for at in places)
            yield self.words.advance(self.ahead, moved)

    def _block_begin(self, loop: DepthLoop, left: str, rounds: int, unroll: int) -> Iterator[str]:
        """What the block before has summed is set aside; the rounds of the next one."""
        words = self.words
        yield words.label(NEXT_BLOCK)
        yield words.count_down(self.blocks)
        yield words.on_if_more(SET_ASIDE)  # there is none
        yield words.on_if_none(FIRST_ASIDE)
        yield from self._added(self.aside, self.aside_row)
        yield words.label(FIRST_ASIDE)
        for number, (offset, _) in enumerate(self._vector_offsets(self.aside_row)):
            yield words.store(number, f"{offset}({self.aside})")
        yield from self._cleared()
        yield words.label(SET_ASIDE)
        yield words.put(rounds, self.block)
        if isinstance(loop.count, Value) or loop.count // unroll % rounds:
            yield from words.at_most(left, self.block)
        yield words.take(self.block, left)

    def _step(self, lhs: int, rhs: int, panel: int) -> Iterator[str]:
        """One outer product."""
        tile, words = self.tile, self.words
        for v in range(tile.vectors):
            at = f"{rhs + v * self.bytes}($1)"
            masked = tile.is_rhs_masked and self._is_short(v)
            yield words.load(at, self.first_column + v, is_masked=masked)
            if self.panel:
                yield words.store(self.first_column + v, f"{panel + v * self.bytes}({self.panel})")
        if tile.vectors == 1 and words.broadcasts:
            for r in range(tile.rows):
                at = f"{lhs + r * tile.lhs_row}($0)"
                yield words.multiply_add_number(at, self.first_column, r)
            return
        for r in range(tile.rows):
            number = self.first_row + r % self.row_registers
            yield words.broadcast(f"{lhs + r * tile.lhs_row}($0)", number)
            for v in range(tile.vectors):
                yield words.multiply_add(self.first_column + v, number, r * tile.vectors + v)

    def end(self) -> Iterator[str]:
        """The sums to memory."""
        tile, words = self.tile, self.words
        if tile.cut:
            yield from (words.compare(BEFORE - 1, self.blocks), words.on_if_none(ALL_ADDED))
            yield from self._added(self.aside, self.aside_row)
            yield words.label(ALL_ADDED)
        if tile.adds:
            yield from self._added(self.out, tile.out_row, is_masked=tile.is_out_masked)
        if tile.streams:
            yield words.test_multiple(tile.ring.target.machine.line_bytes, self.out)
            yield words.on_if_some(IS_APART)
            for number, (offset, _) in enumerate(self._vector_offsets(tile.out_row)):
                yield words.store_past(number, f"{offset}({self.out})")
            yield from (words.on(ALL_STORED), words.label(IS_APART))
        for number, (offset, is_short) in enumerate(self._vector_offsets(tile.out_row)):
            masked = tile.is_out_masked and is_short
            yield words.store(number, f"{offset}({self.out})", is_masked=masked)
        if tile.streams:
            yield words.label(ALL_STORED)
        yield words.leave()

    @property
    def aside_row(self) -> int:
        return self.tile.vectors * self.bytes

    def _added(self, at: str, row: int, *, is_masked: bool = False) -> Iterator[str]:
        """What lies in memory, with the sums."""
        for number, (offset, is_short) in enumerate(self._vector_offsets(row)):
            yield self.words.add(f"{offset}({at})", number, is_masked=is_masked and is_short)

    def _vector_offsets(self, row: int) -> Iterator[tuple[int, bool]]:
        """Where each vector of sums lies, and whether some of its lanes do not exist."""
        tile = self.tile
        for r in range(tile.rows):
            for v in range(tile.vectors):
                yield r * row + v * self.bytes, self._is_short(v)

    def _is_short(self, v: int) -> bool:
        return bool(self.tile.last_lanes) and v == self.tile.vectors - 1
