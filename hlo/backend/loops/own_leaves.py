"""Own leaves: arrays of which each unit of a kernel touches a part of its own, in order.

Spread leaves: those of which all that is touched lies on lines apart from each other.

Threads claim the units of such kernels at both ends (planning/steps.py, is_met_again), so that a
thread gets about the same share of every such loop. Where units go along an array from its
beginning to its end, what an earlier loop wrote of it is in the cache of the thread that reads it,
but near the border between two shares.
"""

from __future__ import annotations

from math import prod

from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.outputs import Output
from hlo.indexing.affine import Expr, Variable

_ALL = 0.9  # The least part of an array that counts as all of it: an edge may be left out.


def own_leaves(
    expression: Expression,
    outputs: list[Output],
    schedules: list[NestSchedule],
    operand_leaves: int,
) -> frozenset[int]:
    """Entries of the table of operands and results that every nest walks along, unit by unit."""
    leaves = expression.leaves.values()
    sizes = {leaf.number: leaf.size for leaf in leaves if 0 <= leaf.number < operand_leaves}
    found = {*range(operand_leaves), *(operand_leaves + o.leaf for o in outputs)}
    for schedule in schedules:
        domain = schedule.domain
        walks = [(r.leaf, r.position, sizes[r.leaf]) for r in domain.trace.reads if r.leaf in sizes]
        walks += [
            (operand_leaves + o.leaf, o.place(domain.own_index), prod(o.dims))
            for o in domain.outputs
        ]
        found -= {leaf for leaf, place, size in walks if not _is_walked(schedule, place, size)}
        found -= {operand_leaves + o.leaf for o in domain.outer}
    return frozenset(found)


def spread_leaves(
    expression: Expression, schedules: list[NestSchedule], operand_leaves: int
) -> frozenset[int]:
    """Operands of which no element that is read lies beside another one: a column of a matrix.

    A processor fetches the neighbours of such lines, too.
    """
    item_bytes = {leaf.number: leaf.dtype.item_bytes for leaf in expression.leaves.values()}
    steps: dict[int, int] = {}
    for schedule in schedules:
        for read in schedule.domain.trace.reads:
            if 0 <= read.leaf < operand_leaves:
                step = _least_step(read.position) * item_bytes[read.leaf]
                steps[read.leaf] = min(steps.get(read.leaf, step), step)
    line_bytes = expression.target.machine.line_bytes
    return frozenset(leaf for leaf, step in steps.items() if step > line_bytes)


def _least_step(place: Expr) -> int:
    """Elements that the loops step on by, where they do least; 0 outside of loops."""
    steps = [
        abs(step)
        for variable, step in place.terms.items()
        if isinstance(variable, Variable) and variable.high > variable.low
    ]
    return min(steps, default=0)


def _is_walked(schedule: NestSchedule, place: Expr, size: int) -> bool:
    """Whether the units' outermost variable goes through the nest's share of an array."""
    domain = schedule.domain
    share = size * domain.size / prod(domain.outputs[0].dims)
    if not domain.variables:
        return share <= 1  # a corner
    if schedule.tile is not None or (schedule.inner and schedule.block):
        return False
    if schedule.prefix == 0 and len(domain.variables) > 1:
        return False
    step = place.coefficient(domain.variables[0])
    return step is not None and step * domain.extents[0] >= _ALL * share
