"""Rows that a lane loop reads and writes, one in each trip: xs[i] and ys[i] of a scan.

    x = dynamic-slice(xs, i, 0), f(x), ys = dynamic-update-slice(ys, y, i, 0)

A row is a run of memory, or one of up to eight that alternate: the dimensions before it are of one
element, those behind its first one are whole, but for short ones at the end, of which it has one
place. Each element of the state takes the row's element at its own place, so that it can go
through the loop without the others. Rows that are written are all rows of an array that nobody
reads before (analysis/while_loops/row_updates.py), so that each element of it is written once,
whatever it was. A row that is written may be a stack of pieces, each of which has an element for
each of the lanes.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import counter
from hlo.analysis.while_loops.row_updates import row_update
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints

MOST_BETWEEN = 8  # The most places that lanes lie apart where rows are read and written.


class RowWrite(Struct, frozen=True):
    """A row of an array that each trip of a lane loop writes.

    update: the op that replaces a row; pieces: what the row is stacked of along `dim`, each of
    one place there, or the row alone.
    """

    update: Instruction
    pieces: tuple[Instruction, ...]
    dim: int = 0

    @property
    def stack(self) -> Instruction:
        """The row as the update has it."""
        return self.update.operands[1]


def is_over(dims: Ints, others: Ints) -> bool:
    """Whether dimensions are the same, those of one element aside."""
    return [n for n in dims if n > 1] == [n for n in others if n > 1]


def is_row_read(member: Instruction, dims: Ints) -> bool:
    """Whether a member takes a row that has an element for each of the lanes, or one for all."""
    if member.opcode != "dynamic-slice":
        return False
    own, whole = member.shape.dims, member.operands[0].shape.dims
    if member.operands[0].shape.is_dynamic:
        return False
    return _is_near(own, whole) and (member.shape.size == 1 or is_over(own, dims))


def written_rows(loop: Instruction) -> dict[int, RowWrite]:
    """The updates of rows by which elements of a loop's state are written whole, by element."""
    known = counter(loop)
    if known is None or known.iterations < 1:
        return {}
    found = {}
    for number, shape in enumerate(loop.shape.elements):
        is_plain = shape.is_array and bool(shape.dims) and not shape.is_dynamic
        update = row_update(loop, number, known) if is_plain else None
        if update is not None and "control-predecessors" not in update.attributes:
            found[number] = _write(update)
    return found


def are_lanes(write: RowWrite, dims: Ints) -> bool:
    """Whether each piece of a row has an element for each of the lanes, near the next one."""
    whole = write.update.shape.dims
    return all(
        _is_near(piece.shape.dims, whole) and is_over(piece.shape.dims, dims)
        for piece in write.pieces
    )


def _write(update: Instruction) -> RowWrite:
    row = update.operands[1]
    is_own = set(row.users) == {update} and "control-predecessors" not in row.attributes
    if row.opcode != "concatenate" or not is_own:
        return RowWrite(update, (row,))
    dims = row["dimensions"]
    assert isinstance(dims, tuple), "dimensions are a list of integers"
    (dim,) = dims
    if any(piece.shape.dims[dim] != 1 for piece in row.operands):
        return RowWrite(update, (row,))
    return RowWrite(update, tuple(row.operands), dim)


def _is_near(sizes: Ints, whole: Ints) -> bool:
    """Whether the elements of a slice of an array are neighbours in its memory, or few places
    apart."""
    first = next((k for k, n in enumerate(sizes) if n != 1), len(sizes))
    last = max((k for k, n in enumerate(sizes) if n != 1), default=-1) + 1
    between = prod(whole[last:]) if first < len(sizes) else 1
    return sizes[first + 1 : last] == whole[first + 1 : last] and between <= MOST_BETWEEN
