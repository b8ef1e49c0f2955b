"""Rows that a lane loop reads and writes, one in each trip: xs[i] and ys[i] of a scan.

    x = dynamic-slice(xs, i, 0), f(x), ys = dynamic-update-slice(ys, y, i, 0)

A row is a run of memory: the dimensions before it are of one element, those behind its first one
are whole. Each element of the state takes the row's element at its own place, so that it can go
through the loop without the others. Rows that are written are all rows of an array that nobody
reads before (analysis/row_updates.py), so that each element of it is written once, whatever it was.
"""

from __future__ import annotations

from hlo.analysis.loop_state import counter
from hlo.analysis.row_updates import row_update
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints


def is_over(dims: Ints, others: Ints) -> bool:
    """Whether dimensions are the same, those of one element aside."""
    return [n for n in dims if n > 1] == [n for n in others if n > 1]


def is_row_read(member: Instruction, dims: Ints) -> bool:
    """Whether a member takes a row that has an element for each of the lanes, or one for all."""
    if member.opcode != "dynamic-slice":
        return False
    own, whole = member.shape.dims, member.operands[0].shape.dims
    return _is_run(own, whole) and (member.shape.size == 1 or is_over(own, dims))


def written_rows(loop: Instruction) -> dict[int, Instruction]:
    """The updates of rows by which elements of a loop's state are written whole, by element."""
    known = counter(loop)
    if known is None or known.iterations < 1:
        return {}
    found = {}
    for number, shape in enumerate(loop.shape.elements):
        update = row_update(loop, number, known) if shape.is_array and shape.dims else None
        if update is not None and _is_run(update.operands[1].shape.dims, shape.dims):
            found[number] = update
    return found


def _is_run(sizes: Ints, whole: Ints) -> bool:
    """Whether a slice of an array is one run of its memory."""
    first = next((k for k, n in enumerate(sizes) if n != 1), len(sizes))
    return sizes[first + 1 :] == whole[first + 1 :]
