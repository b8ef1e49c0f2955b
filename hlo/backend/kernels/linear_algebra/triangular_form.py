"""Triangular form: which systems are solved, and what the machine makes of them.

    attributes --system_of--> System;  System, Ring --SystemForm--> blocks of unknowns, panels

Who writes the substitution (triangular.py) and who says which loops it has (triangular_nest.py)
read this.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape


class System(Struct, frozen=True):
    """`batch` systems of `size` unknowns with `count` right-hand sides.

    m[i, p] is element origin + i row + p column of a, conjugated if `conjugates` and taken as 1 on
    the diagonal if `is_unit`; x[i] of right-hand side r is element first + i step + r across of b.
    """

    dtype: DType
    batch: int
    size: int
    count: int
    origin: int
    row: int
    column: int
    conjugates: bool
    is_unit: bool
    first: int
    step: int
    across: int

    def reversed(self) -> System:
        """The same system from its last unknown to its first."""
        last = self.size - 1
        return replace(
            self,
            origin=self.origin + last * (self.row + self.column),
            row=-self.row,
            column=-self.column,
            first=self.first + last * self.step,
            step=-self.step,
        )


def system_of(
    a: Shape, b: Shape, *, on_left: bool, lower: bool, is_unit: bool, transpose: str
) -> System:
    """The forward substitution that an instruction's attributes ask for; transpose: N, T or C."""
    n = a.dims[-1]
    count = b.dims[-1] if on_left else b.dims[-2]
    is_transposed = (transpose != "N") == on_left
    row, column = (1, n) if is_transposed else (n, 1)
    step, across = (count, 1) if on_left else (1, n)
    system = System(
        a.dtype, prod(a.dims[:-2]), n, count, 0, row, column, transpose == "C", is_unit,
        0, step, across,
    )  # fmt: skip
    return system if lower != is_transposed else system.reversed()


class SystemForm:
    """A triangular system's sizes, in blocks and panels.

    rows: unknowns of a block, which stay in registers. vectors, width: of a panel, its vectors
    of right-hand sides and how many these are.
    """

    def __init__(self, system: System, ring: Ring) -> None:
        self.system, self.ring = system, ring
        self.lanes = ring.lanes
        self.vectors = 2 if system.count > ring.lanes else 1
        self.rows = 4 // ring.parts  # their code grows with the square
        self.width = self.lanes * self.vectors
        self.panels = -(-system.count // self.width)
        self.scratch_bytes = max(1, system.size) * self.width * ring.parts * ring.scalar_bytes

    @property
    def whole(self) -> int:
        """Unknowns in full blocks."""
        return self.system.size // self.rows * self.rows

    @property
    def is_masked(self) -> bool:
        """Whether lanes are masked: in every panel, as all run the same code."""
        return self.system.count % self.width > 0
