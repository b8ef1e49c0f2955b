"""Updates that a scatter computes where it combines them (analysis/scatters.py).

The loops over positions and windows are the scatter's; each tells where it is along a dimension of
the updates, and what they are there is evaluated as in any loop kernel.
"""

from __future__ import annotations

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.values import Value
from hlo.backend.kernels.fused_loops import enter_operands
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.indexing.affine import Expr, number
from hlo.ir.graph import computed_from
from hlo.ir.instruction import Instruction

# Two parts of a row of half a line and more are worth the way to them, more have to be longer.
COMPUTED_PART, _LONG_PART = 16, 64


class ComputedUpdates:
    """The updates of a fusion's scatter, of the fusion's operands."""

    def __init__(self, nest: Nest, fusion: Instruction, updates: Instruction, lanes: int) -> None:
        self.updates = updates
        self.elemental: Elemental = elemental_of(nest, lanes)
        enter_operands(self.elemental.expression, fusion)
        self.elemental.enter_leaves()
        self._along: dict[int, Expr] = {}

    def enter(self, dim: int, counter: Value, extent: int, lanes: int = 1) -> None:
        """Where a loop that was opened is along a dimension of the updates."""
        self._along[dim] = self.elemental.nest.variable(counter, 0, extent - 1, lanes)

    def lanes_here(self, lanes: int) -> Lanes:
        """The updates where all loops are."""
        dims = range(self.updates.shape.rank)
        index = tuple(self._along.get(d, number(0)) for d in dims)
        (found,) = self.elemental.lanes_at(self.updates, [index])
        return self.elemental.splat(found, lanes)


def computed_lanes(updates: Instruction, most: int, vector_bytes: int) -> int:
    """How many of the updates are computed at a time: as many as a vector has of the widest type
    that all of them go through.
    """
    size = updates.shape.size
    widths = [
        max(4, m.shape.dtype.item_bytes) for m in computed_from(updates) if m.shape.size == size
    ]
    return min(most, vector_bytes // max(widths))


def computed_parts(row: int, parted: int, most: int) -> int:
    """In how many parts rows of so many elements are computed: each goes through all positions."""
    most = min(most, parted, row // COMPUTED_PART)
    return max(1, min(most, max(2, row // _LONG_PART)))


def members(updates: Instruction) -> int:
    """Operations of an update."""
    size = updates.shape.size
    return sum(
        m.shape.size == size and m.opcode not in ("parameter", "broadcast")
        for m in computed_from(updates)
    )
