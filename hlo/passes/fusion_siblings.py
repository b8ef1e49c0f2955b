"""Siblings: groups that read the same arrays become one kernel with several results.

Two groups join when their roots have equal dimensions and they share a large operand, or one reads
the other's root element by element; and when one has a row of folds per leading index of the other
(a norm and the mean that it also returns). No cycle can arise: every value has a rank, greater than
those of all it rests on, and joining keeps that true. O(groups * operands).
"""

from __future__ import annotations

from hlo.ir.computation import Computation
from math import prod

from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute
from hlo.passes.fusion_groups import Group
from hlo.passes.liveness import awaited

_MOST_RESULTS = 8
_ROWS = 32  # so many rows are enough parallelism for a kernel that folds and writes them
_NO_SIBLINGS = frozenset(
    {"dynamic-update-slice", "concatenate", "pad", "reduce-window", "map", "gather"}
)


def joined(groups: list[Group], max_size: int) -> list[Group]:
    """The groups after joining."""
    if len(groups) < 2 or awaited(_computation(groups)):
        return groups  # control dependences may close a circle through two groups
    siblings = _Siblings(groups)
    readers: dict[Instruction, list[Group]] = {}
    for group in groups:
        for operand in _shared_values(group):
            readers.setdefault(operand, []).append(group)
    for _ in range(2):  # a group that reads two others joins when these have joined
        for sharing in readers.values():
            siblings.join(sharing, max_size)
    found = [g for g in groups if siblings.final(g) is g]
    _drop_inner_roots(found)
    return found


def _computation(groups: list[Group]) -> Computation:
    computation = groups[0].root.computation
    assert computation is not None, "a root in a computation"
    return computation


def _drop_inner_roots(groups: list[Group]) -> None:
    """A root that only its own kernel reads is no result."""
    computation = _computation(groups)
    members = {m for g in groups for m in g.members}
    needed = {o for i in computation.instructions if i not in members for o in i.operands}
    needed.add(computation.root)
    for group in groups:
        needed.update(_outside(group))
    for group in groups:
        if len(group.roots) > 1:
            group.roots = [r for r in group.roots if r in needed] or [group.root]
            group.root = group.roots[0]


class _Siblings:
    """Ranks of values, and which group each joined group has become part of."""

    def __init__(self, groups: list[Group]) -> None:
        self.merged: dict[Group, Group] = {}
        self.group_ranks: dict[Group, int] = {}
        self.by_root = {g.root: g for g in groups}
        self.ranks: dict[Instruction, int] = {}
        for instruction in post_order(_computation(groups)):
            group = self.by_root.get(instruction)
            operands = _outside(group) if group is not None else instruction.operands
            # A member that is fused everywhere is in no order with kernels; its rank is not asked.
            self.ranks[instruction] = 1 + max((self.ranks[o] for o in operands), default=0)
        self.group_ranks = {g: self.ranks[g.root] for g in groups}

    def final(self, group: Group) -> Group:
        while group in self.merged:
            group = self.merged[group]
        return group

    def rank(self, value: Instruction) -> int:
        group = self.by_root.get(value)
        return self.ranks[value] if group is None else self.group_ranks[self.final(group)]

    def join(self, sharing: list[Group], max_size: int) -> None:
        """Join what can be joined among groups that share an operand."""
        first: Group | None = None
        for group in sharing:
            current = self.final(group)
            if first is None or self.final(first) is current:
                first = current
                continue
            first = self.final(first)
            low, high = sorted((first, current), key=lambda g: self.group_ranks[g])
            if _may_join(low, high, max_size) and self._keeps_order(low, high):
                _absorb(low, high)
                self.merged[high] = low

    def _keeps_order(self, low: Group, high: Group) -> bool:
        rank = self.group_ranks[low]
        if self.group_ranks[high] == rank:
            return True
        others = [o for o in _outside(high) if self._group_of(o) is not low]
        return all(self.rank(o) < rank for o in others)

    def _group_of(self, value: Instruction) -> Group | None:
        group = self.by_root.get(value)
        return None if group is None else self.final(group)


def _outside(group: Group) -> list[Instruction]:
    return list(
        dict.fromkeys(o for m in group.members for o in m.operands if o not in group.members)
    )


def _shared_values(group: Group) -> list[Instruction]:
    """Operands at least as large as the result, and the root itself."""
    size = max(group.root.shape.size if group.root.shape.is_array else 0, 1)
    large = [o for o in _outside(group) if o.shape.is_array and o.shape.size >= size]
    return [*(o for o in large if o.shape.size > 1), group.root]


def _may_have_siblings(group: Group) -> bool:
    return group.root.shape.is_array and group.root.opcode not in _NO_SIBLINGS


def _may_join(low: Group, high: Group, max_size: int) -> bool:
    if not (_may_have_siblings(low) and _may_have_siblings(high)):
        return False
    if len(low.members) + len(high.members) > max_size:
        return False
    if len(low.roots) + len(high.roots) > _MOST_RESULTS:
        return False
    if low.dims != high.dims:
        return _are_rows_of(low, high)
    if low.has_reduce != high.has_reduce or (low.has_reduce and not _fold_alike(low, high)):
        return False
    return _reads_at_own_index(low, high) and _reads_at_own_index(high, low)


def _fold_alike(a: Group, b: Group) -> bool:
    """Whether all folds are over arrays of equal dimensions, in the same way, once per result."""
    own = tuple(("d", k) for k in range(len(a.dims)))
    folds = [(g, m) for g in (a, b) for m in g.members if m.opcode == "reduce"]
    ways = {(m.operands[0].shape.dims, m["dimensions"]) for _, m in folds}
    return len(ways) == 1 and all(g.members[m] == own for g, m in folds)


def _are_rows_of(low: Group, high: Group) -> bool:
    """Whether low's results are folds per row of what high reads, which high uses row by row."""
    count = len(low.dims)
    if not low.has_reduce or high.dims[:count] != low.dims or prod(low.dims) < _ROWS:
        return False
    own = tuple(("d", k) for k in range(count))
    if any(low.members[m] != own for m in low.members if m.opcode == "reduce"):
        return False
    if any(len(high.members[m]) > count for m in high.members if m.opcode == "reduce"):
        return False
    uses = [u for root in low.roots for u in root.users if u in high.members]
    return bool(uses) and all(
        u.opcode == "broadcast"
        and tuple(high.members[u][d] for d in attribute(u, "dimensions")) == own  # type: ignore[attr-defined]  # INTS
        for u in uses
    )


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


def _absorb(a: Group, b: Group) -> None:
    for member, axes in b.members.items():
        a.members.setdefault(member, axes)
    first, second = (a, b) if len(a.dims) >= len(b.dims) else (b, a)
    a.roots = list(dict.fromkeys((*first.roots, *second.roots)))
    a.root = a.roots[0]
    a.folds += b.folds
