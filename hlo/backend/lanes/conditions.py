"""Conditions on indices as code: whether each lane, or some lane, is within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Nest
from hlo.indexing import affine
from hlo.indexing.affine import Opaque
from hlo.indexing.maps import Condition


def tested(nest: Nest, conditions: Sequence[Condition]) -> Value:
    """i1 lanes (a scalar where uniform): all conditions hold."""
    w = nest.w
    result: Value | None = None
    for condition in conditions:
        with nest.at(condition.index.depth):
            value = _holds(nest, condition)
        if result is not None:
            lanes = max(result.lanes, value.lanes)
            value = w.binary("and", w.splat(result, lanes), w.splat(value, lanes))
        result = value
    assert result is not None, "at least one condition"
    return result


def _holds(nest: Nest, condition: Condition) -> Value:
    """low <= e <= high as one unsigned comparison."""
    moved = condition.index - condition.low
    span = condition.high - condition.low + 1
    value = nest.lane_values(moved, moved.lanes) if moved.lanes > 1 else nest.scalar(moved)
    return nest.w.compare("icmp ult", value, nest.w.int(span, value.type))


def for_one_lane(nest: Nest, conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Scalars' conditions: all hold for one lane, so an index that all lanes share is right."""
    w = nest.w
    found = tuple(c for c in conditions if c.index.lanes == 1)
    along = [c for c in conditions if c.index.lanes > 1]
    if not along:
        return found
    with nest.at(max(c.index.depth for c in along)) as level:
        holds = tested(nest, along)
        number = w.cast("zext", w.any_lane(holds), "i64")
        index = Opaque(number.text, 0, 1, (), depth=level.depth, lanes=1, value=number)
    return (*found, Condition(affine.of(index), 1, 1))
