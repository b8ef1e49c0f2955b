"""Affine gathers: those whose place in a table is an index, not a number in memory.

    gather(table, clamp(low, j - i + c, high)) --looked_up--> a run of the table, and its ends

Distances and shifts are computed of iotas, so neighbouring lanes read neighbouring elements: one
load in the place of one for each lane. Lanes whose place is clamped, by the program or by the
gather itself, get the element at the end; their part of the run is masked off. Integers are
followed only as far as none leaves its type, so that none wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, stride
from hlo.indexing.maps import Condition, cases
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import Trait, opcodes

MOST_BEHIND = 64  # Instructions behind a place.
FAR = 1 << 62
_MOVES = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS)


class Place(Struct, frozen=True):
    """clamp(low, index, high)"""

    index: Expr
    low: int = -FAR
    high: int = FAR

    @property
    def is_open(self) -> bool:
        """Whether nothing is clamped."""
        return self.low <= self.index.low and self.index.high <= self.high

    @property
    def least(self) -> int:
        return min(max(self.index.low, self.low), self.high)

    @property
    def most(self) -> int:
        return min(max(self.index.high, self.low), self.high)

    def clamped(self, low: int, high: int) -> Place | None:
        """None where only one end is left of it."""
        low, high = max(self.low, low), min(self.high, high)
        return Place(self.index, low, high) if low <= high else None


Known = Place | bool
Node = tuple[Instruction, Index]


def looked_up(elemental: Elemental, gather: Instruction, index: Index) -> Lanes | None:
    """A gather's elements at an index; None where its places are no neighbours that are counted."""
    table = gather.operands[0]
    ends: list[Place] = []

    def start(number: int, at: Index, low: int, high: int) -> Expr:
        found = place_of(elemental, gather.operands[number], at)
        inside = found.clamped(low, high) if found is not None else None
        if inside is None:
            ends.clear()
            return affine.number(low)
        ends.append(inside)
        return inside.index

    (case,) = cases(gather, index, start)
    if len(ends) != 1:
        return None
    (place,) = ends
    found = elemental.place_in_memory(table, case.index)
    if found is None or found[1].lanes == 1 or stride(found[1]) not in (1, -1):
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


def place_of(elemental: Elemental, source: Instruction, index: Index) -> Place | None:
    """An integer's value as an index; None where it is none."""
    root = _node(elemental, source, index)
    known: dict[Node, Known] = {}
    stack = [root]
    while stack and root is not None:
        top = stack[-1]
        if top is None or len(known) + len(stack) > MOST_BEHIND:
            return None
        parts = _parts(elemental, *top)
        missing = [p for p in parts if p is None or p not in known]
        if missing and top not in known:
            stack += missing
            continue
        stack.pop()
        if top not in known:
            found = _found(elemental, top, [known[p] for p in parts if p is not None])
            if found is None:
                return None
            known[top] = found
    place = known.get(root) if root is not None else None
    return place if isinstance(place, Place) else None


def _node(elemental: Elemental, instruction: Instruction, index: Index) -> Node | None:
    """What computes an integer, None where it is in memory or made for itself."""
    source, path = elemental.expression.source(instruction, ())
    if path or (source, ()) in elemental.memory or source in elemental.saved:
        return None
    return source, index


def _parts(elemental: Elemental, one: Instruction, index: Index) -> Sequence[Node | None]:
    """What an integer is computed from, each where it is read."""
    if _is_moved(one):
        (case,) = cases(one, index, elemental.starts(one))
        return [_node(elemental, one.operands[0], case.index)]
    if one.opcode in _COMBINED and not _is_bounded_scalar(one):
        return [_node(elemental, o, index if o.shape.dims else ()) for o in one.operands]
    return []


def _found(elemental: Elemental, node: Node, parts: Sequence[Known]) -> Known | None:
    one, index = node
    if _is_moved(one):
        return parts[0]
    if one.opcode == "iota":
        return _in_range(Place(index[IotaAttributes.of(one.attributes).iota_dimension]), one)
    if one.opcode == "constant":
        return _constant(one)
    if _is_bounded_scalar(one):
        low, high = (_constant(o) for o in one.operands[::2])
        assert low is not None, "a constant"
        assert high is not None, "a constant"
        return Place(elemental.clamped(one.operands[1], (), low.least, high.least))
    combined = _COMBINED.get(one.opcode)
    found = combined(one, parts) if combined is not None else None
    return _in_range(found, one) if isinstance(found, Place) else found


def _is_moved(one: Instruction) -> bool:
    """Whether each integer is one of the operand's; a bitcast may read its bits otherwise."""
    return one.opcode in _MOVES and one.operands[0].shape.dtype is one.shape.dtype


def _is_bounded_scalar(one: Instruction) -> bool:
    """Whether it is a number between two that are known, as where a block starts is."""
    if one.opcode != "clamp" or one.shape.dims:
        return False
    low, high = (_constant(o) for o in one.operands[::2])
    return low is not None and high is not None and low.least <= high.least


def _in_range(place: Place, one: Instruction) -> Place | None:
    """A place whose values are all in an integer's type."""
    dtype = one.shape.dtype
    if not dtype.is_integral or dtype.bits < 8:
        return None
    least, most = dtype.int_range
    return place if least <= place.least and place.most <= most else None


def _constant(one: Instruction) -> Place | None:
    literal = one.attributes.get("literal")
    if not isinstance(literal, Literal) or literal.is_elided or not literal.shape.is_array:
        return None
    if not literal.shape.dtype.is_integral or not literal.shape.size or not literal.is_uniform:
        return None
    return Place(affine.number(int(np.asarray(literal.array).reshape(-1)[0])))


def _sum(_: Instruction, parts: Sequence[Known]) -> Place | None:
    """clamp(l, x, h) + n = clamp(l + n, x + n, h + n)"""
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    if a.is_open and b.is_open:
        return Place(a.index + b.index)
    if a.index.is_constant:
        a, b = b, a
    if not b.index.is_constant or not b.is_open:
        return None
    n = b.index.constant
    return Place(a.index + n, a.low + n, a.high + n)


def _negative(_: Instruction, parts: Sequence[Known]) -> Place | None:
    """-clamp(l, x, h) = clamp(-h, -x, -l)"""
    (a,) = parts
    return Place(a.index * -1, -a.high, -a.low) if isinstance(a, Place) else None


def _difference(one: Instruction, parts: Sequence[Known]) -> Place | None:
    negative = _negative(one, parts[1:])
    return _sum(one, [parts[0], negative]) if negative is not None else None


def _clamp(_: Instruction, parts: Sequence[Known]) -> Place | None:
    low, place, high = parts
    if not (isinstance(low, Place) and isinstance(place, Place) and isinstance(high, Place)):
        return None
    if not low.index.is_constant or not high.index.is_constant:
        return None
    return place.clamped(low.index.constant, high.index.constant)


def _extreme(one: Instruction, parts: Sequence[Known]) -> Place | None:
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    if a.index.is_constant:
        a, b = b, a
    if not b.index.is_constant:
        return None
    n = b.index.constant
    return a.clamped(n, FAR) if one.opcode == "maximum" else a.clamped(-FAR, n)


def _same(_: Instruction, parts: Sequence[Known]) -> Place | None:
    (a,) = parts
    return a if isinstance(a, Place) else None


def _compared(one: Instruction, parts: Sequence[Known]) -> bool | None:
    """A comparison that comes out the same everywhere, as of places with zero."""
    a, b = parts
    if not isinstance(a, Place) or not isinstance(b, Place):
        return None
    below, above = a.most < b.least, a.least > b.most
    at_most, at_least = a.most <= b.least, a.least >= b.most
    always, never = {
        "LT": (below, at_least), "LE": (at_most, above),
        "GT": (above, at_most), "GE": (at_least, below),
    }.get(str(one["direction"]), (False, False))  # fmt: skip
    return always if always or never else None


def _selected(_: Instruction, parts: Sequence[Known]) -> Known | None:
    where, a, b = parts
    return (a if where else b) if isinstance(where, bool) else None


_COMBINED: dict[str, Callable[[Instruction, Sequence[Known]], Known | None]] = {
    "add": _sum,
    "subtract": _difference,
    "negate": _negative,
    "clamp": _clamp,
    "maximum": _extreme,
    "minimum": _extreme,
    "convert": _same,
    "compare": _compared,
    "select": _selected,
}
