"""Siblings: groups that read the same arrays become one kernel with several results.

Two groups join when their roots have equal dimensions, they share a large operand (or one reads the
other's root element by element), and no value outside leads from one to the other. O(groups * reach).
"""

from __future__ import annotations

from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.passes.fusion_groups import Group

_MOST_RESULTS = 8
_MOST_VISITED = 2000  # instructions looked at for one pair
_NO_SIBLINGS = frozenset({"dynamic-update-slice", "concatenate", "pad", "reduce-window", "map", "gather"})


def joined(groups: list[Group], max_size: int) -> list[Group]:
    """The groups after joining; each keeps the root that stands last as its first."""
    if len(groups) < 2:
        return groups
    computation = groups[0].root.computation
    assert computation is not None, "a root in a computation"
    place = {i: n for n, i in enumerate(post_order(computation))}
    readers: dict[Instruction, list[Group]] = {}
    alive = dict.fromkeys(groups)
    for group in groups:
        for operand in _shared_values(group):
            readers.setdefault(operand, []).append(group)
    merged: dict[Group, Group] = {}
    for sharing in readers.values():
        first: Group | None = None
        for group in sharing:
            current = _final(merged, group)
            if first is None or first is current:
                first = current if _may_have_siblings(current) else first
                continue
            if _may_join(first, current, place, max_size):
                _absorb(first, current)
                merged[current] = first
                alive.pop(current)
    return list(alive)


def _final(merged: dict[Group, Group], group: Group) -> Group:
    while group in merged:
        group = merged[group]
    return group


def _shared_values(group: Group) -> list[Instruction]:
    """Operands at least as large as the result, and the root itself."""
    size = max(group.root.shape.size if group.root.shape.is_array else 0, 1)
    outside = {o: None for m in group.members for o in m.operands if o not in group.members}
    large = [o for o in outside if o.shape.is_array and o.shape.size >= size and o.shape.size > 1]
    return [*large, group.root]


def _may_have_siblings(group: Group) -> bool:
    return group.root.shape.is_array and group.root.opcode not in _NO_SIBLINGS


def _may_join(a: Group, b: Group, place: dict[Instruction, int], max_size: int) -> bool:
    if not (_may_have_siblings(a) and _may_have_siblings(b)) or a.dims != b.dims:
        return False
    if a.has_reduce != b.has_reduce or (a.has_reduce and not _fold_alike(a, b)):
        return False
    if len(a.members) + len(b.members) > max_size:
        return False
    if len(a.roots) + len(b.roots) > _MOST_RESULTS:
        return False
    for one, other in ((a, b), (b, a)):
        if not _reads_at_own_index(one, other) or _leads_to(one, other, place):
            return False
    return True


def _fold_alike(a: Group, b: Group) -> bool:
    """Roots that fold arrays of equal dimensions in the same way."""
    if {a.root.opcode, b.root.opcode} != {"reduce"}:
        return False
    same = a.root["dimensions"] == b.root["dimensions"]
    return same and a.root.operands[0].shape.dims == b.root.operands[0].shape.dims


def _reads_at_own_index(reader: Group, source: Group) -> bool:
    """Where the reader uses the other's roots, it uses them element by element."""
    own = tuple(("d", k) for k in range(len(reader.dims)))
    for root in source.roots:
        for user in root.users:
            if user in reader.members and user.opcode not in ("constant",):
                if reader.members[user] != own or user.shape.dims != root.shape.dims:
                    return False
                if user.opcode in ("reverse", "transpose", "reshape", "broadcast"):
                    return False
    return True


def _leads_to(source: Group, target: Group, place: dict[Instruction, int]) -> bool:
    """Whether a path leaves the source's roots and enters the target through other instructions."""
    least = min(place[r] for r in source.roots)
    inside = source.members.keys() | target.members.keys()
    stack = [o for m in target.members for o in m.operands if o not in inside]
    # Copies of members in other kernels do not matter: a member's own operands were looked at.
    seen = set(stack)
    while stack:
        top = stack.pop()
        if len(seen) > _MOST_VISITED:
            return True
        for operand in top.operands:
            if operand in source.roots:
                return True
            if operand not in seen and place[operand] > least:
                seen.add(operand)
                stack.append(operand)
        if top in source.roots:
            return True
    return False


def _absorb(a: Group, b: Group) -> None:
    for member, axes in b.members.items():
        a.members.setdefault(member, axes)
    a.roots += [r for r in b.roots if r not in a.roots]
    a.folds += b.folds
