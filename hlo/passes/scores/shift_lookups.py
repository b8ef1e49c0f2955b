"""Shift lookups: rows of scores that moves have shifted, as lookups at counted places.

    reshape(slice(reshape(pad(x))))  -->  gather(x, j - i + c),  where it is no padding

Blocks of rows can be cut of a lookup (analysis/blocks/blocking.py), not of moves that mix rows.
Where rows are shifted beside their ends, or a mask made what they meet there zero, the number that
stands there is selected. Exact: every element is the one that was moved. Only large values that are
computed from products, as scores are; what is moved else is copied faster than it is looked up.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.indexing.affine import Expr
from hlo.ir.computation import Computation
from hlo.ir.dtype import S32
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, number_of, spread
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.patterns.matching import is_plain, splat
from hlo.passes.scores.row_shifts import MOVES, RowShift, shift_of
from hlo.passes.simplify.cse import cse
from hlo.passes.simplify.dce import drop_dead_instructions

MOST_BEHIND = 64  # Instructions between scores and the product that they are computed from.
MOST_PLACES = 2**30


def look_shifts_up(module: Module) -> bool:
    """Look shifted rows of scores up. O(instructions) for each large move."""
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in left or not _has_dots(computation):
            continue
        found = False
        kept = awaited(computation)
        for root in computation.instructions:
            if root in kept or not _ends_moves(root):
                continue
            shift = shift_of(root)
            if shift is not None and _is_of_scores(shift.source) and _is_small(shift):
                computation.replace_uses(root, looked_up(root, shift))
                found = True
        if found:
            drop_dead_instructions(computation)
            changed = True
    if changed:
        cse(module)  # masks count rows and columns, too
    return changed


def _has_dots(computation: Computation) -> bool:
    return any(i.opcode == "dot" for i in computation.instructions)


def _ends_moves(root: Instruction) -> bool:
    """Whether moves of a large value end in it, which others than moves read."""
    return (
        root.opcode in MOVES
        and is_plain(root.shape)
        and root.shape.size_bytes >= LEAST_SCORES_BYTES
        and not root.is_root
        and any(user.opcode not in MOVES for user in root.users)
    )


def _is_of_scores(source: Instruction) -> bool:
    """Whether a value is computed from a product, element by element."""
    found, waiting = {source}, [source]
    while waiting and len(found) < MOST_BEHIND:
        one = waiting.pop()
        if one.opcode == "dot":
            return True
        if is_elementwise(one) or (one is source and one.opcode == "transpose"):
            new = [o for o in one.operands if o not in found]
            found.update(new)
            waiting += new
    return False


def _is_small(shift: RowShift) -> bool:
    """Whether all places are 32-bit integers."""
    places = (shift.place, *(b.place for b in shift.bounds))
    return all(p.low > -MOST_PLACES and p.high < MOST_PLACES for p in places)


def looked_up(root: Instruction, shift: RowShift) -> Instruction:
    """The lookup, and where it is not of the source, the number."""
    table, rank = shift.source, root.shape.rank
    long = {d: whole for d, whole in enumerate(shift.dims) if whole is not None}
    dropped = tuple(d for d in range(table.shape.rank) if d not in long)
    value = make(
        root, "gather", table, _counted(root, shift, shift.place),
        offset_dims=(), collapsed_slice_dims=dropped, start_index_map=(shift.along,),
        operand_batching_dims=tuple(long), start_indices_batching_dims=tuple(long.values()),
        index_vector_dim=rank, slice_sizes=(1,) * table.shape.rank,
    )  # fmt: skip
    for bound in shift.bounds:
        place = _counted(root, shift, bound.place)
        assert shift.number is not None, "where bounds do not hold is a number"
        for limit, direction, is_open in (
            (bound.low, "GE", bound.place.low < bound.low),
            (bound.high, "LE", bound.high < bound.place.high),
        ):
            if is_open:
                number = spread(root, number_of(root, limit, S32), place.shape)
                holds = make(root, "compare", place, number, direction=direction)
                value = make(root, "select", holds, value, splat(root, shift.number))
    return value


def _counted(root: Instruction, shift: RowShift, place: Expr) -> Instruction:
    """s32 of the result's dimensions: a place for each element."""
    shape = Shape.array(S32, root.shape.dims)
    total = spread(root, number_of(root, place.constant, S32), shape)
    for d, variable in enumerate(shift.variables):
        step = place.terms.get(variable, 0) if variable is not None else 0
        if step:
            count = make(root, "iota", shape=shape, iota_dimension=d)
            total = make(root, "add" if step > 0 else "subtract", total, count)
    return total
