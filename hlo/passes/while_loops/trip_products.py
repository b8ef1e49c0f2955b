"""Products of a loop's trips, and when they are worth one product of all trips."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import Counter, counter
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.loop_making import extensible_loops

LEAST_ITERATIONS = 4


def counted_loops(module: Module) -> Iterator[tuple[Instruction, Counter]]:
    """Loops with a known number of trips, several of them, whose state a pass may change, inner
    ones first; each may be replaced meanwhile.
    """
    for loop in extensible_loops(module):
        known = counter(loop)
        if known is not None and known.iterations >= LEAST_ITERATIONS:
            yield loop, known


def loops_with_dots(module: Module) -> Iterator[tuple[Instruction, Counter]]:
    """Those of them whose bodies multiply matrices."""
    for loop, known in counted_loops(module):
        body, _ = loop.called_computations()
        if any(i.opcode == "dot" for i in body.instructions):
            yield loop, known


class Limits(Struct, frozen=True):
    """Which products are one product of all trips, by the options of the passes that make it.

    rows: of one trip, where it has more than so many operations; bytes: of what all trips hand on;
    matrix_bytes: that the matrix has at least, which a trip reads for little arithmetic.
    """

    rows: int
    operations: int
    bytes: int
    matrix_bytes: int

    def admit(self, rows: int, operations: int, matrix: Shape, *handed: int) -> bool:
        """Whether a trip's product is one. handed: bytes of each array of all trips."""
        is_short = rows <= self.rows or operations <= self.operations
        return is_short and max(handed) <= self.bytes and matrix.size_bytes >= self.matrix_bytes
