"""Stencils: how often a kernel computes what it reads at several places beside its element.

    users' places --slice--> places of the operand, moved      y[i] = x[i + 1] - x[i]: x at 0 and 1

Places that several users have in common are computed once. So what it takes to compute a producer,
and all that it is made of, in a kernel of its users is known before any of that joins: it all does,
or an array is kept. Does not know: what else hinders a producer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.attributes.slices import slice_dims
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON
from hlo.ops.movement import PadAttributes
from hlo.ops.table import Trait, opcodes
from hlo.passes.fusion.axes import Axes, Group, Places, users_in
from hlo.passes.fusion.repeats import COSTLY

NONE: Places = frozenset()
_MOST_CONE = 64  # Instructions that are computed for a producer alone.
_MOST_PLACES = 64
# Larger arrays leave a core's own caches between the kernel that writes and the one that reads.
_FAR_BYTES = COMMON.second_cache.bytes // 2
_FOLLOWED = opcodes(Trait.CUTS | Trait.PADS | Trait.REPEATS)


def repeats_more_than_memory(group: Group, producer: Instruction, near: int) -> bool | None:
    """Whether to compute a producer, and all that only it and the group are made of, in the group
    takes longer than to write and read it; None where it is not computed at several places, or
    nobody knows at which.

    Where it pays, it is settled for all that comes with it. near: ops of an element that take as
    long as to keep one in a cache.
    """
    if producer in group.settled:
        return False
    own = places_in(group, producer)
    if own is None or len(own) < 2 or not _is_cheap(producer):
        return None
    budget = _budget(producer, near)
    for members in (group.members, {}):
        cone = _cone(producer, members)
        if _repeated(group, producer, cone, own) <= budget:
            group.settled.update(cone)
            return False
    return True


def places_in(group: Group, value: Instruction) -> Places | None:
    """At which places the members that use a value need it; None where nobody knows."""
    if value in group.roots:
        return frozenset({(0,) * value.shape.rank})
    found = NONE
    for user in users_in(group.members, value):
        at = group.places.get(user)
        moved = None if at is None else _moved(user, at)
        if moved is None or value.shape.rank != user.shape.rank:
            return None
        found |= moved
    return found if len(found) <= _MOST_PLACES else None


def _repeated(
    group: Group, producer: Instruction, cone: dict[Instruction, None], own: Places
) -> float:
    """Ops and reads of an element more than where a producer is kept, what its cone holds
    computed with it.
    """
    origin = frozenset({(0,) * producer.shape.rank})
    made, alone = _spread(cone, producer, own), _spread(cone, producer, origin)
    if made is None or alone is None:
        return math.inf
    more, read = 0, -(len(own) + 1) * _width(producer)
    for x, at in made.items():
        there = places_in(group, x) or NONE
        if x in cone:
            more += op_cost(x) * (len(at | there) - len(alone[x]))
        else:
            read += (len(at - there) - len(alone[x])) * _width(x)
    return more + read


def _budget(producer: Instruction, near: int) -> float:
    """Ops that take as long as to write an element, for which its line is read before, and to read
    it again."""
    if producer.shape.size_bytes <= _FAR_BYTES:
        return near * _width(producer)
    rates = COMMON.rates
    bytes_moved = 4 * producer.shape.dtype.item_bytes
    return bytes_moved * rates.elementwise_ops / rates.memory_bytes


def _width(value: Instruction) -> int:
    """Vectors of an element's type beside those of 32 bits."""
    return -(-value.shape.dtype.item_bytes // 4)


def _cone(producer: Instruction, members: Mapping[Instruction, Axes]) -> dict[Instruction, None]:
    """The producer and what is computed for it and the members alone, users first."""
    found = {producer: None}
    waiting = [producer]
    while waiting and len(found) < _MOST_CONE:
        for operand in waiting.pop().operands:
            if operand not in found and operand.shape.rank and _is_followed(operand):
                found[operand] = None
                waiting.append(operand)
    outside = [c for c in found if c is not producer and not _is_own(c, members, found)]
    while outside:
        for one in outside:
            del found[one]
        outside = [c for c in found if c is not producer and not _is_own(c, members, found)]
    return _users_first(found, producer)


def _is_own(
    value: Instruction, members: Mapping[Instruction, Axes], cone: Mapping[Instruction, None]
) -> bool:
    return all(u in cone or u in members for u in value.users)


def _users_first(cone: Mapping[Instruction, None], root: Instruction) -> dict[Instruction, None]:
    """A cone in an order in which each member stands behind its users."""
    left = {c: sum(u in cone for u in c.users) for c in cone}
    ready, order = [root], dict[Instruction, None]()
    while ready:
        top = ready.pop()
        order[top] = None
        for operand in dict.fromkeys(top.operands):
            if operand in left:
                left[operand] -= 1
                if not left[operand]:
                    ready.append(operand)
    return order


def _is_followed(value: Instruction) -> bool:
    """Whether it may be computed at several places: what costs much is kept in any case."""
    return _is_cheap(value) or value.opcode in _FOLLOWED


def _is_cheap(value: Instruction) -> bool:
    return is_elementwise(value) and op_cost(value) < COSTLY


def _spread(
    cone: dict[Instruction, None], producer: Instruction, own: Places
) -> dict[Instruction, Places] | None:
    """At which places a cone's members and their operands are needed for a producer at its own."""
    found = {producer: own}
    for member in cone:
        if member not in found or member.opcode == "broadcast":
            continue  # what is the same along a dimension is computed outside of its loop
        moved = _moved(member, found[member])
        if moved is None or len(moved) > _MOST_PLACES:
            return None
        for operand in member.operands:
            if operand.shape.rank == member.shape.rank:
                found[operand] = found.get(operand, NONE) | moved
    return found


def _moved(member: Instruction, at: Places) -> Places | None:
    """The places of the operands; None where they are not the member's own, moved."""
    if is_elementwise(member):
        return at
    steps = _steps_of_slice(member) if member.opcode == "slice" else _steps_of_pad(member)
    if steps is None:
        return None
    return frozenset(tuple(p + n for p, n in zip(place, steps, strict=True)) for place in at)


def _steps_of_slice(member: Instruction) -> tuple[int, ...] | None:
    dims = slice_dims(member.attributes)
    return tuple(d.start for d in dims) if all(d.stride == 1 for d in dims) else None


def _steps_of_pad(member: Instruction) -> tuple[int, ...] | None:
    """A slice's gradient: what stands beside the operand is computed nowhere."""
    if member.opcode != "pad":
        return None
    dims = PadAttributes.of(member.attributes).padding
    return tuple(-d.low for d in dims) if not any(d.interior for d in dims) else None
