"""Affine gathers: those whose place in a table is an index, not a number in memory.

    gather(table, clamp(low, j - i + c, high)) --looked_up--> a run of the table, and its ends
    gather(table, [3i, k i + j])               --looked_up--> elements that are equally far apart

Distances, shifts and frames are computed of iotas, so neighbouring lanes read neighbouring
elements, or such as are equally far apart: one load in the place of one for each lane, at an
address that nothing computes lane by lane. Lanes whose place is clamped, by the program or by the
gather itself, get the element at the end; their part of the run is masked off.
"""

from __future__ import annotations

from functools import partial

from hlo.analysis.counted_places import Node, Place, place_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, stride
from hlo.indexing.maps import Condition, cases
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction


def looked_up(elemental: Elemental, gather: Instruction, index: Index) -> Lanes | None:
    """A gather's elements at an index; None where its places are no neighbours that are counted."""
    table = gather.operands[0]
    ends: list[Place | None] = []

    def bounded(scalar: Instruction, low: int, high: int) -> Expr:
        return elemental.clamped(scalar, (), low, high)

    def start(number: int, at: Index, low: int, high: int) -> Expr:
        found = place_of(gather.operands[number], at, partial(_computed, elemental), bounded)
        inside = found.clamped(low, high) if found is not None else None
        ends.append(inside)
        return affine.number(low) if inside is None else inside.index

    (case,) = cases(gather, index, start)
    known = [place for place in ends if place is not None]
    if not known or len(known) < len(ends):
        return None
    if len(known) > 1 and not all(p.is_open for p in known):
        return None
    place = known[0]
    found = elemental.place_in_memory(table, case.index)
    if found is None or not stride(found[1]):  # all lanes have one, or are anywhere
        return None
    with elemental.under(_open(place, place.low, place.high)):
        (result,) = elemental.lanes_at(table, [case.index])
    for end, open_ in (
        (place.low, _open(place, place.low, max(place.low, place.index.high))),
        (place.high, _open(place, min(place.high, place.index.low), place.high)),
    ):
        if open_:
            (edge,) = cases(gather, index, lambda *_, end=end: affine.number(end))
            (value,) = elemental.lanes_at(table, [edge.index])
            result = _chosen(elemental, open_, (result, value), gather.shape.dtype)
    return result


def _open(place: Place, low: int, high: int) -> tuple[Condition, ...]:
    condition = Condition(place.index, low, high)
    return () if condition.always else (condition,)


def _chosen(
    elemental: Elemental,
    conditions: tuple[Condition, ...],
    pair: tuple[Lanes, Lanes],
    dtype: DType,
) -> Lanes:
    w, holds = elemental.nest.w, elemental.test(conditions)
    lanes = max(holds.lanes, *map(types.width, pair))
    a, b = (elemental.splat(value, lanes) for value in pair)
    kind = elemental.expression.storage(dtype)
    return types.selected(w, elemental.nest.target, w.splat(holds, lanes), (a, b), kind)


def _computed(elemental: Elemental, instruction: Instruction, index: Index) -> Node | None:
    """What computes an integer, None where it is in memory or made for itself."""
    source, path = elemental.expression.source(instruction, ())
    if path or (source, ()) in elemental.memory or source in elemental.saved:
        return None
    return source, index
