"""Tiles of f32 and f64 sums as x86 assembly: the microkernel that costs LLVM next to nothing.

    sums[r][v] += splat(lhs[r]) * rhs[v]    over the whole nest of depth, in registers of our choice

Where depth is cut into blocks, a block's sums are added to those of the blocks before it, which are
set aside in scratch meanwhile: the registers are all in use.

As IR the same tile takes LLVM 4 to 6 ms: 28 sums through instruction selection, scheduling and
register allocation that have nothing to decide. Other rings, targets and forms of factors are left
to contraction_microkernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.ring import Ring
from hlo.backend.kernels.contraction.sum_blocks import Cut

REACH = 1 << 31  # bytes that a displacement spans
MOST_LOOPS = 3
UNROLLED = 16  # products of a round of the inner loop, at least
BEFORE = 2  # of the count that falls with each block: then there is something to set aside
NEXT_BLOCK, FIRST_ASIDE, SET_ASIDE, ALL_ADDED = 6, 7, 8, 9  # labels; loops have 1 to 3


class DepthLoop(Struct, frozen=True):
    """One loop over depth: rounds (a Value where known at run time only), bytes to step."""

    count: int | Value
    lhs: int
    rhs: int


class AssemblyTile(Struct, frozen=True):
    """rows x vectors of sums. lhs_row, out_row: bytes from row to row.

    loops: outermost first. cut: where they are cut into blocks. adds: to what is stored.
    last_lanes: lanes of the last vector that exist, 0: all; is_rhs_masked, is_out_masked: where no
    others may be touched.
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


def has_assembly(ring: Ring) -> bool:
    """Whether tiles of the ring may be written as assembly: in ymm or zmm registers."""
    machine = ring.target.machine
    has_registers = machine.architecture == "x86_64" and machine.vector_bytes >= 32
    return has_registers and ring.fused and ring.parts == 1 and ring.scalar in ("float", "double")


def fits(tile: AssemblyTile) -> bool:
    """Whether registers and displacements reach."""
    loops = tile.loops
    if len(loops) > MOST_LOOPS or (tile.last_lanes and tile.ring.target.vector_bytes < 64):
        return False
    far = [tile.rows * tile.lhs_row, tile.rows * tile.out_row]
    for loop in loops:
        if isinstance(loop.count, Value) and len(loops) > 1:
            return False
        rounds = UNROLLED if isinstance(loop.count, Value) else max(loop.count, UNROLLED)
        far += [rounds * loop.lhs, rounds * loop.rhs]
    return max(map(abs, far)) < REACH // 2


def write_tile(
    w: Writer, tile: AssemblyTile, lhs: Value, rhs: Value, out: Value, aside: Value
) -> None:
    """The sums over all depths from `lhs` and `rhs` to memory at `out`. aside: room for a tile of
    sums, used where depth is cut.
    """
    text = _Text(tile)
    lines = [*text.begin(), *text.nest(tile.loops, 0), *text.end()]
    counts = [loop.count for loop in tile.loops if isinstance(loop.count, Value)]
    counts += [w.int(0)] * (text.counters - len(counts))
    registers = [f"{text.wide}{n}" for n in range(tile.ring.registers)]
    kept = [out, aside] if tile.cut else [out]
    write_assembly(w, lines, (lhs, rhs, *counts), kept, registers)


def write_assembly(
    w: Writer,
    lines: Iterable[str],
    changed: Sequence[Value],
    kept: Sequence[Value],
    registers: Iterable[str],
) -> None:
    """Lines of AT&T syntax. Operands $0, $1, ...: those that change, then those that do not.

    registers: the vector registers that are overwritten; so may be %k1 and the flags.
    """
    outputs = ["=&r"] * len(changed)
    inputs = ["r"] * len(kept) + [str(n) for n in range(len(changed))]
    also = ("k1", "memory", "dirflag", "fpsr", "flags")
    clobbers = [f"~{{{name}}}" for name in (*registers, *also)]
    constraints = ",".join([*outputs, *inputs, *clobbers])
    type = f"{{{', '.join(['i64'] * len(changed))}}}"
    passed = ", ".join(v.typed for v in (*kept, *changed))
    code = "\\0A".join(lines)
    w.assign(type, f'call {type} asm sideeffect "{code}", "{constraints}"({passed})')


class _Text:
    """The lines. Operands: $0 lhs, $1 rhs, $2 ... counters, then out and where sums are set aside.

    Counters: one for each loop; where they are cut, the rounds of a block and the blocks that are
    behind (BEFORE less them).
    """

    def __init__(self, tile: AssemblyTile) -> None:
        self.tile = tile
        ring = tile.ring
        self.wide = "zmm" if ring.target.vector_bytes == 64 else "ymm"
        self.kind = "ps" if ring.scalar == "float" else "pd"
        self.single = "ss" if ring.scalar == "float" else "sd"
        loops = len(tile.loops)
        self.block, self.blocks = f"${2 + loops}", f"${3 + loops}"
        self.counters = loops + (2 if tile.cut else 0)
        self.counters += bool(tile.last_lanes)  # the mask passes through the last
        self.out, self.aside = f"${2 + self.counters}", f"${3 + self.counters}"
        self.bytes = ring.target.vector_bytes
        self.first_column = tile.rows * tile.vectors
        self.first_row = self.first_column + tile.vectors
        self.row_registers = min(2, ring.registers - self.first_row)

    def begin(self) -> Iterator[str]:
        """The mask, the first sums."""
        tile = self.tile
        if tile.last_lanes:
            passing = f"${{{1 + self.counters}:k}}"
            yield f"movl $${(1 << tile.last_lanes) - 1}, {passing}"
            yield f"kmovw {passing}, %k1"
        if tile.cut:
            yield f"movq $${BEFORE}, {self.blocks}"
        yield from self._cleared()

    def _cleared(self) -> Iterator[str]:
        for number in range(self.first_column):
            register = self._register(number)
            yield f"vpxor{'d' * (self.bytes == 64)} {register}, {register}, {register}"

    def nest(self, loops: Sequence[DepthLoop], level: int) -> Iterator[str]:
        """Loops from `level` on; a round moves the pointers by the loop's own steps, all told."""
        if level == len(loops):
            yield from self._step(0, 0)
            return
        loop, cut = loops[level], self.tile.cut
        inner = level + 1 == len(loops)
        unroll = self._unroll(loop, level) if inner else 1
        left = f"${2 + level}"
        counter = left
        if not isinstance(loop.count, Value):
            yield f"movq $${loop.count // unroll}, {left}"
        if cut and cut.level == level:
            counter = self.block
            yield from self._block_begin(loop, left, cut.rounds // unroll, unroll)
        yield f"{level + 1}:"
        if inner:
            for u in range(unroll):
                yield from self._step(u * loop.lhs, u * loop.rhs)
            moved = [unroll * loop.lhs, unroll * loop.rhs]
        else:
            yield from self.nest(loops, level + 1)
            following = loops[level + 1]
            assert isinstance(following.count, int), "a count known at run time has one loop"
            moved = [
                loop.lhs - following.count * following.lhs,
                loop.rhs - following.count * following.rhs,
            ]
        yield from (f"addq $${step}, ${n}" for n, step in enumerate(moved) if step)
        yield f"decq {counter}"
        yield f"jne {level + 1}b"
        if counter != left:
            yield from (f"testq {left}, {left}", f"jne {NEXT_BLOCK}b")

    def _block_begin(self, loop: DepthLoop, left: str, rounds: int, unroll: int) -> Iterator[str]:
        """What the block before has summed is set aside; the rounds of the next one."""
        yield f"{NEXT_BLOCK}:"
        yield f"decq {self.blocks}"
        yield f"jg {SET_ASIDE}f"  # there is none
        yield f"je {FIRST_ASIDE}f"
        yield from self._added(self.aside, self.aside_row)
        yield f"{FIRST_ASIDE}:"
        for number, (offset, _) in enumerate(self._places(self.aside_row)):
            yield f"vmovu{self.kind} {self._register(number)}, {offset}({self.aside})"
        yield from self._cleared()
        yield f"{SET_ASIDE}:"
        yield f"movq $${rounds}, {self.block}"
        if isinstance(loop.count, Value) or loop.count // unroll % rounds:
            yield from (f"cmpq {left}, {self.block}", f"cmovaq {left}, {self.block}")
        yield f"subq {self.block}, {left}"

    def _unroll(self, loop: DepthLoop, level: int) -> int:
        """Depths per round: enough products to hide the loop's own instructions."""
        unroll, cut = 1, self.tile.cut
        rounds = cut.rounds if cut and cut.level == level else 0
        while (
            isinstance(loop.count, int)
            and gcd(loop.count, rounds) % (2 * unroll) == 0
            and unroll * self.first_column < UNROLLED
        ):
            unroll *= 2
        return unroll

    def _step(self, lhs: int, rhs: int) -> Iterator[str]:
        """One outer product."""
        tile = self.tile
        for v in range(tile.vectors):
            register = self._register(self.first_column + v)
            masked = tile.is_rhs_masked and tile.last_lanes and v == tile.vectors - 1
            mask = "{%k1}{z}" if masked else ""
            yield f"vmovu{self.kind} {rhs + v * self.bytes}($1), {register}{mask}"
        for r in range(tile.rows):
            number = self._register(self.first_row + r % self.row_registers)
            yield f"vbroadcast{self.single} {lhs + r * tile.lhs_row}($0), {number}"
            for v in range(tile.vectors):
                column = self._register(self.first_column + v)
                total = self._register(r * tile.vectors + v)
                yield f"vfmadd231{self.kind} {column}, {number}, {total}"

    def end(self) -> Iterator[str]:
        """The sums to memory."""
        tile = self.tile
        if tile.cut:
            yield from (f"cmpq $${BEFORE - 1}, {self.blocks}", f"je {ALL_ADDED}f")
            yield from self._added(self.aside, self.aside_row)
            yield f"{ALL_ADDED}:"
        if tile.adds:
            yield from self._added(self.out, tile.out_row, is_masked=tile.is_out_masked)
        for number, (offset, mask) in enumerate(self._places(tile.out_row)):
            written = mask if tile.is_out_masked else ""
            yield f"vmovu{self.kind} {self._register(number)}, {offset}({self.out}){written}"
        yield "vzeroupper"

    @property
    def aside_row(self) -> int:
        return self.tile.vectors * self.bytes

    def _added(self, at: str, row: int, *, is_masked: bool = False) -> Iterator[str]:
        """What lies in memory, with the sums."""
        for number, (offset, mask) in enumerate(self._places(row)):
            register = self._register(number)
            read = mask + "{z}" if mask and is_masked else ""
            yield f"vadd{self.kind} {offset}({at}), {register}, {register}{read}"

    def _places(self, row: int) -> Iterator[tuple[int, str]]:
        """Where each vector of sums lies, and the mask of those with lanes that do not exist."""
        tile = self.tile
        for r in range(tile.rows):
            for v in range(tile.vectors):
                masked = tile.last_lanes and v == tile.vectors - 1
                yield r * row + v * self.bytes, "{%k1}" if masked else ""

    def _register(self, number: int) -> str:
        return f"%{self.wide}{number}"
