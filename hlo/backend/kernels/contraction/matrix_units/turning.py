"""Finished sums of 2 x 2 tiles with their columns as rows, turned in squares of registers."""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, advanced, split_index, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.matrix_units.amx import TILE
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.lanes.transposed import turned_parts

WIDTH = 2 * TILE


def turn_squares(w: Writer, ring: Ring, source: Value, target: Value) -> None:
    """[row][column] of 2 x 2 tiles of sums to [column][row] elsewhere."""
    type = vector_of(ring.scalar, TILE)

    def at_square(square: Value) -> None:
        across, down = split_index(w, square, (2, 2))
        begin = add(w, times(w, across, TILE * WIDTH), times(w, down, TILE))
        end = add(w, times(w, down, TILE * WIDTH), times(w, across, TILE))
        first, to = advanced(w, source, begin, ring.scalar), advanced(w, target, end, ring.scalar)
        rows = [
            w.load(advanced(w, first, r * WIDTH, ring.scalar), type, ring.scalar_bytes)
            for r in range(TILE)
        ]
        for r, vector in enumerate(turned_parts(w, rows)):
            w.store(vector, advanced(w, to, r * WIDTH, ring.scalar), ring.scalar_bytes)

    ranged(w, w.int(0), w.int(4), at_square)
