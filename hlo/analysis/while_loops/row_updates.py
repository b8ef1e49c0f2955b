"""Row updates: arrays of a loop's state of which each trip replaces a row, all rows in all.

As the results of JAX's scan: nobody sees what was there before. The body's only reader updates the
array at a row that the counter says, the next state is that update and nothing else, the condition
does not look, and the counter goes through every row.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import Counter, element_index, integer_constant
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape

_WHOLE = -1  # the number of no element


class RowOrder(Struct, frozen=True):
    """Trip n has row sign * n + offset: each of an array's rows once, in order or reversed."""

    sign: int
    offset: int


def row_update(loop: Instruction, number: int, known: Counter) -> Instruction | None:
    """The dynamic-update-slice by which each element of a state's array is replaced in one trip,
    none being read before. known: the loop's counter.
    """
    body, condition = loop.called_computations()
    update = body.root.operands[number]
    if update.opcode != "dynamic-update-slice" or set(update.users) != {body.root}:
        return None
    if body.root.operands.count(update) != 1 or reads_of(condition, number) != []:
        return None
    target, row, *starts = update.operands
    if reads_of(body, number) != [target] or set(target.users) != {update}:
        return None
    if update.operands.count(target) != 1 or len(starts) != len(target.shape.dims):
        return None
    dim = row_dim(target.shape, row.shape)
    is_whole = dim is not None and row_order(starts[dim], body, known, target.shape.dims[dim])
    return update if is_whole else None


def row_dim(whole: Shape, row: Shape) -> int | None:
    """The dimension of an array along which a part is one row of several; None: it is no row."""
    cut = [d for d, (n, m) in enumerate(zip(whole.dims, row.dims, strict=True)) if n != m]
    return cut[0] if len(cut) == 1 and row.dims[cut[0]] == 1 else None


def reads_of(computation: Computation, number: int) -> Sequence[Instruction | None]:
    """The instructions that take the element of the state; None first: somebody takes it whole."""
    reads = computation.fact(_reads)
    return reads.get(number, reads[_WHOLE])


def _reads(computation: Computation) -> dict[int, list[Instruction | None]]:
    """Those who take each element that anybody takes by itself; `_WHOLE`: of any other one."""
    (parameter,) = computation.parameters
    is_taken = all(user.opcode == "get-tuple-element" for user in parameter.users)
    whole: list[Instruction | None] = [] if is_taken else [None]
    found = {_WHOLE: whole}
    for user in parameter.users:
        if user.opcode == "get-tuple-element":
            found.setdefault(element_index(user), [*whole]).append(user)
    return found


def row_order(start: Instruction, body: Computation, known: Counter, rows: int) -> RowOrder | None:
    """The order in which a start takes each of so many rows once, from sums of the loop's counter
    with constants; None where it does not. Its type holds them all, so that sums that wrap come
    out the same.
    """
    sign, offset, value = 1, 0, start
    while not is_counter(value, body, known):
        if value.opcode not in ("add", "subtract"):
            return None
        left, right = value.operands
        number = integer_constant(left)
        if number is not None and value.opcode == "subtract":
            offset, sign, value = offset + sign * number, -sign, right
        elif number is not None:
            offset, value = offset + sign * number, right
        elif (number := integer_constant(right)) is not None:
            by = number if value.opcode == "add" else -number
            offset, value = offset + sign * by, left
        else:
            return None
    ends = {sign * n + offset for n in (known.first, known.limit - 1)}
    is_held = rows <= 1 << (start.shape.dtype.bits - 1)
    goes_through = is_held and known.iterations == rows and ends == {0, rows - 1}
    return RowOrder(sign, offset) if goes_through else None


def is_counter(value: Instruction, body: Computation, known: Counter) -> bool:
    """Whether a value of a loop's body is its counter."""
    is_element = value.opcode == "get-tuple-element" and value.operands[0] in body.parameters
    return is_element and element_index(value) == known.element
