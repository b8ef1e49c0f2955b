"""Factor form: which matrices are factored, and what the machine makes of them.

    attributes --factor_of--> Factor;  Factor, Ring --FactorForm, GroupsForm--> tiles, memory

Who writes the factorisation (cholesky.py, cholesky_groups.py) and who says which loops it has
(cholesky_nest.py) read this.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.linear_algebra.groups import GROUP
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape
from hlo.machine import Machine


class Factor(Struct, frozen=True):
    """`batch` matrices of `size` rows. reports: as LAPACK does, the other triangle is copied and a
    number says which pivot failed; otherwise it is zero, and a failure makes everything NaN."""

    dtype: DType
    batch: int
    size: int
    lower: bool
    reports: bool = False


def factor_of(a: Shape, *, lower: bool, reports: bool = False) -> Factor:
    """The factors of an array's matrices."""
    return Factor(a.dtype, prod(a.dims[:-2]), a.dims[-1], lower, reports)


class FactorForm:
    """A Cholesky factorisation's sizes, in blocks, tiles and memory.

    rows: of U in a block, in registers. vectors, width: of a tile. square: rows and columns that
    are turned at once. stride: scalars from one row of U to the next; plane: from one part to the
    next. roots_at: where the inverses of a block's pivots begin, in scalars.
    """

    def __init__(self, factor: Factor, ring: Ring) -> None:
        self.factor, self.ring = factor, ring
        self.vectors = 2 if factor.size > ring.lanes else 1
        self.rows = min(ring.lanes, 4 // ring.parts)  # their code grows with the square
        self.width = ring.lanes * self.vectors
        self.square = min(ring.lanes, 8)
        padded = -(-factor.size // ring.lanes) * ring.lanes
        # an odd number of vectors, so that neighbouring rows lie in different sets of the cache
        self.stride = ((padded + self.width) // ring.lanes | 1) * ring.lanes
        self.plane = padded * self.stride + GROUP  # the last rows are cleared beyond their end
        self.roots_at = self.plane * ring.parts
        self.scratch_bytes = (self.roots_at + self.rows) * ring.scalar_bytes

    @property
    def blocks(self) -> int:
        """Rows, those that fill the last block included."""
        return -(-self.factor.size // self.rows) * self.rows

    @property
    def is_grouped(self) -> bool:
        """Whether rows above a group are taken away from all of the group's at once."""
        return self.blocks > GROUP

    def at(self, w: Writer, row: Value, column: Value) -> Value:
        """Which scalar an element of U is."""
        return add(w, times(w, row, self.stride), column)


class GroupsForm:
    """U in panels: `width` columns, which lie beside each other for every row, so that a tile's
    vectors and the numbers that they meet come from two stretches of memory. rows: of a tile.
    panel_size: scalars of a panel; plane: from one part to the next.
    """

    def __init__(self, factor: Factor, ring: Ring, registers: int) -> None:
        self.factor, self.ring = factor, ring
        self.width = 2 * ring.lanes
        self.rows = max(1, min(registers // (4 * ring.parts), self.width))
        self.square = min(ring.lanes, 8)
        self.groups = -(-factor.size // GROUP)
        self.panels = GROUP // self.width
        # a few rows more, so that the same row of two panels lies in different sets of the cache
        self.panel_size = (self.groups * GROUP + 8) * self.width
        self.plane = self.groups * self.panels * self.panel_size

    @property
    def bytes(self) -> int:
        """Of a matrix's U."""
        return self.plane * self.ring.parts * self.ring.scalar_bytes

    def rows_near(self, machine: Machine) -> int:
        """Rows of a panel that stay in a core's first cache beside those of a group of columns, for
        all tiles of the panel."""
        row_bytes = (self.width + GROUP) * self.ring.parts * self.ring.scalar_bytes
        return max(self.rows, machine.first_cache.bytes // row_bytes // 16 * 16)

    @property
    def inverses_bytes(self) -> int:
        """Of the inverses of a matrix's pivots."""
        return self.groups * GROUP * self.ring.scalar_bytes

    def at(self, w: Writer, row: Value, column: Value) -> Value:
        """Which scalar an element of U is."""
        panel = divided(w, column, self.width)
        inside = w.binary("and", column, w.int(self.width - 1))
        return add(w, add(w, times(w, panel, self.panel_size), times(w, row, self.width)), inside)
