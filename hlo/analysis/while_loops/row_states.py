"""Row states: arrays of a loop's state of which a trip takes the rows apart and stacks them again.

    y[2, n]: stack(f(y[0], y[1]), g(y[0], y[1]))

The members are the values of the body that have such rows, with the dimension that counts them. A
value joins with whoever it is made of and made into, so that in the end each of them is read row by
row alone. Pieces of a stack, slices of one row and sums over the rows are the ends, beyond which
there are no rows; so is what a trip reads of an array, or writes to one, as a row of its own
(row_loops.py): the rows of the state are parts of it.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod

from msgspec import Struct

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.reducers import reducer_of
from hlo.analysis.while_loops.lane_loops import (
    MOST_MEMBERS,
    body_and_condition,
    lane_loop,
    row_loop,
)
from hlo.analysis.while_loops.loop_state import element_index
from hlo.analysis.while_loops.row_loops import written_rows
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Ints, Shape
from hlo.machine import COMMON_LANES

MOST_ROWS = 8  # Longer dimensions are arrays' own: each row's step is written out.


class RowStates(Struct, frozen=True):
    """Arrays of a loop's state that become an array for each of their rows.

    elements: those of the state whose rows go apart, members: values of the body that have
    rows; each with the dimension that counts them. ends: slices of one row of a member, and
    reductions over its rows. stored: reshapes of members that are written to other arrays.
    """

    elements: dict[int, int]
    members: dict[Instruction, int]
    ends: tuple[Instruction, ...]
    stored: tuple[Instruction, ...] = ()


def row_states(loop: Instruction) -> list[RowStates]:
    """The arrays of a loop's state that can be taken apart so that elements go through it alone.

    Empty where they do as it is. O(rank * instructions of the body).
    """
    if lane_loop(loop) is not None or row_loop(loop) is not None:
        return []
    found: list[RowStates] = []
    taken: set[int] = set()
    for element, shape in enumerate(loop.shape.elements):
        for dim in _few(shape) if element not in taken else ():
            states = _joined(loop, element, dim)
            if states is not None and taken.isdisjoint(states.elements):
                found.append(states)
                taken |= states.elements.keys()
                break
    rows = {row_dims(m.shape, d) for states in found for m, d in states.members.items()}
    return found if len(rows) == 1 and _is_rest_in_lanes(loop, found, *rows) else []


def _few(shape: Shape) -> list[int]:
    """The dimensions that may count rows, the shortest first."""
    if not shape.is_array or shape.is_dynamic or shape.rank < 2:
        return []
    few = [
        d
        for d, n in enumerate(shape.dims)
        if 2 <= n <= MOST_ROWS and prod(row_dims(shape, d)) >= COMMON_LANES
    ]
    return sorted(few, key=lambda d: shape.dims[d])


def row_dims(shape: Shape, dim: int) -> Ints:
    """The sizes of one row."""
    return (*shape.dims[:dim], *shape.dims[dim + 1 :])


def _joined(loop: Instruction, element: int, dim: int) -> RowStates | None:
    """An element of the state with all that shares its rows; None where one of them is read
    otherwise."""
    body, condition = body_and_condition(loop)
    if any(u.opcode != "get-tuple-element" for u in body.parameters[0].users):
        return None
    joining = _Joining(body, {w.stack for w in written_rows(loop).values()})
    joining.read_rows(loop.shape.elements[element], dim)
    if not joining.element(element, dim) or not joining.everything():
        return None
    asked = {element_index(u) for p in condition.parameters for u in p.users if u.users}
    if not asked.isdisjoint(joining.elements):
        return None
    return RowStates(joining.elements, joining.members, tuple(joining.ends), tuple(joining.stored))


class _Joining:
    """The search for all that shares rows. Its questions are false where something prevents it.

    written: what is written to other arrays as a row of theirs.
    """

    def __init__(self, body: Computation, written: set[Instruction]) -> None:
        self.body, self.written = body, written
        self.stored: dict[Instruction, None] = {}
        self.elements: dict[int, int] = {}
        self.members: dict[Instruction, int] = {}
        self.ends: dict[Instruction, None] = {}
        self.waiting: list[tuple[Instruction, int]] = []

    def element(self, k: int, dim: int) -> bool:
        """Join an element of the state: what reads it, and what it becomes."""
        if k not in self.elements:
            self.elements[k] = dim
            readers = [u for u in self.body.parameters[0].users if element_index(u) == k]
            self.waiting += [(value, dim) for value in (*readers, self.body.root.operands[k])]
        return self.elements[k] == dim

    def read_rows(self, state: Shape, dim: int) -> None:
        """Join what is read of other arrays as rows like an element of the state's."""
        one = row_dims(state, dim)
        for value in self.body.instructions:
            is_alike = value.shape.is_array and value.shape.rank == state.rank
            if is_alike and is_read_row(value) and row_dims(value.shape, dim) == one:
                self.waiting.append((value, dim))

    def everything(self) -> bool:
        """Join what waits, and whoever that brings along."""
        while self.waiting:
            value, dim = self.waiting.pop()
            if value in self.members:
                if self.members[value] != dim:
                    return False
                continue
            self.members[value] = dim
            if not self._operands(value, dim) or not self._users(value, dim):
                return False
        return True

    def _operands(self, value: Instruction, dim: int) -> bool:
        if value.opcode == "get-tuple-element" and value.operands[0] is self.body.parameters[0]:
            return self.element(element_index(value), dim)
        if not _is_of_rows(value, dim):
            return False
        if is_read_row(value):
            return True
        of_operand = _of_operand(value, dim)
        self.waiting += [(o, of_operand) for o in value.operands if _has_rows(value, o, dim)]
        return True

    def _users(self, value: Instruction, dim: int) -> bool:
        for user in value.users:
            if user is self.body.root:
                handed_on = [k for k, o in enumerate(user.operands) if o is value]
                if not all(self.element(k, dim) for k in handed_on):
                    return False
            elif user in self.written and is_row_of_one(user):
                self.stored[user] = None
            elif is_row(user, dim) or _is_sum_of_rows(user, dim):
                self.ends[user] = None
            else:
                self.waiting.append((user, _of_user(user, dim)))
        return True


def _is_of_rows(value: Instruction, dim: int) -> bool:
    """Whether a value's rows are known from its operands' or numbers."""
    if "control-predecessors" in value.attributes or not value.shape.is_array:
        return False
    if value.shape.is_dynamic or not dim < value.shape.rank:
        return False
    if not 2 <= value.shape.dims[dim] <= MOST_ROWS:
        return False
    match value.opcode:
        case "broadcast":
            return True
        case "constant":
            return is_known(value)
        case "concatenate":
            return value["dimensions"] == (dim,)
        case "slice":
            return takes_whole_rows(value, dim)
        case "transpose":
            order = _order(value)
            rest = [d for d in order if d != order[dim]]
            return rest == sorted(rest)
        case "reshape":
            return is_read_row(value)
    return is_elementwise(value)


def is_row_of_one(reshape: Instruction) -> bool:
    """Whether an array becomes the only row of another."""
    if reshape.opcode != "reshape" or "control-predecessors" in reshape.attributes:
        return False
    return reshape.shape.dims == (1, *reshape.operands[0].shape.dims)


def is_read_row(value: Instruction) -> bool:
    """Whether a value is a row that is read of an array, whole but for the row's number."""
    if value.opcode != "reshape" or value.operands[0].opcode != "dynamic-slice":
        return False
    (taken,) = value.operands
    if set(taken.users) != {value} or "control-predecessors" in taken.attributes:
        return False
    dims = (1, *value.shape.dims)
    return taken.shape.dims == dims and taken.operands[0].shape.dims[1:] == dims[1:]


def _order(transpose: Instruction) -> Ints:
    """Which dimension of the operand each one of the result is."""
    order = transpose["dimensions"]
    assert isinstance(order, tuple), "dimensions are a list of integers"
    return order


def _of_operand(value: Instruction, dim: int) -> int:
    """The dimension of a member's operand that counts the rows."""
    return _order(value)[dim] if value.opcode == "transpose" else dim


def _of_user(user: Instruction, dim: int) -> int:
    """The dimension of a member's user that counts the rows, if it has rows."""
    return _order(user).index(dim) if user.opcode == "transpose" else dim


def _has_rows(value: Instruction, operand: Instruction, dim: int) -> bool:
    """Whether an operand of a member is one besides."""
    match value.opcode:
        case "broadcast":
            return False
        case "concatenate":
            return operand.shape.dims[dim] > 1
    return bool(operand.shape.dims)


def takes_whole_rows(slice: Instruction, dim: int) -> bool:
    """Whether a slice cuts no row."""
    (operand,) = slice.operands
    return row_dims(slice.shape, dim) == row_dims(operand.shape, dim)


def is_row(user: Instruction, dim: int) -> bool:
    """Whether a value is one row of its operand, its dimension kept."""
    is_slice = user.opcode == "slice" and "control-predecessors" not in user.attributes
    return is_slice and user.shape.dims[dim] == 1 and takes_whole_rows(user, dim)


def _is_sum_of_rows(user: Instruction, dim: int) -> bool:
    """Whether a value is a reduction over the rows by one op, each step of which may be rounded to
    its type."""
    if user.opcode != "reduce" or len(user.operands) != 2 or user.shape.dtype.is_narrow_float:
        return False
    if user["dimensions"] != (dim,) or "control-predecessors" in user.attributes:
        return False
    return len(reducer_of(user).opcodes) == 1


def _is_rest_in_lanes(loop: Instruction, found: list[RowStates], dims: Ints) -> bool:
    """Whether what else the body computes are elements of such rows and numbers, and the whole is
    short enough once each row is written out."""
    body, _ = body_and_condition(loop)
    members = {m: m.shape.dims[d] for states in found for m, d in states.members.items()}
    ends = {e for states in found for e in (*states.ends, *states.stored)}
    ends |= {m.operands[0] for m in members if m.opcode == "reshape"}
    updates = [w.update for w in written_rows(loop).values()]
    ends |= {i for update in updates for i in (update, update.operands[0])}
    rest = [
        i
        for i in body.instructions
        if i not in members
        and i not in ends
        and not _is_one_number_a_row(i, members)
        and not _is_read_by_rows(i)
    ]
    wide = [n for n in dims if n > 1]
    is_laned = all(
        not i.shape.is_array or not i.shape.dims or [n for n in i.shape.dims if n > 1] == wide
        for i in rest
    )
    return is_laned and sum(members.values()) + len(rest) <= MOST_MEMBERS


def _is_read_by_rows(i: Instruction) -> bool:
    """Whether it is an array of the state of which nothing but slices at run time are read."""
    return i.opcode == "get-tuple-element" and all(
        u.opcode == "tuple" or (u.opcode == "dynamic-slice" and i not in u.operands[1:])
        for u in i.users
    )


def is_known(constant: Instruction) -> bool:
    """Whether a constant's numbers are there."""
    literal = constant["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    return not literal.is_elided


def _is_one_number_a_row(i: Instruction, members: Container[Instruction]) -> bool:
    """Whether a constant is only broadcast to members: a number of it is, then, to each row."""
    if i.opcode != "constant" or i.shape.rank != 1 or not is_known(i):
        return False
    return all(u.opcode == "broadcast" and u in members for u in i.users)
