"""Units: what of a part runs in parallel, how many rows side by side, how many vectors a round."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from hlo.backend.kernels.part import LIGHT, Part, fixed_by, reduce_dims
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Variable
from hlo.machine import COMMON

_BLOCK = 4096  # elements of the last dimension that one unit takes
UNITS = 64  # enough parallel units
_MOST_ROWS = 4  # side by side: their partial results share the registers
_ROWS_WEIGHT = 160  # of the code of rows side by side
_ROWS_BYTES = 1 << 13  # of an operand's rows side by side: more streams than pages cost more
_STORED_ROWS_BYTES = 1 << 11  # the same where they are stored side by side too
# Rows side by side are no streams, which add in another order: no one machine's cycles decide.
_PER_CYCLE = COMMON.cycles.operations
_TREE = 10 * COMMON.cycles.latency  # from the last step of a fold to its result


def choose_units(part: Part) -> None:
    """Set the part's rows, copies, parallel loops and blocks: enough units, none below a fold."""
    if part.squares is not None:
        return
    loops = part.loops
    levels = [
        fixed_by(part, index)
        for reduce, index in part.trace.reductions
        if prod(reduce.operands[0].shape.dims) > prod(reduce_dims(reduce)) * 8
    ]
    outer = [
        fixed_by(part, o.row_index(part.index([affine.of(v) for v in part.variables])))
        for o in part.outer
    ]
    shared = [n for n in levels if n <= loops] if part.in_lanes else levels
    part.rows = _rows(part, levels)
    most = min([loops, *shared, *outer])
    units = 1
    while part.prefix < most and (units < UNITS or part.prefix == 0):
        units *= part.rounds(part.prefix)
        part.prefix += 1
    part.remarks.append(
        f"units: {units} by {part.prefix} of {most} loops outside of folds, {UNITS} wanted"
    )
    if not part.in_lanes:
        return
    length, lanes = part.extents[-1], part.lanes
    vertical = [n for n in levels if n > loops and not part.turned]
    part.copies = _copies(part, -(-length // lanes), is_fold=bool(vertical))
    if part.copies > 1:
        part.remarks.append(f"vectors: {part.copies} a round, an element's weight is {part.weight}")
    is_long = part.weight > LIGHT and part.tile is None and not vertical
    part.in_one = is_long and length > lanes and length % lanes > 0
    if part.in_one:
        part.remarks.append(f"one body: an element's weight is {part.weight}, light is {LIGHT}")
    if shared or outer:
        return
    if vertical and part.prefix == loops:
        part.block = part.copies * lanes
    elif length >= 2 * _BLOCK and part.prefix == loops and units < UNITS:
        part.block = _BLOCK // (part.copies * lanes) * part.copies * lanes
    if part.block >= length:
        part.block = 0
    if part.block:
        part.remarks.append(f"block: {part.block} of {length} elements a unit")


def _rows(part: Part, levels: list[int]) -> int:
    """Rows side by side: as many as bring the waits at their ends under an eighth of their work.

    In cycles. A fold over lanes ends in a chain of halvings, what is done once per row (a mean, a
    reciprocal root) is a chain too: nothing else can be done meanwhile but another row's.
    """
    loops = part.loops
    if not loops or part.tile is not None or not levels or max(levels) != loops:
        return 1
    fixed = set(part.variables[:loops])
    waits, work, row_bytes = _TREE * levels.count(loops), 0, 0
    for ops, index in part.trace.work:
        vectors = -(-_steps(index, fixed) // part.lanes)
        work += ops * vectors // _PER_CYCLE
        waits += 2 * max(ops, 2) if _steps(index, fixed) == 1 else 0
    for read in part.trace.reads:
        steps = _steps([read.position], fixed)
        work += -(-steps // part.lanes) // _PER_CYCLE
        row_bytes = max(row_bytes, steps * read.dtype.item_bytes)
    units = min(prod(part.extents[:loops]) // UNITS, part.extents[loops - 1])
    rows = 1
    while waits > rows * work // 8 and rows < _MOST_ROWS:
        twice = 2 * rows
        is_apart = not part.in_lanes or part.may_take_turns(twice)
        most_bytes = _ROWS_BYTES if is_apart else _STORED_ROWS_BYTES
        if twice > units or twice * part.weight > _ROWS_WEIGHT or twice * row_bytes > most_bytes:
            break
        rows = twice
    part.remarks.append(
        f"rows: {rows} side by side, waits of {waits} cycles beside {rows} x {work} of work"
    )
    return rows


def _steps(index: Iterable[Expr], fixed: set[Variable]) -> int:
    """How many values an index takes while some variables stay."""
    return prod(v.high - v.low + 1 for v in affine.loop_variables(index) if v not in fixed)


def _copies(part: Part, vectors: int, *, is_fold: bool) -> int:
    """Vectors per round of the lane loop; short folds written out in each are work enough."""
    if part.tile is not None or part.turned:
        return 1
    if is_fold:
        return max(1, min(8, vectors))
    wanted = 4 if part.weight <= 4 else 2 if part.weight <= LIGHT else 1
    steps = _steps_written_out(part)
    if steps >= 4:
        wanted = min(wanted, 8 // steps)
    return max(1, min(wanted // part.rows, vectors))


def _steps_written_out(part: Part) -> int:
    """Of the longest fold that each lane has of its own."""
    lane = part.variables[-1]
    own = [r for r, at in part.trace.reductions if any(e.depends_on(lane) for e in at)]
    return max((prod(r.operands[0].shape.dims) // prod(reduce_dims(r)) for r in own), default=1)
