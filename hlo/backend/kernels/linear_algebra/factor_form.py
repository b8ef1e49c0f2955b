"""Factor form: which matrices are factored, and what the machine makes of them.

    attributes --factor_of--> Factor;  Factor, Ring --FactorForm--> tiles, scratch memory

Who writes the factorisation (factorisation.py) and who says which loops it has
(factor_nest.py) read this.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape

GROUP = 64  # Rows of a group: what lies above them in a tile's columns is read once for all.


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
    """rows: of U in a block, in registers. vectors, width: of a tile. square: rows and columns that
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
