"""row-update-mover: rows that a loop takes out of one array, updates and puts into another.

    y[i] = update(x[i], u, p)  in trip i, for all rows, y read by nobody before
    =>  y starts as x;  y = update(y, u, i, p)

As a scan over layers does with their caches of keys and values: a row is read and written whole
for a few elements that are new. Row i of y is still x's in trip i, so the elements go there, and
what read the updated row reads it where it lies.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.analysis.while_loops.loop_state import Counter, counter, element_index
from hlo.analysis.while_loops.row_updates import row_update
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.patterns.matching import is_plain


class _Moved(Struct, frozen=True):
    """A row that a loop takes out of one array and puts into another.

    update: of the row that is taken; source: of the rows, an element of the state; put: of the
    row that is done, in the other array.
    """

    update: Instruction
    source: Instruction
    put: Instruction


def row_update_mover(module: Module) -> bool:
    """Update rows of a loop's array in place, not row by row into another. O(edges)."""
    changed = False
    for computation in tuple(module.computations):
        for loop in [i for i in computation.instructions if i.opcode == "while"]:
            known = counter(loop)
            (state,) = loop.operands
            if known is None or known.iterations < 1 or set(state.users) != {loop}:
                continue
            for number in range(len(state.operands)):
                moved = _moved(loop, number, known)
                if moved is not None:
                    _rewrite(moved)
                    start = state.operands[element_index(moved.source)]
                    computation.set_operand(state, number, start)
                    changed = True
    return changed


def _moved(loop: Instruction, number: int, known: Counter) -> _Moved | None:
    """How a state's array is made, if it is so."""
    put = row_update(loop, number, known)
    if put is None:
        return None
    target, row, first, *_ = put.operands
    update = _same(row)
    whole = target.shape.dims
    if row.shape.dims != (1, *whole[1:]) or update.opcode != "dynamic-update-slice":
        return None
    old, new, *places = update.operands
    taken = _same(old)
    if update.shape.dims != whole[1:] or taken.opcode != "dynamic-slice":
        return None
    is_alone = set(old.users) == {update} and (taken is old or set(taken.users) == {old})
    if not is_alone or update.operands.count(old) != 1 or 2 * new.shape.size > old.shape.size:
        return None
    source, at, *_ = taken.operands
    is_typed = {p.shape for p in places} == {first.shape} and is_plain(target.shape)
    if taken.shape.dims != row.shape.dims or at is not first or not is_typed:
        return None
    body, _ = loop.called_computations()
    is_kept = _is_kept(loop, source) and set(source.users) <= {taken, body.root}
    return _Moved(update, source, put) if is_kept and source.shape == target.shape else None


def _same(value: Instruction) -> Instruction:
    """What a reshape has the elements of."""
    return value.operands[0] if value.opcode == "reshape" else value


def _is_kept(loop: Instruction, source: Instruction) -> bool:
    """Whether a value is an element of the loop's state that no trip changes."""
    body, _ = loop.called_computations()
    if source.opcode != "get-tuple-element" or source.operands[0] not in body.parameters:
        return False
    return body.root.operands[element_index(source)] is source


def _rewrite(moved: _Moved) -> None:
    """Put new elements alone, and let who reads the updated row read it in the array."""
    update, put = moved.update, moved.put
    body = put.computation
    assert isinstance(body, Computation), "it stands in the body"
    target, row, first, *rest = put.operands
    _, new, *places = update.operands
    as_row = make(put, "reshape", new, shape=new.shape.with_dims((1, *new.shape.dims)))
    made = make(put, "dynamic-update-slice", target, as_row, first, *places, shape=put.shape)
    sizes = row.shape.dims
    again = make(
        put, "dynamic-slice", made, first, *rest,
        shape=Shape.array(row.shape.dtype, sizes), dynamic_slice_sizes=sizes,
    )  # fmt: skip
    body.replace_uses(update, make(put, "reshape", again, shape=update.shape))
    body.replace_uses(put, made)
    body.remove(put)
