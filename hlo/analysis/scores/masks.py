"""Score masks: which large selects and sums lay a mask of counted rows and columns over scores.

    select(h, s, number), select(h, number, s), s + select(h, 0, number), s - m * number
        --masks_of--> Mask: rows and columns, what of it is looked behind, numbers from arguments

What a mask is made from follows here by its form alone; where it hides scores, and what comes of
that, skipped_columns.py says.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise, moves_elements
from hlo.analysis.scores.region import Roles, operand_roles
from hlo.ir.instruction import Instruction

MOST_BEHIND = 32  # Instructions that a mask which is added is made from.


class Mask(Struct, frozen=True, eq=False):
    """A mask of counted rows and columns that lies over scores.

    masked: the scores after it. shown: they, or what is added to them. members: with both, what
    of the mask has rows and columns. far: scalars that are no constants and are chosen, by
    predicates, for one side.
    """

    masked: Instruction
    shown: Instruction
    members: dict[Instruction, Roles]
    far: frozenset[Instruction]

    @property
    def roles(self) -> Roles:
        """The rows and columns of the scores."""
        return self.members[self.masked]


def masks_of(masked: Instruction, least_rows: int = 1) -> Iterator[Mask]:
    """A mask for each dimension that may be the rows of large scores, innermost first, and each
    operand that may be one; none where what is added is no mask. least_rows: of a mask that is
    worth a look, for which all that it is made from is looked at.
    """
    *others, column = [d for d, n in enumerate(masked.shape.dims) if n != 1]
    for row in reversed(others):
        if masked.shape.dims[row] < least_rows:
            continue
        roles = Roles(row, column)
        own = {masked: roles}
        if masked.opcode == "select":
            for number in (1, 2):
                own |= _spread(masked, number, roles)
            yield Mask(masked, masked, own, _far(own))
        elif masked.opcode in ("add", "subtract"):
            for number in range(2):
                if members := _behind(masked, number, roles):
                    yield Mask(masked, masked.operands[number], own | members, _far(members))


def _spread(masked: Instruction, number: int, roles: Roles) -> dict[Instruction, Roles]:
    """An operand that is a number everywhere, and the moves that spread it; else none."""
    found: dict[Instruction, Roles] = {}
    user, place, at = masked, number, roles
    while moves_elements(user.operands[place]):
        user, there = user.operands[place], operand_roles(user, place, at)
        if there is None:
            return {}
        found[user], place, at = there, 0, there
    return found if user.operands[place].shape.is_scalar else {}


def _far(members: dict[Instruction, Roles]) -> frozenset[Instruction]:
    return frozenset(n for m in members if m.opcode == "select" for n in _numbers(m))


def _behind(masked: Instruction, number: int, roles: Roles) -> dict[Instruction, Roles]:
    """The floats with rows and columns that an operand is made from; none where that is no mask: a
    product, an argument, nothing that is chosen or converted from truth values.
    """
    found: dict[Instruction, Roles] = {}
    waiting = [(masked, number, roles)]
    is_chosen = False
    while waiting:
        user, place, at = waiting.pop()
        one, there = user.operands[place], operand_roles(user, place, at)
        if there is None or len(found) > MOST_BEHIND:
            return {}
        is_chosen |= not one.shape.dtype.is_float
        if one in found or not there.has_both or not one.shape.dtype.is_float:
            continue
        if one.opcode != "constant":
            if not one.operands or not (is_elementwise(one) or moves_elements(one)):
                return {}
            found[one] = there
            waiting += [(one, n, there) for n in range(len(one.operands))]
        else:
            is_chosen = True
    return found if is_chosen else {}


def _numbers(select: Instruction) -> Iterator[Instruction]:
    """Scalars, no constants, that a select takes on one side."""
    for operand in select.operands[1:]:
        value = operand
        while moves_elements(value) and value.opcode != "copy":
            (value,) = value.operands
        if value.shape.is_scalar and value.opcode != "constant":
            yield value
