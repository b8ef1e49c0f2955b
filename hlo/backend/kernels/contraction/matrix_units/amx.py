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

from hlo.backend.ir.kernel import Sums
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.amx import ROW_BYTES, ROWS, TileProduct
from hlo.backend.kernels.contraction.problem.axes import Axes, Contraction, extent
from hlo.backend.kernels.contraction.problem.elements import held
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.problem.sum_blocks import cut_of
from hlo.backend.kernels.contraction.problem.tiles import tiles_of
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
BLOCK_STEPS = 128  # Steps of depth whose sums stay in tile registers.


class TilePlan(Struct, frozen=True):
    """A contraction for the matrix units."""

    c: Contraction
    ring: Ring
    tiles: TileProduct

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
    def steps(self) -> int:
        return -(-self.c.k // self.depths)

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
    def row_blocks(self) -> int:
        """A unit's rows of a block of steps fill no more than half of the cache that a core has for
        itself; some blocks, since whoever takes a part of one packs all of it.
        """
        pairs = self.row_tiles // 2
        block_bytes = self.ring.target.machine.second_cache.bytes // 2
        wanted = max(
            min(ROW_BLOCKS, self._units), -(-pairs * 2 * self.row_strip_bytes // block_bytes)
        )
        return min(pairs, wanted)

    @property
    def column_blocks(self) -> int:
        """The sums of a unit's blocks fill no more than a quarter of that cache."""
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
    def column_pairs(self) -> int:
        """The same of columns."""
        return -(-self.column_tiles // 2 // self.column_blocks)

    @property
    def is_lhs_along_depth(self) -> bool:
        return self._runs(self.c.depth, "lhs", self.depths)

    @property
    def is_rhs_along_depth(self) -> bool:
        """Whether the columns lie along depth, in runs that hold whole quarters of a step."""
        return self._runs(self.c.depth, "rhs", self.quarter)

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

    @staticmethod
    def _runs(axes: Axes, side: str, length: int) -> bool:
        """Whether `length` indices from a multiple of it are neighbours in memory."""
        if not axes or getattr(axes[-1], side) != 1:
            return False
        return len(axes) == 1 or axes[-1].size % length == 0


def tile_plan(c: Contraction, ring: Ring) -> TilePlan | None:
    """How the matrix units would do it; None where they cannot, or need not."""
    tiles = tiles_of(c, ring)
    if tiles is None or c.m < LEAST_ROWS or c.n < TILE or c.flops < LEAST_FLOPS:
        return None
    plan = TilePlan(c, ring, tiles)
    if c.k < plan.depths or c.is_diagonal or c.columns[-1].out != 1 or not plan.fits:
        return None
    return plan
