"""Prefetches: lines that are read or written next are on their way while others are computed.

    schedule --choose_prefetches--> which lines, how far ahead

Of rows that are reduced, the rows that come next: a processor's own prefetcher ends at a page, so
that every row of a few KB begins with a wait for memory; and while a row's exponentials are
computed memory would be idle. The hints stand in the last stage, which goes through the row once:
the one that stores, or the last reduction where none does.

Of squares that are turned in registers, the squares that come next: their lines lie apart, which no
prefetcher foresees, and few stores can wait for their lines at once (f32[1500,2000] transposed
took three to six times as long without).

One reduction of long rows asks for nothing: its pages follow each other, so that a wait comes once
in many of them, and hints for a row so far ahead leave the first cache before they are used (Zen 4,
4 MiB out of the shared cache, 0.6 to 0.8 of the time without them for rows of 8 to 128 KiB; out of
memory 0.75 to 1.05).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from hlo.backend.loops.domain import is_within
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import Ahead, NestSchedule, is_streamed, streamed_from
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.trace import trace
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.indexing.queries import result_dims
from hlo.ir.instruction import Instruction
from hlo.machine import Machine

_SHORT_ROW = 0.5  # Of a page: what a processor's prefetcher does not run through.
_LONG_ROWS = 2  # Rows of so many times what is awaited at once are long.


def choose_prefetches(expression: Expression, schedule: NestSchedule) -> NestSchedule:
    """With its reductions in order and what is asked for ahead."""
    if schedule.inner or schedule.is_blocked:
        return schedule
    if not schedule.domain.trace.reductions:
        is_tiled = schedule.tile is not None
        found = _in_squares(expression, schedule) if is_tiled else _in_strided_rows(schedule)
        return _asking(schedule, found)
    reductions = _reductions_in_order(expression, schedule)
    # Not beside a pad's operand, say: where it is asked for, a test stands before.
    within = tuple((reduce, at) for reduce, at in reductions if is_within(at, result_dims(reduce)))
    schedule = replace(schedule, reductions=within)
    if not reductions or schedule.walks or not schedule.loops:
        return schedule
    if schedule.vector is None:
        fetched = _in_reductions(expression, schedule) if reductions[-1] in within[-1:] else ()
        if len(reductions) == 1:  # which reads its rows from end to end
            least = _LONG_ROWS * schedule.machine.rates.awaited_bytes
            fetched = (a for a in fetched if a.ahead_bytes < least)
        return replace(schedule, fetched=tuple(fetched))
    return schedule if schedule.tile else _asking(schedule, _in_rows(expression, schedule))


def _asking(schedule: NestSchedule, found: Iterable[Ahead]) -> NestSchedule:
    """The schedule, asking for these lines where it stores, of arrays that come from memory."""
    least = streamed_from(schedule.machine)
    ahead = tuple(a for a in found if is_streamed(schedule.machine, a.size_bytes))
    remarks = dict.fromkeys(
        f"ahead: {a.name} by {a.ahead_bytes} bytes, it has {a.size_bytes} bytes, "
        f"{least} and more come from memory"
        for a in ahead
    )
    return replace(schedule, ahead=ahead).because(*remarks)


def _written(output: Output, place: Expr, ahead_bytes: int) -> Ahead:
    array = output.array
    return Ahead(
        array.number, output.name, array.size * array.dtype.item_bytes, ahead_bytes,
        position=place, is_written=True,
    )  # fmt: skip


def _in_squares(expression: Expression, schedule: NestSchedule) -> Iterator[Ahead]:
    """The lines of squares to come: those that are read along the tile's axis, each far from the
    next one, and those that are read or written as rows, each in the middle of a row.
    """
    domain, tile = schedule.domain, schedule.tile
    assert tile is not None, "squares are along a tile axis"
    along, last = domain.variables[tile.loop], domain.variables[-1]
    known = {leaf.number: leaf for leaf in expression.leaves.values()}
    found: dict[tuple[int, Expr], Ahead] = {}
    for read in domain.trace.reads:
        leaf, place = known.get(read.leaf), read.position
        step, across = (place.coefficient(v) or 0 for v in (last, along))
        is_turned = across == 1 and abs(step) >= schedule.lanes
        if (
            leaf is None
            or affine.rests_on_values(place)
            or not (is_turned or (step == 1 and across))
        ):
            continue
        apart = step * leaf.dtype.item_bytes
        found[read.leaf, place] = Ahead(
            read.leaf, f"p{read.leaf}", leaf.size_bytes,
            _squares_ahead(schedule, leaf.dtype.item_bytes) * schedule.lanes * apart,
            position=place, vectors=schedule.lanes if is_turned else 1, apart_bytes=apart,
        )  # fmt: skip
    for output in domain.outputs:
        item_bytes, place = output.array.dtype.item_bytes, output.place(domain.own_index)
        if output.update is None and place.coefficient(last) == 1:
            ahead_bytes = _squares_ahead(schedule, item_bytes) * schedule.lanes * item_bytes
            found[output.array.number, place] = _written(output, place, ahead_bytes)
    yield from found.values()


def _in_strided_rows(schedule: NestSchedule) -> Iterator[Ahead]:
    """Short rows that are written apart from each other, as parts of longer ones: few stores can
    wait for their lines. Rows that are read so gain nothing.
    """
    domain, machine = schedule.domain, schedule.machine
    if schedule.vector is None or not schedule.loops or schedule.stages:
        return
    row, lane = domain.variables[schedule.loops - 1], domain.variables[-1]
    rounds = domain.extents[schedule.loops - 1] // schedule.rows
    for output in domain.outputs:
        place = output.place(domain.own_index)
        group_bytes = schedule.rows * output.array.dtype.item_bytes
        row_bytes = domain.extents[-1] * group_bytes
        step_bytes = (place.coefficient(row) or 0) * group_bytes
        if output.update is not None or place.coefficient(lane) != 1:
            continue
        if abs(step_bytes) <= row_bytes or row_bytes > _SHORT_ROW * machine.cycles.page_bytes:
            continue
        rows = -(-machine.rates.awaited_bytes // row_bytes)
        if rounds >= 2 * rows:
            yield _written(output, place, rows * step_bytes)


def _squares_ahead(schedule: NestSchedule, item_bytes: int) -> int:
    """So many squares as memory delivers while one line is waited for."""
    return -(-schedule.machine.rates.awaited_bytes // (schedule.lanes**2 * item_bytes))


def _in_rows(expression: Expression, schedule: NestSchedule) -> Iterator[Ahead]:
    """What the stage that stores reads row by row."""
    domain = schedule.domain
    row, lane = domain.variables[schedule.loops - 1], domain.variables[-1]
    known = {leaf.number: leaf for leaf in expression.leaves.values()}
    positions = {
        (read.leaf, read.position)
        for read in domain.trace.reads
        if read.leaf in known and not read.reduced and read.position.coefficient(lane) == 1
        # where a run-time value leads is known behind its load only
        if not affine.rests_on_values(read.position)
    }
    for number, position in sorted(positions, key=lambda p: (p[0], repr(p[1]))):
        leaf = known[number]
        step_bytes = (position.coefficient(row) or 0) * schedule.rows * leaf.dtype.item_bytes
        if step_bytes > 0:
            ahead_bytes = _ahead_bytes(schedule.machine, step_bytes)
            yield Ahead(number, f"p{number}", leaf.size_bytes, ahead_bytes, position=position)


def _in_reductions(expression: Expression, schedule: NestSchedule) -> Iterator[Ahead]:
    """The operands of a schedule that stores no rows, only what its reductions make of them."""
    domain = schedule.domain
    row = domain.variables[schedule.loops - 1]
    known = {leaf.number: leaf for leaf in expression.leaves.values()}
    found: dict[Instruction, Ahead] = {}
    for read in domain.trace.reads:
        leaf, step = known.get(read.leaf), read.position.coefficient(row) or 0
        runs = any(read.position.coefficient(v) == 1 for v in read.reduced)
        if leaf is None or not runs or step <= 0 or not read.source.shape.is_array:
            continue
        step_bytes = step * schedule.rows * leaf.dtype.item_bytes
        if is_streamed(schedule.machine, leaf.size_bytes):
            ahead_bytes = _ahead_bytes(schedule.machine, step_bytes)
            found[read.source] = Ahead(
                read.leaf, f"p{read.leaf}", leaf.size_bytes, ahead_bytes, read.source
            )
    yield from found.values()


def _ahead_bytes(machine: Machine, row_bytes: int) -> int:
    """Whole rows, as many as memory delivers while it is waited for."""
    return -(-machine.rates.awaited_bytes // row_bytes) * row_bytes


def _reductions_in_order(
    expression: Expression, schedule: NestSchedule
) -> list[tuple[Instruction, Index]]:
    """The reductions, last the one that rests on the most others where that gives hints."""
    reductions = schedule.domain.trace.reductions[::-1]
    if schedule.vector is not None or len(reductions) < 2:
        return reductions
    counts = {}
    for reduction, index in reductions:
        path = (0,) if reduction.shape.is_tuple else ()
        counts[reduction] = len(trace(expression, [(reduction, index, path)]).reductions)
    return sorted(reductions, key=lambda pair: counts[pair[0]])
