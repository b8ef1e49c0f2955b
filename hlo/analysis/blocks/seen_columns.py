"""Seen columns: what of the scores in a block is left out, as its rows see no more of them.

    CutBody with scores of which the text says what their rows see --bounds_of--> Bounds: between
    which columns each block computes; its members say which of their dimensions are so bounded

A member of a block has of a bounded dimension what lies between the two bounds alone; what lies
beside them in memory is anything. So all that adds up such a dimension has to keep to the bounds,
and what does not hang on scores alone: sums over rows, which would add to columns that others see.
Bounds are multiples of GRANULE, or where the dimension ends. Does not know: why what is not seen
counts for nothing (passes/scores/mask_skipping.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.cutting import CutBody, Total
from hlo.analysis.decisions import (
    COLUMNS,
    GRANULE,
    ROWS,
    Decisions,
    Seen,
    config_of,
    decisions_of,
)
from hlo.analysis.leaves import leaves_of
from hlo.analysis.scores.region import Region, Roles, region_around
from hlo.indexing.reductions import reduction_dims, term_extents
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Instruction


class Bounds(Struct, frozen=True):
    """Between which columns the rows of each block see something.

    columns: how many there are; of each block along the last dimension that blocks part, the
    first column that it computes, and the one behind the last.
    """

    columns: int
    of_blocks: tuple[tuple[int, int], ...]


def says_seen(instruction: Instruction) -> bool:
    """Whether an instruction, or one in the fusion that it is, is scores of which some are not
    seen.
    """
    if instruction.opcode == "fusion":
        return any(c.fact(_says_seen) for c in instruction.called_computations())
    return decisions_of(instruction).seen is not None


def _says_seen(computation: Computation) -> bool:
    return any(decisions_of(one).seen is not None for one in _nested(computation))


def bounds_of(whole: Computation, body: CutBody, block: Block) -> Bounds | None:
    """Between which columns each block computes, after the members of its body were told; None
    where no scores say what is seen, or these are not all that a block has, and all is computed.

    whole: the computation that was cut.
    """
    if not whole.fact(_says_seen):
        return None
    told = {(seen, i.shape.dims[seen.column]) for i in _nested(whole) if (seen := _said(i, block))}
    if len(told) != 1:
        return None
    ((seen, columns),) = told
    bounds = Bounds(columns, _of_blocks(seen, block))
    last = _last_parts(body)
    if last is None:
        return None
    flat = _Flat(body.computation, last)
    members = _members(flat.computation, seen, block)
    if members is None:
        return None
    sums = {one: said for one in members if (said := _sums(one, members))}
    if any(_summed(one) != bounds.columns for one, said in sums.items() if said == COLUMNS):
        return None
    added = {
        flat.twins[p]
        for p, said in zip(body.computation.parameters, body.parameters, strict=True)
        if isinstance(said, Total)
    }
    if not all(_is_added(one, added) for one, said in sums.items() if said == ROWS):
        return None
    for one, origins in flat.origins.items():
        roles = members.get(one)
        for origin in origins:
            _tell(origin, roles, sums.get(one, "") if origin.opcode == one.opcode else "")
    for part, alike in last.items():
        _tell_alike(part, alike)
    return bounds


def _last_parts(body: CutBody) -> dict[Instruction, Instruction] | None:
    """What the last block of a row alone runs, for its new rows, and what is alike of all others: a
    slice's operand, a sum of all rows of a block. None where something has no such twin.
    """
    root = body.computation.root
    roots = root.operands if root.opcode == "tuple" else (root,)
    leaves = [one for one in roots for _ in leaves_of(one.shape)]
    totals = [
        (one, said)
        for one, said in zip(leaves, body.results, strict=True)
        if isinstance(said, Total)
    ]
    sums = {said.leaf: one for one, said in totals if said.in_last is False}
    found = {one: sums[said.leaf] for one, said in totals if said.in_last}
    for one, is_last in body.turns.items():
        if is_last and one not in found:
            if one.opcode != "slice":
                return None
            found[one] = one.operands[0]
    return found


def _tell_alike(part: Instruction, alike: Instruction) -> None:
    """What is said of an instruction of all rows, of one of some rows."""
    _copy(part, alike)
    if part.opcode == "fusion":
        (own,), (other,) = part.called_computations(), alike.called_computations()
        for one, twin in zip(own.instructions, other.instructions, strict=True):
            _copy(one, twin)


def _copy(one: Instruction, twin: Instruction) -> None:
    said = decisions_of(twin)
    _say(one, said.bounded, said.sums if one.opcode == twin.opcode else "")


def is_told(instruction: Instruction) -> bool:
    """Whether an instruction of a block, or one in what it calls, has a bounded dimension, or adds
    one up.
    """
    said = (decisions_of(one) for one in _with_inner(instruction))
    return any(s.bounded >= 0 or s.sums for s in said)


def adds_bounded(instruction: Instruction) -> bool:
    """Whether its kernel has to keep to the bounds: it adds up a bounded dimension, or is a product
    with one, which may be added to others.
    """
    told = ((one, decisions_of(one)) for one in _with_inner(instruction))
    return any(s.sums or (s.bounded >= 0 and i.opcode == "dot") for i, s in told)


def _with_inner(instruction: Instruction) -> Iterator[Instruction]:
    waiting = [instruction]
    while waiting:
        one = waiting.pop()
        yield one
        if one.opcode == "fusion":
            waiting += [i for c in one.called_computations() for i in c.instructions]


def _nested(computation: Computation) -> Iterator[Instruction]:
    return (i for one in computation.instructions for i in _with_inner(one))


def _said(one: Instruction, block: Block) -> Seen | None:
    """What scores say that their rows see, if the rows are the dimension that blocks part last."""
    seen = decisions_of(one).seen if one.shape.is_array else None
    if seen is None:
        return None
    dims, places = one.shape.dims, block.places(one.shape, block.all)
    is_fit = places is not None and places[-1] == seen.row and 0 <= seen.column < len(dims)
    return seen if is_fit and _are_spans(seen, dims[seen.row], dims[seen.column]) else None


def _are_spans(seen: Seen, rows: int, columns: int) -> bool:
    """Whether a text says of all rows, in order, which columns they see, as bounds can be."""
    at = 0
    for first, last, start, end in seen.spans:
        ends_well = end == columns or (end < columns and end % GRANULE == 0)
        if first != at or last <= first or not 0 <= start < end or start % GRANULE or not ends_well:
            return False
        at = last
    return at == rows


def _of_blocks(seen: Seen, block: Block) -> tuple[tuple[int, int], ...]:
    rows, size = block.lead[-1], block.sizes[-1]
    found: list[tuple[int, int]] = []
    for n in range(-(-rows // size)):
        first = min(n * size, rows - size)
        met = [s for s in seen.spans if s[0] < first + size and s[1] > first]
        found.append((min(s[2] for s in met), max(s[3] for s in met)))
    return tuple(found)


def _members(flat: Computation, seen: Seen, block: Block) -> dict[Instruction, Roles] | None:
    """All that hangs on the scores in a block; None where something of it has another form."""
    members: dict[Instruction, Roles] = {}
    for one in flat.instructions:
        if decisions_of(one).seen is None or one in members:
            continue
        region: Region | None = region_around(one, Roles(seen.row, seen.column))
        if region is None or region.rows != block.sizes[-1]:
            return None
        members |= region.members
    return members


def _sums(one: Instruction, members: dict[Instruction, Roles]) -> str:
    """What a member adds up of scores; "" where it adds up none."""
    reads = [members[o] for o in one.operands if o in members]
    if not any(roles.has_both for roles in reads):
        return ""
    if members[one].column is None:
        return COLUMNS
    return ROWS if members[one].row is None else ""


def _summed(one: Instruction) -> int:
    """How many elements a reduce or dot adds up."""
    if one.opcode == "dot":
        return math.prod(term_extents(one))
    return math.prod(reduction_dims(one).extents)


def _is_added(one: Instruction, totals: set[Instruction]) -> bool:
    """Whether a sum over rows is added to what the blocks before have added up, and to nothing
    else: what it has of columns that the block's rows do not see is left as it was.
    """
    users = list(one.users)
    return (
        one.opcode == "dot"
        and len(users) == 1
        and users[0].opcode == "add"
        and not totals.isdisjoint(users[0].operands)
    )


def _tell(one: Instruction, roles: Roles | None, sums: str) -> None:
    """Write down of an instruction what of it is bounded."""
    _say(one, -1 if roles is None or roles.column is None else roles.column, sums)


def _say(one: Instruction, column: int, sums: str) -> None:
    before = decisions_of(one)
    said = replace(before, bounded=column, sums=sums, seen=None)
    if said == before:
        return
    assert one.computation is not None, "in a block"
    attributes = {k: v for k, v in one.attributes.items() if k != "backend_config"}
    if said != Decisions():
        attributes["backend_config"] = config_of(said)
    one.computation.set_attributes(one, attributes)


class _Flat:
    """A computation with those of its fusions written out, without what is `left` out. origins: of
    each instruction those that it stands for: what hands it on, too.
    """

    def __init__(self, computation: Computation, left: Collection[Instruction]) -> None:
        self.computation, self.left = Computation("flat"), left
        self.origins: dict[Instruction, list[Instruction]] = {}
        self.twins: dict[Instruction, Instruction] = {}
        root = self._written(computation, {})
        (self.computation.root,) = root if len(root) == 1 else (self._tuple(computation, root),)

    def _tuple(self, computation: Computation, parts: list[Instruction]) -> Instruction:
        return self.computation.new("tuple", computation.root.shape, parts)

    def _written(
        self, computation: Computation, given: dict[Instruction, list[Instruction]]
    ) -> list[Instruction]:
        """The leaves of a computation's root. given: those of its parameters where it is called."""
        twins = dict(given)
        for one in post_order(computation):
            if one in self.left:
                twins[one] = []
            elif one not in twins:
                twins[one] = self._twin(one, twins)
            if len(twins[one]) == 1:
                (twin,) = twins[one]
                self.origins.setdefault(twin, []).append(one)
                self.twins[one] = twin
        return twins[computation.root]

    def _twin(
        self, one: Instruction, twins: dict[Instruction, list[Instruction]]
    ) -> list[Instruction]:
        if one.opcode == "tuple":
            return [leaf for operand in one.operands for leaf in twins[operand]]
        if one.opcode == "get-tuple-element" and one.operands[0].opcode == "fusion":
            index = one.attributes["index"]
            assert isinstance(index, int), "an element's number"
            return [twins[one.operands[0]][index]]
        if one.opcode == "fusion":
            (callee,) = one.called_computations()
            parameters = sorted(callee.parameters, key=lambda p: p.attributes["parameter_number"])  # type: ignore[arg-type,return-value]  # integers
            inside = dict(zip(parameters, (twins[o] for o in one.operands), strict=True))
            return self._written(callee, inside)
        operands = tuple(leaf for operand in one.operands for leaf in twins[operand])
        return [self.computation.adopt(clone_instruction(one, operands))]
