"""Turning: few columns of a factor copied along depth, as a matrix of long rows reads them.

rhs[k, n]  --columns_along_depth-->  copy[n, k], rows of whole vectors  --on_copy--> Contraction
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.kernels.contraction.packing.form import Packing, Panels, Source
from hlo.backend.kernels.contraction.packing.panels import packed_strides
from hlo.backend.kernels.contraction.problem.axes import Axes, Axis, Contraction, Operand
from hlo.backend.kernels.contraction.problem.ring import Ring, partial_type


def columns_along_depth(c: Contraction, ring: Ring) -> Packing:
    """One panel, whose lanes are the depths of a column: depth and columns have changed places. A
    column takes an odd number of cache lines, so that they lie in different sets of the cache.
    """
    per_line = ring.target.machine.line_bytes // ring.scalar_bytes
    lines = -(-c.k // per_line) | 1
    width = -(-lines * per_line // ring.lanes) * ring.lanes
    source = Source(c.rhs.dtype, _strides(c.depth), _strides(c.columns))
    return Packing(ring, source, Panels(1, width, c.k, c.k))


def on_copy(c: Contraction, packing: Packing, place: int) -> Contraction:
    """The contraction whose rhs is that copy, in buffer `place`."""
    moved = packed_strides([(a.size, a.rhs) for a in c.batch], packing)
    return replace(
        c,
        batch=tuple(replace(a, rhs=step) for a, (_, step) in zip(c.batch, moved, strict=True)),
        columns=_with_rhs(c.columns, packing.k_step),
        depth=_with_rhs(c.depth, 1),
        rhs=Operand(partial_type(packing.ring), place),
    )


def _strides(axes: Axes) -> tuple[tuple[int, int], ...]:
    return tuple((a.size, a.rhs) for a in axes)


def _with_rhs(axes: Axes, step: int) -> Axes:
    """Axes that move rhs as one, by `step` for the innermost one."""
    found: list[Axis] = []
    for axis in reversed(axes):
        found.insert(0, replace(axis, rhs=step))
        step *= axis.size
    return tuple(found)
