"""Lane axis: how a part's loop over lanes ends.

part --lane_axis--> Axis: vectors a round, what becomes of the elements after the last full one
"""

from __future__ import annotations

from hlo.backend.kernels.part import Part
from hlo.backend.loops.schedule import Axis, Role, Tail, axis_name
from hlo.backend.loops.vectors import MOST_SHORT

_FEW_VECTORS = 4  # of an array that a loop's iterations may hand on in registers


def lane_axis(part: Part, extent: int = 0) -> Axis:
    """The last loop of a part whose lanes run over it. extent: of one of its blocks, whose bounds
    are known at run time.
    """
    length, lanes = part.extents[-1], part.lanes
    step = lanes * part.copies
    name, of = axis_name(len(part.extents) - 1), length if extent else 0
    size = extent or length
    if part.turned and length % lanes and _may_repeat(part):
        return Axis(name, size, Role.VECTOR, lanes, lanes, Tail.OVERLAPPING, of=of)
    if part.in_one:
        return Axis(name, size, Role.VECTOR, lanes, lanes, Tail.PREDICATED, of=of)
    if not length % step:
        return Axis(name, size, Role.VECTOR, step, lanes, of=of)
    if extent:
        rest = _rest_lanes(part)
        return Axis(name, size, Role.VECTOR, step, lanes, Tail.MASKED, rest, of)
    rest = length % lanes
    shortens = part.is_light and length <= _FEW_VECTORS * lanes
    is_short = not rest or (shortens and rest.bit_count() <= MOST_SHORT)
    return Axis(name, size, Role.VECTOR, step, lanes, Tail.SHORT if is_short else Tail.MASKED)


def strip_axis(part: Part) -> Axis:
    """The loop over lanes of a part with a strip, around the loops over what is folded."""
    length, step = part.extents[part.lane_loop], part.lanes * part.copies
    name, size, rest = axis_name(part.lane_loop), part.block or length, length % step
    if rest and part.in_one:
        return Axis(name, size, Role.VECTOR, step, part.lanes, Tail.PREDICATED, of=length)
    vectors = -(-rest // part.lanes)
    tail = Tail.MASKED if rest else Tail.NONE
    return Axis(name, size, Role.VECTOR, step, part.lanes, tail, vectors * part.lanes, length)


def _rest_lanes(part: Part) -> int:
    """Lanes after the last full batch: elements that lie apart are gathered in 32 bits each."""
    lane = part.variables[-1]
    steps = [read.position.coefficient(lane) or 0 for read in part.trace.reads]
    words = part.vector_bytes // 4
    return min(part.lanes, words) if any(abs(k) > 1 for k in steps) else part.lanes


def _may_repeat(part: Part) -> bool:
    """Whether lanes may be stored twice: they rest on nothing that a result may lie over."""
    lane = part.variables[-1]
    return all(o.alias is None for o in part.outputs) and all(
        read.folded for read in part.trace.reads if read.position.depends_on(lane)
    )
