"""Schedules of kernels that are one nest: parallel axes around what a unit does.

axes, nodes --around, schedule_of--> LoopSchedule
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.backend.loops.schedule import Axis, Loop, LoopNest, LoopSchedule, Node

Nodes = tuple[Node, ...]


def schedule_of(
    axes: Sequence[Axis], body: Nodes, remarks: Sequence[str], *, scratch_bytes: int = 0
) -> LoopSchedule:
    """The schedule of a kernel that is one nest. axes: the parallel ones, outermost first."""
    units, dims = prod(axis.rounds for axis in axes), tuple(axis.extent for axis in axes)
    nest = LoopNest((0,) * len(dims), dims, units, 0, units, body, remarks=tuple(remarks))
    return LoopSchedule(units, scratch_bytes, (nest,))


def around(axes: Sequence[Axis], body: Nodes) -> Nodes:
    """Loops around a body; those of one round are none, unless there may be none."""
    for axis in reversed(axes):
        body = (Loop(axis, body),) if axis.rounds > 1 or axis.of else body
    return body
