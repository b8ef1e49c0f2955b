"""Siblings: groups that read the same arrays become one kernel with several results.

Two groups join when their roots have equal dimensions and they share a large operand, or one reads
the other's root element by element; and when one has a row of reductions per leading index of the
other (a norm and the mean that it also returns). No cycle can arise: every value has a rank,
greater than those of all it rests on, and joining keeps that true. O(groups * operands).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.analysis.fusibility import op_cost
from hlo.indexing.reductions import reduction_dims
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, has_trait
from hlo.passes.fusion.axes import Group, fixed_dims, operand_axes
from hlo.passes.fusion.repeats import CHEAP, COSTLY
from hlo.passes.liveness import awaited

_MOST_RESULTS = 8
_MOST_TRIED = 4  # Groups that read one operand, have not joined and may have more results.
_ROWS = 32  # So many rows are parallelism enough for a kernel that reduces and writes them.
_NO_SIBLINGS = Trait.UPDATES | Trait.JOINS | Trait.PADS | Trait.PICKS


def joined(groups: list[Group], max_size: int, finishing: list[Group]) -> list[Group]:
    """The groups after joining. finishing: kernels of products, which join none."""
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
    _drop_inner_roots(found, finishing)
    return found


def _computation(groups: list[Group]) -> Computation:
    computation = groups[0].root.computation
    assert computation is not None, "a root in a computation"
    return computation


def _drop_inner_roots(groups: list[Group], finishing: list[Group]) -> None:
    """A root that only its own kernel reads is no result."""
    computation = _computation(groups)
    members = {m for g in groups for m in g.members}
    needed = {o for i in computation.instructions if i not in members for o in i.operands}
    needed.add(computation.root)
    for group in (*groups, *finishing):
        needed.update(_outside(group))
    for group in groups:
        if len(group.roots) > 1:
            group.roots = [r for r in group.roots if r in needed] or [group.root]
            group.root = group.roots[0]


def will_share(producer: Instruction, groups: Sequence[Group]) -> bool:
    """Whether groups are about to be one kernel of reductions, which computes a cheap producer once
    for all of them."""
    first, *others = groups
    if op_cost(producer) > CHEAP or len(groups) > _MOST_RESULTS or not _may_have_siblings(first):
        return False
    return all(
        _may_have_siblings(g) and g.dims == first.dims and g.has_reduce and not g.order
        for g in groups
    ) and all(_reduce_alike(first, g) for g in others)


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
        heads: list[Group] = []
        for group in sharing:
            current = self.final(group)
            heads = list(dict.fromkeys(self.final(h) for h in heads))
            if current in heads:
                continue
            heads = [h for h in heads if len(h.roots) < _MOST_RESULTS]
            for head in heads:
                low, high = sorted((head, current), key=lambda g: self.group_ranks[g])
                if _may_join(low, high, max_size) and self._keeps_order(low, high):
                    _absorb(low, high)
                    self.merged[high] = low
                    break
            else:
                heads = [*heads, current][:_MOST_TRIED]

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
    root = group.root
    is_alone = has_trait(root, _NO_SIBLINGS) or root.opcode in ("reduce-window", "map")
    return root.shape.is_array and not is_alone


def _may_join(low: Group, high: Group, max_size: int) -> bool:
    if not (_may_have_siblings(low) and _may_have_siblings(high)):
        return False
    if len(low.members) + len(high.members) > max_size:
        return False
    if len(low.roots) + len(high.roots) > _MOST_RESULTS:
        return False
    if low.order or high.order:
        return False  # their reductions would need one order
    if low.dims != high.dims:
        return _are_rows_of(low, high)
    if low.has_reduce != high.has_reduce or (low.has_reduce and not _reduce_alike(low, high)):
        return False
    return _reads_at_own_index(low, high) and _reads_at_own_index(high, low)


def _reduce_alike(a: Group, b: Group) -> bool:
    """Whether all reductions are over arrays of equal dimensions, in the same way, once per
    result."""
    own = tuple(("d", k) for k in range(len(a.dims)))
    reductions = [(g, m) for g in (a, b) for m in g.members if m.opcode == "reduce"]
    return len({reduction_dims(m) for _, m in reductions}) == 1 and all(
        g.members[m] == own for g, m in reductions
    )


def _are_rows_of(low: Group, high: Group) -> bool:
    """Whether low's results are reductions per row of what high reads, which high uses row by
    row."""
    rows = _without_ones(low.dims)
    count = len(rows)
    if not low.has_reduce or high.dims[:count] != rows or prod(rows) < _ROWS:
        return False
    is_of_rows = prod(high.dims[count:]) == 1 and not high.has_reduce
    if is_of_rows and sum(map(op_cost, high.members)) >= COSTLY:
        return False  # what is dear of each row has lanes of its own
    if any(_levels(g, m) > count for g in (low, high) for m in g.members if m.opcode == "reduce"):
        return False
    is_used = any(u in high.members for root in low.roots for u in root.users)
    return is_used and _reads_at_own_index(high, low)


def _without_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions up to the last that is not 1."""
    count = next((k for k in range(len(dims), 0, -1) if dims[k - 1] != 1), 0)
    return dims[:count]


def _levels(group: Group, member: Instruction) -> int:
    """How many leading dimensions of the root fix the member's element; more than all if not so."""
    fixed = fixed_dims(group, group.members[member])
    return len(group.dims) + 1 if fixed is None else fixed


def _reads_at_own_index(reader: Group, source: Group) -> bool:
    """Where the reader uses the other's roots, it is at the index of its own element or row."""
    for root in source.roots:
        for user in root.users:
            if user in reader.members and user.opcode != "constant":
                numbers = [n for n, o in enumerate(user.operands) if o is root]
                if not all(_is_at_own_index(reader, user, n) for n in numbers):
                    return False
    return True


def _is_at_own_index(reader: Group, user: Instruction, number: int) -> bool:
    axes = operand_axes(reader, user, number)
    if user.opcode in ("reverse", "transpose"):
        return False
    dims = user.operands[number].shape.dims
    pairs = enumerate(zip(axes, dims, strict=True))
    return all(axis == ("d", k) or n == 1 for k, (axis, n) in pairs)


def _absorb(a: Group, b: Group) -> None:
    for member, axes in b.members.items():
        a.members.setdefault(member, axes)
    first, second = (a, b) if len(a.dims) >= len(b.dims) else (b, a)
    a.roots = list(dict.fromkeys((*first.roots, *second.roots)))
    a.root = a.roots[0]
    a.reductions += b.reductions
