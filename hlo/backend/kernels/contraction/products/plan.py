"""The plan of a product, made by planning.py: what its kernels are written from.

ProductPlan --lhs_packing, rhs_packing--> how factors are packed; --nest, cut--> loops over depth
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.microkernels.assembly import tile_assembly
from hlo.backend.kernels.contraction.packing.form import Packing, Panels, Source
from hlo.backend.kernels.contraction.problem.axes import (
    Axes,
    Axis,
    Contraction,
    extent,
    merged,
    only,
)
from hlo.backend.kernels.contraction.problem.ring import Ring, is_plain
from hlo.backend.kernels.contraction.problem.sum_blocks import (
    Cut,
    block_of_tiles,
    chain_of,
    cut_of,
)
from hlo.machine import COMMON

LEAST_RUN = 4  # From so many neighbouring depths on rows are copied as they are.


class Reading(Enum):
    """Where the microkernel finds a factor."""

    IN_PLACE = auto()
    IN_UNIT = auto()  # packed into the thread's scratch by each unit
    IN_TILE = auto()  # lhs: a group of tiles at a time, just before they meet their panels
    PACKED = auto()  # packed by a kernel of its own


class ProductPlan(Struct, frozen=True):
    """How a product is computed: tiles, blocks, and how factors reach them.

    rows: tiles as panels (width: lanes of a packed one); columns: panels of vectors. turns:
    whether a tile has all rows, which follow each other in the result, and then the next column's.
    """

    contraction: Contraction
    ring: Ring
    rows: Panels
    columns: Panels
    vectors: int
    row_blocks: int = 1
    column_blocks: int = 1
    depth_block: int = 0
    lhs: Reading = Reading.IN_PLACE
    rhs: Reading = Reading.IN_PLACE
    depth_first: bool = False
    group: int = 0  # tiles that meet all panels of the unit before further ones do, 0: all
    turns: bool = False

    @property
    def units(self) -> int:
        return self.contraction.batches * self.row_blocks * self.column_blocks

    @property
    def depth_blocks(self) -> int:
        return -(-self.contraction.k // self.depth_block)

    @property
    def lhs_packing(self) -> Packing:
        c = self.contraction
        free = tuple((a.size, a.lhs) for a in merged(only(c.rows, "lhs")))
        depth = tuple((a.size, a.lhs) for a in merged(only(c.depth, "lhs")))
        source = Source(c.lhs.dtype, free, depth)
        by_rows = source.is_depth_contiguous and depth[-1][0] >= LEAST_RUN
        by_rows = by_rows and not source.is_free_contiguous and self.ring.rows == 1
        panel_depth = self.depth_block if self.lhs is Reading.IN_TILE else 0
        packing = Packing(self.ring.factors, source, self.rows, panel_depth, by_rows)
        return packing if packing.is_in_runs else replace(packing, by_rows=False)

    @property
    def rhs_packing(self) -> Packing:
        c = self.contraction
        free = tuple((a.size, a.rhs) for a in merged(only(c.columns, "rhs")))
        depth = tuple((a.size, a.rhs) for a in merged(only(c.depth, "rhs")))
        panel_depth = self.depth_block if self.depth_first and self.rhs is Reading.IN_UNIT else 0
        source = Source(c.rhs.dtype, free, depth, c.rhs.prologue is not None, c.rhs.joined)
        return Packing(self.ring.factors, source, self.columns, panel_depth)

    @property
    def packs_in_tiles(self) -> bool:
        """Whether the first tile of rows may pack the columns that it meets: numbers of the ring in
        rows of memory, that all tiles meet, and tiles that are written as assembly.
        """
        c, source = self.contraction, self.rhs_packing.source
        lies_in_rows = source.is_free_contiguous and len(source.depth) == 1
        is_read = is_plain(source.dtype, self.ring.factors) and not source.is_made
        is_first = self.depth_first and not self.group and self.row_blocks == 1
        is_all = c.bands.is_all and not c.bounded_side
        return (
            tile_assembly(self.ring) is not None
            and lies_in_rows
            and source.depth[0][1] > 0
            and is_read
            and is_first
            and is_all
            and self.rhs is Reading.IN_UNIT
        )

    @property
    def is_whole(self) -> bool:
        """Whether depth had better not be split: rows of which all depths wait in the caches meet
        each block of a large rhs as it comes.
        """
        near = self.lhs_packing.size_bytes <= COMMON.last_cache.bytes
        return self.depth_first and not self.group and near

    @property
    def tiles_per_block(self) -> int:
        return -(-self.rows.count // self.row_blocks)

    @property
    def panels_per_block(self) -> int:
        return -(-self.columns.count // self.column_blocks)

    @property
    def shared_bytes(self) -> int:
        """Bytes of columns that are packed once for a run of units, 0: for each unit or none."""
        if self.rhs is not Reading.IN_UNIT or not self.group or self.depth_first:
            return 0
        return self.panels_per_block * self.rhs_packing.panel_bytes

    @property
    def shared_runs(self) -> int:
        """How many such runs there are."""
        return self.column_blocks * extent(tuple(a for a in self.contraction.batch if a.rhs))

    @property
    def nest(self) -> Axes:
        """Depth as the microkernel walks it: steps in elements or in panel scalars."""
        axes: list[Axis] = []
        inner = 1
        for axis in reversed(self.contraction.depth):
            lhs, rhs = axis.lhs, axis.rhs
            if self.lhs is not Reading.IN_PLACE:
                lhs = inner * self.lhs_packing.k_step
            if self.rhs is not Reading.IN_PLACE:
                rhs = inner * self.rhs_packing.k_step
            axes.insert(0, Axis(axis.size, lhs, rhs))
            inner *= axis.size
        return merged(axes)

    @property
    def _tile_counts(self) -> list[int]:
        """Rounds of the loops over the depths that a tile takes at a time."""
        return [self.depth_block] if self.depth_blocks > 1 else [a.size for a in self.nest]

    @property
    def cut(self) -> Cut | None:
        """Where those loops are cut into blocks of sums."""
        counts, ring = self._tile_counts, self.ring
        block = block_of_tiles(counts, (ring.terms, ring.parts), is_narrow=self.vectors == 1)
        if not ring.rounds or (cut := cut_of(counts, block)) is None:
            return None
        return cut.nested(counts) if self.contraction.is_diagonal else cut

    @property
    def sums(self) -> Sums:
        """The plan in a word or two, and how long chains of additions are in it."""
        name = "diagonal" if self.contraction.is_diagonal else "groups" if self.group else "tiles"
        order = "depth first" if self.depth_first else "depth blocks"
        chain = self.ring.terms * chain_of(self._tile_counts, self.cut) + self.depth_blocks
        return Sums(f"{name}, {order}" if self.depth_blocks > 1 else name, chain)
