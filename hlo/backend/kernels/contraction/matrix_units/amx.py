"""Tile products: contractions of bf16, f16 and what has 8 bits and less on AMX's matrix units.

    lhs -> a block's [tile of 16 rows][step][row][64 bytes of depth]         in scratch, by a unit
    rhs -> blocks [tile of 16 columns][step][depth / group][column][group]   by a kernel before
    2 x 2 tiles of 16 x 16 sums per round of `step` depths; finished sums leave through scratch

A step is 64 bytes of depth; a group (2 bf16 or 4 bytes) fills 32 bits. Sums are f32 or s32, as
elsewhere; the unit takes subnormal bf16 as zero. Elements are those that it multiplies: narrower
integers and floats become them while they are packed (problem/elements.py).

The unit adds the products of a step to each other first, those of even and of odd depths apart, and
their sum to the tile's (TDPBF16PS in Intel's manual). Steps are cut into blocks, so that a unit's
rows of one stay in a cache; the sums of blocks are added in f32; integers wrap around in any order.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import split_index, strided
from hlo.backend.ir.kernel import Sums
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.amx import ROW_BYTES, ROWS, TileProduct
from hlo.backend.kernels.contraction.problem.axes import Axes, Contraction, extent, reach
from hlo.backend.kernels.contraction.problem.elements import held
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.sum_blocks import cut_of
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
from hlo.backend.kernels.contraction.vectors.plan import TILED_COLUMNS
from hlo.backend.lanes import masked
from hlo.backend.lanes.types import storage_scalar
from hlo.ir.dtype import DType

TILE = ROWS  # Rows and columns of a tile of sums.
STEP_BYTES = ROW_BYTES
TILE_BYTES = TILE * STEP_BYTES
SQUARE_BYTES = 4 * TILE * TILE * 4  # Bytes of 2 x 2 tiles of sums.
LEAST_ROWS = 9  # Products of fewer rows are bound by memory.
LEAST_FLOPS = 1 << 19
UNITS = 16
ROW_BLOCKS = 4
# Packed rows of a group, and columns, of which each row of memory has a short piece, fill one part
# of so many of what a core has for itself.
ROW_GROUPS, COLUMN_GROUPS = 8, 4
MANY = 4  # So many times as many columns as rows.
SHARED = 2  # So many times as many packed numbers as there are in memory are no panels to keep.
BLOCK_STEPS = 128  # Steps of depth whose sums stay in tile registers.


class TilePlan(Struct, frozen=True):
    """A contraction for the matrix units. run: depths after which a step begins anew, where the
    last one's rest is zeros: all of them, or those of the last axis, which lie beside each other.
    is_turned: whether the result's rows are the contraction's columns. packs_columns: whether units
    pack their columns, which no kernel does before.
    """

    c: Contraction
    ring: Ring
    tiles: TileProduct
    run: int
    is_turned: bool = False
    packs_columns: bool = False

    @property
    def by_result(self) -> Contraction:
        """With the columns that lie along the result."""
        return self.c.swapped if self.is_turned else self.c

    @property
    def group(self) -> int:
        """Depths in 32 bits."""
        return self.tiles.group

    @property
    def depths(self) -> int:
        """Depths of one step."""
        return STEP_BYTES // self.item_bytes

    @property
    def item_bytes(self) -> int:
        """Of an element that the unit multiplies."""
        return 4 // self.group

    @property
    def quarter(self) -> int:
        """Depths of a quarter of a step: four words, the side of a square that is transposed."""
        return self.depths // 4

    @property
    def run_steps(self) -> int:
        """Steps of a run."""
        return -(-self.run // self.depths)

    @property
    def runs(self) -> int:
        return self.c.k // self.run

    @property
    def steps(self) -> int:
        return self.runs * self.run_steps

    @property
    def rest(self) -> int:
        """Depths of a run's last step, where that is not whole."""
        return self.run % self.depths

    def moved(self, w: Writer, side: str, depth: Value) -> Value:
        """How far a depth is from the first one in a factor's memory, the rests counted."""
        axes = [(a.size, int(getattr(a, side))) for a in self.c.depth]
        if self.runs > 1:
            axes[-1] = self.run_steps * self.depths, axes[-1][1]
        return strided(w, depth, axes)

    def in_run(self, w: Writer, depth: Value) -> Value:
        """A depth counted from its run's first one, the rests counted."""
        if self.runs == 1:
            return depth
        return split_index(w, depth, (self.runs, self.run_steps * self.depths))[1]

    @property
    def block_steps(self) -> int:
        """Steps of which the sums stay in tile registers."""
        return cut.rounds if (cut := cut_of((self.steps,), BLOCK_STEPS)) else self.steps

    @property
    def blocks(self) -> int:
        return -(-self.steps // self.block_steps)

    @property
    def sums(self) -> Sums:
        within_step = self.depths // self.group + 1
        return Sums("matrix units", within_step + self.block_steps + self.blocks)

    @property
    def row_tiles(self) -> int:
        return -(-self.c.m // (2 * TILE)) * 2

    @property
    def column_tiles(self) -> int:
        return -(-self.c.n // (2 * TILE)) * 2

    @property
    def products(self) -> int:
        """Of tiles, in all."""
        return self.c.batches * -(-self.c.m // TILE) * -(-self.c.n // TILE) * self.steps

    @property
    def strip_bytes(self) -> int:
        """Bytes of one packed tile of columns over all of depth."""
        return self.steps * TILE_BYTES

    @property
    def row_strip_bytes(self) -> int:
        """Bytes of one packed tile of rows over a block of steps."""
        return self.block_steps * TILE_BYTES

    @property
    def rhs_bytes(self) -> int:
        """Bytes of all packed columns."""
        batches = extent(tuple(a for a in self.c.batch if a.rhs))
        return batches * self.column_tiles * self.strip_bytes

    @property
    def packs_groups(self) -> bool:
        """Whether units pack some pairs of tiles of rows at a time, which meet all columns: these
        fill no more than half of the cache that a core has for itself.
        """
        pairs = self.c.batches * self.row_tiles // 2
        columns = self.column_tiles * self.strip_bytes
        is_near = columns <= self.ring.target.machine.second_cache.bytes // 2
        return not self.packs_columns and is_near and self.blocks == 1 and pairs >= self._units

    @property
    def packing_columns(self) -> TilePlan:
        """The plan whose units pack columns, where they are many more than rows, all of which stay
        in a quarter of that cache: packed before they would go through memory once more. Of short
        pieces of memory's rows, of a line or two, processors foresee too little.
        """
        c, pairs = self.c, self.column_tiles // 2
        is_once = c.batches == 1 or all(axis.rhs for axis in c.batch)
        is_plain = is_once and not self.is_turned and not c.bounded_side and self.blocks == 1
        row_bytes = self.row_tiles * self.row_strip_bytes
        is_near = 4 * row_bytes <= self.ring.target.machine.second_cache.bytes
        if not is_plain or not is_near or c.n < MANY * c.m or c.batches * pairs < self._units:
            return self
        made = replace(self, packs_columns=True)
        piece = made.packed_column_pairs * 2 * TILE * c.rhs.dtype.item_bytes
        is_long = piece > 2 * self.ring.target.machine.line_bytes
        return made if is_long or self.is_rhs_along_depth else self

    @property
    def row_blocks(self) -> int:
        """A unit's rows of a block of steps fill no more than half of the cache that a core has for
        itself; some blocks, since whoever takes a part of one packs all of it.
        """
        pairs = self.row_tiles // 2
        if self.packs_columns:
            return 1
        least = min(ROW_BLOCKS, self._units)
        if self.packs_groups:
            return min(pairs, max(least, -(-self._units // self.c.batches)))
        block_bytes = self.ring.target.machine.second_cache.bytes // 2
        return min(pairs, max(least, -(-pairs * 2 * self.row_strip_bytes // block_bytes)))

    @property
    def column_blocks(self) -> int:
        """The sums of a unit's blocks fill no more than a quarter of that cache."""
        if self.packs_groups:
            return 1
        pairs = self.column_tiles // 2
        wanted = -(-self._units // (self.c.batches * self.row_blocks))
        if self.blocks > 1:
            most = self.ring.target.machine.second_cache.bytes // 4 // SQUARE_BYTES
            wanted = max(wanted, -(-pairs * self.row_pairs // most))
        return min(pairs, wanted)

    @property
    def _units(self) -> int:
        """Wanted: none is done sooner than another thread is told of it."""
        return min(UNITS, max(1, self.c.flops >> 24))

    @property
    def row_pairs(self) -> int:
        """Pairs of tiles of rows that a unit takes at most."""
        return -(-self.row_tiles // 2 // self.row_blocks)

    @property
    def packed_pairs(self) -> int:
        """Those that it has packed at a time: some, since tiles wait for what was stored last."""
        if not self.packs_groups:
            return self.row_pairs
        return self._group(self.row_pairs, ROW_GROUPS)

    @property
    def packed_column_pairs(self) -> int:
        """Pairs of tiles of columns that a unit has packed at a time; 0: all are packed before."""
        return self._group(self.column_pairs, COLUMN_GROUPS) if self.packs_columns else 0

    def _group(self, pairs: int, part: int) -> int:
        """Of so many pairs of tiles, even groups that fill one of so many parts of a core's own
        cache.
        """
        group_bytes = self.ring.target.machine.second_cache.bytes // part
        most = max(1, group_bytes // (2 * self.row_strip_bytes))
        return -(-pairs // -(-pairs // most))

    @property
    def column_pairs(self) -> int:
        """The same of columns."""
        return -(-self.column_tiles // 2 // self.column_blocks)

    @property
    def is_lhs_along_depth(self) -> bool:
        return self._is_along_depth("lhs", self.depths)

    @property
    def is_rhs_along_depth(self) -> bool:
        """Whether the columns lie along depth, in runs that hold whole quarters of a step."""
        return self._is_along_depth("rhs", self.quarter)

    def _is_along_depth(self, side: str, length: int) -> bool:
        """Whether depth lies so that no `length` indices of a run from a multiple on part."""
        return self._runs(self.c.depth, side, 1 if self.runs > 1 else length)

    def loaded(self, w: Writer, side: str, at: Value, lanes: int, mask: Value | None) -> Value:
        """Neighbours of a factor in memory."""
        dtype: DType = getattr(self.c, side).dtype
        type = vector_of(storage_scalar(dtype), lanes)
        return masked.load(w, type, at, dtype.item_bytes, mask)

    def elements(self, w: Writer, side: str, raw: Value) -> Value:
        """Numbers of a factor as what the unit multiplies."""
        element: DType = getattr(self.tiles, side)
        return held(w, self.ring.target, raw, getattr(self.c, side).dtype, element)

    @property
    def fits(self) -> bool:
        """Whether both factors lie so that they can be packed."""
        lhs = self.is_lhs_along_depth or self._runs(self.c.rows, "lhs", TILE)
        return lhs and (self.is_rhs_along_depth or self._runs(self.c.columns, "rhs", TILE))

    @property
    def pays(self) -> bool:
        """Whether steps and tiles of columns, with their rests, take less than half of what vectors
        take: matrix units wait for their factors for about as long as they multiply.
        """
        wide = self.ring.target.machine.cycles.tiled
        taken = self.steps * self.depths * -(-self.c.n // TILE) * TILE
        return 2 * taken <= wide * self.c.k * self.c.n

    @staticmethod
    def _runs(axes: Axes, side: str, length: int) -> bool:
        """Whether `length` indices from a multiple of it are neighbours in memory."""
        if not axes or getattr(axes[-1], side) != 1:
            return False
        return len(axes) == 1 or axes[-1].size % length == 0


def tile_plan(c: Contraction, ring: Ring) -> TilePlan | None:
    """How the matrix units would do it; None where they cannot, or need not."""
    if c.m < LEAST_ROWS or c.n < TILED_COLUMNS or c.flops < LEAST_FLOPS or not c.depth:
        return None
    if c.is_diagonal or c.columns[-1].out != 1:
        return None
    plan = _fitting(c, ring)
    if plan is None or c.bounded_side or not _are_windows(c):
        return plan
    # Rows are packed by units, and stay in their caches.
    turned = _fitting(c.swapped, ring)
    return plan if turned is None else replace(turned, is_turned=True)


def _fitting(c: Contraction, ring: Ring) -> TilePlan | None:
    """The plan whose steps part no run of memory, of few rests; None where there is none."""
    tiles = tiles_of(c, ring)
    if tiles is None:
        return None
    for run in (c.k, c.depth[-1].size):
        plan = TilePlan(c, ring, tiles, run)
        if c.k >= plan.depths and plan.fits and plan.pays:
            return plan
    return None


def _are_windows(c: Contraction) -> bool:
    """Whether columns share elements, so that all of them packed are far more than there are."""
    packed = extent(tuple(a for a in c.batch if a.rhs)) * c.n * c.k
    return packed > SHARED * reach(c, "rhs")
