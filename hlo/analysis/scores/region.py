"""Score region: what is computed of the scores that a mask is laid over.

    select over scores --region_around--> Region: its members, which dimension of each is the
                                          scores' rows, and which their columns

A member has rows and columns (scores, weights, gradients of both), rows alone (maxima, sums,
results) or columns alone (gradients of keys and values). What is taken in follows from index maps
alone. Does not know: what a mask leaves out (skipped_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise, moves_elements
from hlo.analysis.left_out import size_in_all_layers
from hlo.analysis.lookups import is_sum_from_zero, kept_in, lookup_of, walks
from hlo.indexing.queries import is_at_own_index, result_dims
from hlo.ir.instruction import Instruction
from hlo.ops.contraction import DotAttributes
from hlo.ops.table import Trait, opcodes

MOST_MEMBERS = 128
_CUT = opcodes(Trait.CUTS | Trait.PADS)


class Reach(Enum):
    """How far a region goes. BANDS: rows and columns can be cut of all members, and nobody else
    reads what has both. ORDER: lookups, too; users of another form, and results, are outside: they
    read all rows and columns. ROWS: rows alone are cut, so that slices and pads of other dimensions
    are members, and lookups; sums over rows and columns, in tables too, may be all that is read.
    """

    BANDS = auto()
    ORDER = auto()
    ROWS = auto()


class Roles(Struct, frozen=True):
    """Which dimension of a value is the rows, and which the columns; None: none is."""

    row: int | None = None
    column: int | None = None

    @property
    def has_both(self) -> bool:
        return self.row is not None and self.column is not None

    @property
    def has_none(self) -> bool:
        return self.row is None and self.column is None


class Region(Struct, frozen=True, eq=False):
    """What is computed of scores, each member with the roles of its dimensions.

    members: in no order. rows, columns: how many.
    """

    members: dict[Instruction, Roles]
    rows: int
    columns: int

    def outputs(self) -> Iterator[Instruction]:
        """Members that others read, too."""
        for member in self.members:
            computation = member.computation
            is_root = computation is not None and member is computation.root
            others = (user for user in member.users if user not in self.members)
            if is_root or not all(map(_is_dead, others)):
                yield member

    def operand_roles(self, member: Instruction, number: int) -> Roles | None:
        """The roles of a member's operand, a factor's too; None as `operand_roles`."""
        if member.opcode == "dot":
            return factor_roles(member, number, self.members)
        if member.opcode == "scatter":
            return scattered_roles(member, number, self.members)
        return operand_roles(member, number, self.members[member])

    def levels(self, ordered: Iterable[Instruction]) -> dict[Instruction, int]:
        """How often what a value is made from leaves the region and comes back, of each value of a
        computation, operands first.
        """
        found: dict[Instruction, int] = {}
        for one in ordered:
            is_outside = one not in self.members
            found[one] = max(
                (found[o] + (is_outside and o in self.members) for o in one.operands), default=0
            )
        return found


Met = dict[Instruction, Roles]
Clash = tuple[
    Instruction, Instruction
]  # A value and who reads it, with other roles than others do.


def region_around(
    select: Instruction,
    roles: Roles,
    in_none: Met | None = None,
    clashes: list[Clash] | None = None,
    *,
    reach: Reach = Reach.BANDS,
) -> Region | None:
    """All that hangs together with scores through values that have rows and columns, and what leads
    from it back to it row by row; None where something in it is of another form.

    reach: of what forms members may be, and who may read them. in_none: what was met where there
    was no region, added to. Whoever meets one of these meets all that it led to, for who is met as
    an operand has its user met, and the other way round. clashes: where there is none because a
    value is read along rows and along columns, who does is added.
    """
    members = {select: roles}
    met: Met = {} if in_none is None else in_none
    found = None
    if roles.has_both:
        met_twice = [] if clashes is None else clashes
        found = _region(select, roles, members, met, met_twice, reach=reach)
    if found is None:
        met |= members
    return found


def _region(
    select: Instruction,
    roles: Roles,
    members: Met,
    in_none: Met,
    clashes: list[Clash],
    *,
    reach: Reach,
) -> Region | None:
    """members: the scores, to which all that is met is added."""
    if in_none.get(select) == roles:
        return None
    ends: dict[Instruction, Roles] = {}
    waiting = [select]
    while waiting:
        one = waiting.pop()
        found = (
            _behind(one, members[one], reach=reach),
            _before(one, members[one], reach=reach),
        )
        if any(part is None for part in found) or len(members) > MOST_MEMBERS:
            return None
        for other, roles_there in (pair for part in found for pair in part or ()):
            known = members if roles_there.has_both else ends
            if other not in known:
                if in_none.get(other) == roles_there and roles_there.has_both:
                    return None
                known[other] = roles_there
                if roles_there.has_both:
                    waiting.append(other)
            elif known[other] != roles_there:
                clashes.append((other, one) if other in one.operands else (one, other))
                return None
    if not members.keys().isdisjoint(ends) or size_in_all_layers(members) > MOST_MEMBERS:
        return None
    members |= ends
    members |= _row_values(members)
    assert roles.row is not None, "scores have both"
    assert roles.column is not None, "scores have both"
    dims = select.shape.dims
    region = Region(members, dims[roles.row], dims[roles.column])
    return region if _is_whole(region) else None


def operand_roles(instruction: Instruction, number: int, roles: Roles) -> Roles | None:
    """The roles of an operand's dimensions where the result's are known; None where an operand's
    dimension is but a part of one.
    """
    if not instruction.operands[number].shape.dims:
        return Roles()
    if _is_read_alike(instruction, number):
        return roles
    walked = walks(instruction, number)
    if walked is None:
        return None
    wanted = [d for d in (roles.row, roles.column) if d is not None]
    if any(d in step.dims and not step.is_dim(d) for step in walked for d in wanted):
        return None
    places = {d: e for e, step in enumerate(walked) for d in wanted if step.is_dim(d)}
    row, column = (None if d is None else places.get(d) for d in (roles.row, roles.column))
    return Roles(row, column)


def result_roles(user: Instruction, number: int, roles: Roles) -> Roles | None:
    """The roles of a user's dimensions where an operand's are known; None where a dimension is
    neither one of the result nor summed up.
    """
    if _is_read_alike(user, number):
        return roles
    walked, kept = walks(user, number), kept_in(user, number)
    if walked is None:
        return None
    found: list[int | None] = []
    for e in (roles.row, roles.column):
        if e is not None and kept[e] is None and (walked[e].dims or not walked[e].is_reduced):
            return None
        found.append(None if e is None else kept[e])
    return Roles(*found)


def _is_read_alike(instruction: Instruction, number: int) -> bool:
    """Whether an operand is read at the result's own index, so that their roles are the same. This
    is asked most of all, several times of each value.
    """
    operand = instruction.operands[number].shape
    return (
        operand.is_array
        and is_at_own_index(instruction)
        and operand.dims == result_dims(instruction)
    )


def factor_roles(dot: Instruction, number: int, members: dict[Instruction, Roles]) -> Roles | None:
    """The roles of a factor's dimensions: of those that the result has, and of contracted ones that
    the other factor's tell.
    """
    own = operand_roles(dot, number, members[dot])
    other = dot.operands[1 - number]
    if own is None or other not in members:
        return own
    dims = DotAttributes.of(dot.attributes).dims
    sides = (dims.lhs_contracting, dims.rhs_contracting)
    pairs = dict(zip(sides[1 - number], sides[number], strict=True))
    of_other = members[other]
    row = own.row if own.row is not None else pairs.get(_or(of_other.row))
    column = own.column if own.column is not None else pairs.get(_or(of_other.column))
    return Roles(row, column)


def scattered_roles(
    scatter: Instruction, number: int, members: dict[Instruction, Roles]
) -> Roles | None:
    """The roles of a scatter's operands, by those of its updates: the table has none."""
    found, updates = lookup_of(scatter), members.get(scatter.operands[2])
    if found is None or updates is None:
        return None
    dims = (updates.row, updates.column)
    of_indices = [None if d is None else found.of_indices[d] for d in dims]
    return (Roles(), Roles(*of_indices), updates)[number]


def _is_summed_up(scatter: Instruction, number: int, roles: Roles) -> bool:
    """Whether a scatter sums up the rows and columns of its updates, or reads its indices by
    them: the table has neither. All that is added for a row comes before what is for the next.
    """
    found = lookup_of(scatter)
    if found is None or number == 0:
        return False
    dims = [d for d in (roles.row, roles.column) if d is not None]
    if number == 1:
        return all(d in found.of_indices for d in dims)
    if any(found.of_indices[d] is None or found.of_table[d] is not None for d in dims):
        return False
    sizes = scatter.operands[2].shape.dims
    before = (d for d in range(roles.row or 0) if found.of_indices[d] is not None)
    return roles.row is None or all(sizes[d] == 1 for d in before)


def _or(dimension: int | None) -> int:
    return -1 if dimension is None else dimension


def _is_known(instruction: Instruction, *, reach: Reach = Reach.BANDS) -> bool:
    """Whether there is a rule for an instruction."""
    if "control-predecessors" in instruction.attributes or instruction.shape.is_dynamic:
        return False
    if instruction.opcode == "reduce" and len(instruction.operands) != 2:
        return False
    if instruction.opcode == "dot" and "sparsity" in instruction.attributes:
        return False
    if instruction.opcode in ("reduce", "dot") or instruction.opcode == "iota":
        return True
    if instruction.opcode == "gather":
        return reach is not Reach.BANDS and lookup_of(instruction) is not None
    if instruction.opcode == "scatter":
        is_lookup = reach is Reach.ROWS and lookup_of(instruction) is not None
        return is_lookup and is_sum_from_zero(instruction)
    if reach is Reach.ROWS and instruction.opcode in _CUT:
        return True
    return moves_elements(instruction) or is_elementwise(instruction)


def _is_dead(user: Instruction) -> bool:
    """Whether nobody reads what a user makes, and it does nothing else."""
    if user.users or user.computation is None or user is user.computation.root:
        return False
    return moves_elements(user) or is_elementwise(user)


Found = list[tuple[Instruction, Roles]]


def _behind(one: Instruction, roles: Roles, *, reach: Reach) -> Found | None:
    """The operands with rows and columns that there is a rule for."""
    found: Found = []
    for number, operand in enumerate(one.operands):
        there = operand_roles(one, number, roles)
        if there is None:
            return None
        if there.has_both and _is_known(operand, reach=reach):
            found.append((operand, there))
    return found


def _before(one: Instruction, roles: Roles, *, reach: Reach) -> Found | None:
    """All users; None where one of them has no rule, or neither rows nor columns."""
    computation = one.computation
    if computation is None or (one is computation.root and reach is not Reach.ORDER):
        return None
    found: Found = []
    for user in one.users:
        if _is_dead(user):
            continue
        taken = _as_user(one, user, roles, reach=reach)
        if taken is None and reach is not Reach.ORDER:
            return None
        found += taken or ()
    return found


def _as_user(one: Instruction, user: Instruction, roles: Roles, *, reach: Reach) -> Found | None:
    """The user, for each operand that a value is; None where there is no rule."""
    if not _is_known(user, reach=reach):
        return None
    if user.opcode == "scatter":
        places = [n for n, operand in enumerate(user.operands) if operand is one]
        is_summed = all(_is_summed_up(user, n, roles) for n in places)
        return [(user, Roles())] if is_summed else None
    is_total = user.opcode in ("dot", "reduce")
    found: Found = []
    for number, operand in enumerate(user.operands):
        if operand is one:
            there = result_roles(user, number, roles)
            if there is None or (there.has_none and not (is_total and reach is Reach.ROWS)):
                return None
            found.append((user, there))
    return found


def _row_values(members: dict[Instruction, Roles]) -> dict[Instruction, Roles]:
    """What leads from members' rows to members again, element by element, in an order that is the
    same in every run.
    """
    made: dict[Instruction, Roles] = {}
    waiting = [m for m, roles in members.items() if roles.column is None]
    while waiting and len(made) < MOST_MEMBERS:
        one = waiting.pop()
        roles = made.get(one) or members[one]
        for user in one.users:
            if user in members or user in made or not _is_known(user) or user.opcode == "dot":
                continue
            there = result_roles(user, user.operands.index(one), roles)
            if there is None or there.row is None:
                continue
            others = [operand_roles(user, n, there) for n in range(len(user.operands))]
            if None not in others:
                made[user] = there
                waiting.append(user)
    used: set[Instruction] = set()
    for one in reversed(made):  # users come behind what they read
        if any(u in used or (u in members and members[u].has_both) for u in one.users):
            used.add(one)
    waiting = list(used)
    while waiting:  # those that were met early have users that were met late
        for operand in waiting.pop().operands:
            if operand in made and operand not in used:
                used.add(operand)
                waiting.append(operand)
    return {one: roles for one, roles in made.items() if one in used}


def _is_whole(region: Region) -> bool:
    """Whether columns alone are read by no member, and all members' operands have roles."""
    members = region.members
    for member in members:
        for number, operand in enumerate(member.operands):
            found = region.operand_roles(member, number)
            if found is None:
                return False
            known = members.get(operand)
            if known is None:
                continue
            if known.row is None or (found.row is not None and found.row != known.row):
                return False
    return True
