"""Gates: a product of which equal parts of the columns are finished together.

    columns [gate, place] --gated--> [panel, gate, lanes]

A panel holds the same places of all gates, a vector of each, so that a tile has all that an element
of the result is made from. The columns are packed in that order, which early calls do.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.packing.form import Panels
from hlo.backend.kernels.contraction.problem.axes import Axis, Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.backend.kernels.contraction.products.plan import ProductPlan, Reading
from hlo.backend.kernels.contraction.products.planning import SECOND_FLOPS, UNIT_FLOPS, UNITS

UNIT_BYTES = 128 << 10  # Columns of so many bytes are worth a unit.


def gated_plan(c: Contraction, ring: Ring, gates: int) -> ProductPlan:
    """The plan of a dot of two matrices of the ring's numbers (analysis/fusibility.py: gates_of),
    whose result has a gate's columns.
    """
    (columns,) = c.columns
    width = columns.size // gates
    lanes, stride = ring.lanes, columns.rhs
    panels = width // lanes
    split = (
        Axis(panels, 0, lanes * stride, lanes),
        Axis(gates, 0, width * stride, 0),
        Axis(lanes, 0, stride, 1),
    )
    rows = tuple(replace(axis, out=axis.out // gates) for axis in c.rows)
    most = (ring.registers - gates - 1) // gates
    tiles = -(-c.m // most)
    step = -(-c.m // tiles)
    column_bytes = c.k * c.n * ring.scalar_bytes
    wanted = 1 + (c.flops >= SECOND_FLOPS), c.flops // UNIT_FLOPS, column_bytes // UNIT_BYTES
    blocks = max(wanted)
    return ProductPlan(
        contraction=replace(c, rows=rows, columns=split),
        ring=ring,
        rows=Panels(tiles, -(-step // lanes) * lanes, step, c.m),
        columns=Panels(panels, gates * lanes, gates * lanes, columns.size),
        vectors=gates,
        column_blocks=min(panels, UNITS, blocks),
        depth_block=c.k,
        rhs=Reading.PACKED,
    )
