"""Stencils: how often a kernel computes what it reads at several places beside its element.

    users' places --slice--> places of the operand, moved      y[i] = x[i + 1] - x[i]: x at 0 and 1

Places that several users have in common are computed once. So what it takes to compute a producer,
and all that it is made of, in a kernel of its users is known before any of that joins: it all does,
or an array is kept. Does not know: what else hinders a producer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.attributes.slices import slice_dims
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON
from hlo.passes.fusion_axes import Axes, Group, users_in

Place = tuple[int, ...]  # An element's index less the index of the kernel's element.
Places = dict[Instruction, set[Place]]
_MOST_CONE = 64  # Instructions that are computed for a producer alone.
_MOST_PLACES = 64
_FAR_BYTES = COMMON.last_cache.bytes  # Larger arrays are written to memory and read from there.


def repeats_more_than_memory(group: Group, producer: Instruction, near: int) -> bool | None:
    """Whether to compute a producer, and all that only it and the group are made of, in the group
    takes longer than to write and read it; None where it is not computed at several places, or
    nobody knows at which.

    Where it pays, it is settled for all that comes with it. near: ops of an element that take as
    long as to keep one in a cache.
    """
    if producer in group.settled:
        return False
    inside = _places(dict.fromkeys(group.members), {r: {_origin(r)} for r in group.roots})
    if inside is None or any(u not in inside for u in users_in(group.members, producer)):
        return None
    own = inside.get(producer)
    if own is None or len(own) < 2 or not is_elementwise(producer):
        return None
    budget = _budget(producer, near)
    for members in (group.members, {}):
        cone = _cone(producer, members)
        if _repeated(producer, cone, inside) <= budget:
            group.settled.update(cone)
            return False
    return True


def _repeated(producer: Instruction, cone: dict[Instruction, None], inside: Places) -> float:
    """Ops and reads of an element more than where a producer is kept, what its cone holds
    computed with it. inside: places in the group as it is.
    """
    made = _places(cone, {c: inside[c] for c in cone if c in inside})
    alone = _places(cone, {producer: {_origin(producer)}})
    if made is None or alone is None:
        return math.inf
    ops = sum(op_cost(c) * (len(made[c]) - len(alone.get(c, ()))) for c in cone)
    read = -(len(inside[producer]) + 1) * _width(producer)
    for x, at in made.items():
        if x not in cone:
            read += (len(at - inside.get(x, set())) - len(alone.get(x, ()))) * _width(x)
    return ops + read


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


def _origin(root: Instruction) -> Place:
    return (0,) * root.shape.rank


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
    return is_elementwise(value) or value.opcode in ("slice", "broadcast")


def _places(members: Iterable[Instruction], start: Places) -> Places | None:
    """At which places members and their operands are needed; members: users first."""
    found: Places = {root: set(at) for root, at in start.items()}
    for member in members:
        at = found.get(member)
        if at is None or member.opcode == "broadcast":
            continue  # what is the same along a dimension is computed outside of its loop
        moved = _moved(member, at)
        if moved is None or len(moved) > _MOST_PLACES:
            return None
        for operand in member.operands:
            if operand.shape.rank == member.shape.rank:
                found.setdefault(operand, set()).update(moved)
    return found


def _moved(member: Instruction, at: set[Place]) -> set[Place] | None:
    """The places of the operands; None where they are not the member's own, moved."""
    if is_elementwise(member):
        return at
    if member.opcode != "slice":
        return None
    dims = slice_dims(member.attributes)
    if any(d.stride != 1 for d in dims):
        return None
    return {tuple(p + d.start for p, d in zip(place, dims, strict=True)) for place in at}
