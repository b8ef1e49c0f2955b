"""Product form: what a plan means for the code of a product, before any of it is written.

    ProductPlan --ProductForm--> where sums go, what lies in scratch, how a tile is written

Who writes the product (product.py) and who says which loops it has (nest.py) read this.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.microkernels.assembly import (
    AssemblyTile,
    DepthLoop,
    fits,
    tile_assembly,
)
from hlo.backend.kernels.contraction.microkernels.microkernel import DepthAxis, Factor, Microkernel
from hlo.backend.kernels.contraction.problem.axes import Operand, merged, only
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import is_plain
from hlo.backend.kernels.contraction.products.batch_prefetch import (
    FactorPrefetch,
    prefetched_factors,
)
from hlo.backend.kernels.contraction.products.column_prefetch import ColumnLines, column_lines
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.row_prefetch import row_prefetch_bytes
from hlo.backend.kernels.contraction.products.tile_packing import RowLines, row_lines
from hlo.machine import aligned

# Times the last cache's bytes that one program counts on: what is left there of a larger result
# does not pay. Zen 4, 32 MiB shared: a product and the next one, which reads its result, took, of
# the time with lines that are fetched: of 27 MB 1.34, 38 MB 1.11, 49 MB 0.97, 67 MB 0.94.
BEYOND = 12


class ProductForm:
    """A product's plan with what follows from it for the code.

    staged: whether sums wait for further depth blocks. is_counted: whether the run says over how
    many depths a tile sums. row_axes: the result's rows, sizes and
    strides. is_direct: whether sums leave for the result as they are, in rows of one stride.
    """

    def __init__(self, plan: ProductPlan, *, has_epilogue: bool) -> None:
        self.plan = plan
        self.c, self.ring = c, ring = plan.contraction, plan.ring
        self.packings = {"lhs": plan.lhs_packing, "rhs": plan.rhs_packing}
        self.readings = {"lhs": plan.lhs, "rhs": plan.rhs}
        self.staged = plan.depth_blocks > 1
        self.is_counted = self.staged or c.bands.has_depths or c.bounded_side == "depth"
        self.cut = plan.cut
        self.row_axes = [(a.size, a.out) for a in merged(only(c.rows, "out"))]
        is_run = len(self.row_axes) <= 1 and (not c.columns or c.columns[-1].out == 1)
        waits = self.staged or has_epilogue
        self.is_direct = not waits and is_run and is_plain(c.out, ring)

    # -- scratch ---------------------------------------------------------------------------------

    @property
    def scratch(self) -> tuple[int, int, int, int]:
        """Numbers of packed rows, of packed columns; of sums that wait, and of those of the blocks
        before that a tile of assembly sets aside.
        """
        plan, lhs, rhs = self.plan, self.packings["lhs"], self.packings["rhs"]
        panels = 1 if self.packs_first else plan.panels_per_block
        tiles = {Reading.IN_UNIT: plan.tiles_per_block, Reading.IN_TILE: plan.group}
        return (
            tiles.get(plan.lhs, 0) * lhs.panel_size,
            panels * rhs.panel_size if plan.rhs is Reading.IN_UNIT else 0,
            self.waiting_rows * rhs.k_step,
            plan.rows.step * plan.columns.width if self.cut and tile_assembly(plan.ring) else 0,
        )

    @property
    def scratch_sizes(self) -> list[int]:
        """The same in bytes, each in whole lines."""
        factor, sums = self.ring.factors.scalar_bytes, self.ring.scalar_bytes
        widths = (factor, factor, sums, sums)
        pairs = zip(self.scratch, widths, strict=True)
        return [aligned(size * width) for size, width in pairs]

    @property
    def waiting_rows(self) -> int:
        """Rows of sums that wait: a unit's of all panels or of one, or a tile's."""
        plan = self.plan
        if self.staged:
            panels = plan.panels_per_block if plan.depth_first else 1
            return panels * plan.tiles_per_block * plan.rows.step
        return 0 if self.is_direct else plan.rows.step

    @property
    def bytes_moved(self) -> int:
        """Of factors and result, each once."""
        c = self.c
        numbers = sum(packing.source.size for packing in self.packings.values()) + c.m * c.n
        return c.batches * numbers * self.ring.scalar_bytes * self.ring.parts

    def own_buffers(self, epilogue: Epilogue | None) -> frozenset[int]:
        """Buffers of which a unit has a part of its own: the result, what an epilogue reads in its
        places, and the factor along whose panels alone units go.
        """
        plan, own = self.plan, {2}
        if epilogue is not None:
            own |= {3 + n for n in range(len(epilogue.further))}
            read = enumerate(epilogue.others, start=max(own) + 1)
            walked = {number for number, _ in epilogue.in_place}
            own |= {place for place, number in read if number in walked}
        others = {"lhs": plan.column_blocks, "rhs": plan.row_blocks}
        for place, (side, again) in enumerate(others.items()):
            if again == 1 and all(getattr(axis, side) for axis in self.c.batch):
                own.add(place)
        return frozenset(own)

    # -- tiles -----------------------------------------------------------------------------------

    @property
    def prefetched_factors(self) -> tuple[FactorPrefetch, ...]:
        """The next batch's factors that tiles ask for: those of assembly do."""
        return prefetched_factors(self.plan) if self.is_assembly else ()

    @property
    def row_prefetch_bytes(self) -> int:
        """Bytes by which each depth moves on in the next group's rows, 0: tiles ask for none."""
        return row_prefetch_bytes(self.plan) if self.is_assembly else 0

    @property
    def is_assembly(self) -> bool:
        """Whether tiles are written as assembly."""
        return self.assembly(Value(str(self.plan.depth_block), "i64")) is not None

    def factor(self, side: str) -> Factor:
        """How a tile reads rows or columns."""
        packing = self.packings[side]
        if self.readings[side] is not Reading.IN_PLACE:
            return Factor(self.ring, None, unit=packing.row_step, part=packing.part_step)
        free = packing.source.free
        spread = side == "lhs" and self.c.is_diagonal
        unit = free[-1][1] if free else 1
        return Factor(self.ring, packing.source.dtype, unit=unit, spread=spread)

    @property
    def row_lines(self) -> RowLines | None:
        """What tiles ask for that pack the columns to come: those of assembly do."""
        return row_lines(self.plan) if self.is_assembly else None

    @property
    def column_lines(self) -> ColumnLines | None:
        """What tiles ask for of the columns that are packed next: those of assembly do."""
        return column_lines(self.plan) if self.is_assembly else None

    @property
    def packs_first(self) -> bool:
        """Whether the first tile of rows packs the columns that it meets."""
        return self.row_lines is not None

    def assembly(self, count: Value, *, packs: bool = False) -> AssemblyTile | None:
        """The tile as assembly, where that serves. count: depths of one pass. packs: whether it
        reads its columns where they lie, and packs them.
        """
        plan, ring, size = self.plan, self.ring, self.ring.scalar_bytes
        factors = {side: self.factor(side) for side in ("lhs", "rhs")}
        plain = all(f.dtype is None or is_plain(f.dtype, ring) for f in factors.values())
        words = tile_assembly(ring)
        if words is None or not plain or self.c.is_diagonal or not self.c.k:
            return None
        counts = [count if self.is_counted else axis.size for axis in plan.nest]
        lines = row_lines(plan)
        loops = tuple(
            DepthLoop(n, axis.lhs * size, lines.row_bytes if packs and lines else axis.rhs * size)
            for n, axis in zip(counts, plan.nest, strict=True)
        )
        out_row = self.packings["rhs"].k_step
        if self.is_direct:
            out_row = self.row_axes[0][1] if self.row_axes else 0
        tile = AssemblyTile(
            ring, plan.rows.step, plan.vectors, factors["lhs"].unit * size, out_row * size, loops,
            self.cut,
            adds=self.staged,
            last_lanes=self.c.n % ring.lanes if plan.columns.exceeds(self.c.n) else 0,
            is_rhs_masked=packs or plan.rhs is Reading.IN_PLACE,
            is_out_masked=self.is_direct,
            ahead_bytes=lines.row_bytes if lines else self._ahead_bytes,
            ahead_lines=lines.each if lines else self._ahead_lines,
            panel_step=out_row * size if packs else 0,
            streams=self._streams,
        )  # fmt: skip
        return tile if fits(tile, words) else None

    @property
    def streams(self) -> bool:
        """Whether sums go past the caches: those of assembly do."""
        return self._streams and self.is_assembly

    @property
    def _streams(self) -> bool:
        """Whether the result is so large that no cache holds it for whoever reads it, and tiles
        have whole lines of it. Zen 4, two threads, f32, of the time with lines that are read before
        they are written: 4096 x 64 by 4096 0.90, 64 batches of 512 x 64 by 512 0.90, a convolution
        of 16 to 96 features by windows of 1x1 0.74.
        """
        c, plan, ring = self.c, self.plan, self.ring
        if not self.is_direct or plan.columns.exceeds(c.n) or plan.columns.overlaps:
            return False
        line_bytes = ring.target.machine.line_bytes
        row_bytes = (self.row_axes[0][1] if self.row_axes else 0) * ring.scalar_bytes
        tile_bytes = plan.columns.width * ring.scalar_bytes
        size_bytes = c.batches * c.m * c.n * c.out.item_bytes
        is_in_lines = row_bytes % line_bytes == 0 and tile_bytes % line_bytes == 0
        return is_in_lines and size_bytes > BEYOND * ring.target.machine.last_cache.bytes

    @property
    def _ahead_bytes(self) -> int:
        """By which a depth moves on in a next group's rows, or in a next batch's matrices."""
        return row_prefetch_bytes(self.plan) or self.ring.target.machine.line_bytes

    @property
    def _ahead_lines(self) -> int:
        """That a depth asks for, where the run knows of which: what depths move over else."""
        lines = column_lines(self.plan)
        return lines.each if lines else 0

    def microkernel(self, count: Value) -> Microkernel:
        """The tile as LLVM's values."""
        plan, height = self.plan, self.plan.rows.step
        lhs, rhs = self.factor("lhs"), self.factor("rhs")
        sizes = [count if self.is_counted else Value(str(axis.size), "i64") for axis in plan.nest]
        axes = tuple(
            DepthAxis(size, axis.lhs, axis.rhs) for size, axis in zip(sizes, plan.nest, strict=True)
        )
        unroll = _unroll(height * plan.vectors)
        return Microkernel(height, plan.vectors, lhs, rhs, axes, unroll, self.cut)


def _unroll(products: int) -> int:
    """Depths per round of the inner loop: enough to hide its arithmetic."""
    return 1 if products >= 16 else 2 if products >= 8 else 4


def read_in_memory(plan: ProductPlan) -> tuple[Operand, ...]:
    """The factors that a product reads where they lie, not as panels that were packed before."""
    sides = ((plan.lhs, plan.contraction.lhs), (plan.rhs, plan.contraction.rhs))
    return tuple(factor for reading, factor in sides if reading is not Reading.PACKED)
