"""Streams: reductions over columns that walk through memory row by row.

    for 128 rows:  partial = e;  for 8 rows:  for columns:  partial = f(partial, tree of 8 elements)
                   total = f(total, partial)    sums in twice the digits (carried_sums.py)

Lanes that reduce their own columns read a few vectors of a row and then of the next, a page away:
neither the prefetcher nor the table of pages keeps up. Here a unit takes many columns, whose
partial results lie in the first cache, and reads several rows side by side from end to end.
Reductions of one shape are made in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec.structs import replace

from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import NestSchedule, Streamed, Walk
from hlo.backend.loops.reductions import reduced_extents
from hlo.backend.loops.schedule import Tail
from hlo.backend.loops.trace import Read, reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Index
from hlo.indexing.queries import result_dims
from hlo.indexing.reductions import reduction_dims
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON

# Streams add in another order than other reductions do, so that COMMON's caches decide, not those
# of the machine that code is made for.
_ROWS = 8  # Rows side by side: as many streams as a prefetcher follows.
_BLOCK = 128  # Rows of a partial result: as many sums of _ROWS as a block of others has terms.
_UNROLL = 2  # Vectors of columns at a time.
_MEMORY_BYTES = COMMON.last_cache.bytes  # Larger arrays come from memory.
_NARROW = 8  # Rows of so few vectors are read from end to end anyway.
_FEWEST_ROWS = 32
_FEWEST_BYTES = COMMON.second_cache.bytes // 8  # Smaller operands stay in the second cache.
# Where a reducer picks elements, that takes longer than reading them: streams pay only for arrays
# that come from memory.
_PICKED_BYTES = COMMON.last_cache.bytes
_ROW_BYTES = COMMON.first_cache.bytes // 2  # The most that a unit's partial results take.
_PIECE_BYTES = 1 << 11  # The least that a unit should read of a row.
_UNITS = 8
# Of a few units more are made, at less of a row: 800 x 512 exponentials in 0.58 of the time on two
# cores, their maximum without them in 0.51.
_SHORT_PIECE_BYTES = 1 << 9
_FEW_UNITS = 4
_WEIGHT = 24  # The most that an element's code may weigh: it is written for each of the rows.
_COLUMN_WEIGHT = 40  # The most that what is done again for every eight rows may weigh.


def choose_streams(expression: Expression, schedule: NestSchedule, lanes: int) -> NestSchedule:
    """Let the reductions be streams where that suits them: their vectors a round, blocks and walks.

    lanes: of a full vector of the kernel.
    """
    domain, vector = schedule.domain, schedule.vector
    if vector is None or schedule.inner or schedule.tile is not None:
        return schedule
    reductions = domain.trace.reductions
    if schedule.rows != 1 or domain.outer or not reductions:
        return schedule
    if not all(_suits(schedule, lanes, *reduction) for reduction in reductions) or not _is_cheap(
        schedule
    ):
        return schedule
    unroll = _unroll(schedule)
    block = _block(schedule, unroll)
    if block is None:
        return schedule
    last, columns = len(domain.extents) - 1, block or domain.extents[-1]
    schedule = schedule.with_axis(last, step=unroll * schedule.lanes, tail=Tail.NONE)
    schedule = schedule.split(block)
    remarks = tuple(r for r in schedule.remarks if not r.startswith(("vectors:", "block:")))
    walks = tuple(_walk(expression, group, columns) for group in _groups(expression, reductions))
    return replace(schedule, remarks=remarks, walks=walks).because(
        f"streams: reductions over columns, {columns} a unit of {_ROW_BYTES} bytes at most, "
        f"an element's weight is {domain.weight} of {_WEIGHT}"
    )


def _walk(expression: Expression, group: list[tuple[Instruction, Index]], columns: int) -> Walk:
    """How a group of reductions goes through memory."""
    extents = reduced_extents(expression, *group[0]) or (1,)
    reductions = tuple(_streamed(reduce, index, columns) for reduce, index in group)
    block = _BLOCK if any(reduction.accumulators > 1 for reduction in reductions) else 0
    return Walk(reductions, extents, min(_ROWS, extents[-1]), block)


def _streamed(reduce: Instruction, index: Index, columns: int) -> Streamed:
    """Rows for partial results, totals and what these are too large by; where sums are not long,
    the same for results and totals.
    """
    reducer, inits = reducer_of(reduce), reduce.operands[len(reduce.operands) // 2 :]
    dtypes = tuple(_kept(z.shape.dtype) for z in inits)
    length = reduce.operands[0].shape.size // prod(result_dims(reduce))
    is_long = reducer.sums and dtypes[0].is_float and length > _BLOCK
    is_one = not reduce.shape.is_tuple  # others are read where their totals lie
    is_carried = is_long and is_one and reducer.opcodes == ("add",)
    return Streamed(reduce, index, dtypes, columns, 1 + is_long + is_carried)


def _suits(schedule: NestSchedule, lanes: int, reduce: Instruction, index: Index) -> bool:
    """Whether a reduction's results are the domain's elements one by one, its rows long and
    apart."""
    arrays = reduce.operands[: len(reduce.operands) // 2]
    reducer = reducer_of(reduce)
    is_known = reducer.is_cheap or (reducer.idempotent and len(arrays) > 1)
    if any(x.shape.dtype.is_complex for x in arrays) or not (reducer.reassociates and is_known):
        return False
    last = schedule.domain.variables[-1]
    own = affine.linear(schedule.domain.own_index, schedule.domain.dims)
    place = affine.linear(index, result_dims(reduce))
    if place.terms != own.terms or place.coefficient(last) != 1:
        return False
    length = schedule.domain.extents[-1]
    rows = reduce.operands[0].shape.size // prod(result_dims(reduce))
    item_bytes = min(o.shape.dtype.item_bytes for o in reduce.operands)
    if length <= _NARROW * lanes or rows < _FEWEST_ROWS:
        return False
    if len(arrays) > 1 and arrays[0].shape.size * item_bytes < _PICKED_BYTES:
        return False
    return rows * length * item_bytes >= _FEWEST_BYTES


def _is_cheap(schedule: NestSchedule) -> bool:
    """Whether elements may stand in the code several times, and columns' own values be made anew.

    What several stages share is kept in rows of its own, which streams do not fill.
    """
    found, last = schedule.domain.trace, schedule.domain.variables[-1]
    if schedule.domain.weight > _WEIGHT or found.conditions:
        return False
    if any(len(at) > 1 for at in (found.heavy_at | found.rounded_at).values()):
        return False
    reduced = [r for r in found.reads if r.reduced]
    if not any(r.position.coefficient(last) == 1 and _is_of_rows(r) for r in reduced):
        return False
    if not all(r.position.coefficient(last) in (0, 1) for r in reduced):
        return False
    own = set(schedule.domain.variables)
    columns = sum(
        ops
        for ops, index in found.work
        if any(e.depends_on(last) for e in index) and affine.loop_variables(index) <= own
    )
    return columns <= _COLUMN_WEIGHT


def _is_of_rows(read: Read) -> bool:
    """Whether rows of an array follow each other. What is read of one row alone, as a vector that
    meets each number of another one, stays in a cache.
    """
    return any(read.position.depends_on(v) for v in read.reduced)


def _unroll(schedule: NestSchedule) -> int:
    """One vector at a time where more would leave a shorter batch, and are no faster."""
    arrays = [reduce.operands[0].shape for reduce, _ in schedule.domain.trace.reductions]
    is_slow = all(x.size * x.dtype.item_bytes >= _MEMORY_BYTES for x in arrays)
    return 1 if is_slow and schedule.domain.extents[-1] % (_UNROLL * schedule.lanes) else _UNROLL


def _block(schedule: NestSchedule, unroll: int) -> int | None:
    """Columns of a unit, few enough for the first cache; 0: all of them; None: no streams."""
    length, step = schedule.domain.extents[-1], schedule.lanes * unroll
    reductions = [reduce for reduce, _ in schedule.domain.trace.reductions]
    kept = [_kept(x.shape.dtype) for r in reductions for x in r.operands[: len(r.operands) // 2]]
    most = _ROW_BYTES // sum(dtype.item_bytes for dtype in kept)
    item_bytes = min(r.operands[0].shape.dtype.item_bytes for r in reductions)
    units = schedule.units // (-(-length // schedule.block) if schedule.block else 1)
    is_split = schedule.prefix == schedule.loops
    pieces = ((_UNITS, _PIECE_BYTES), *([(_FEW_UNITS, _SHORT_PIECE_BYTES)] if is_split else []))
    least = min(
        max(-(-length // -(-count // units)), piece // item_bytes) for count, piece in pieces
    )
    columns = min(least, most)
    blocks = -(-length // columns)
    if blocks == 1:
        return 0
    return -(-length // (blocks * step)) * step if is_split else None


def _kept(dtype: DType) -> DType:
    """The type of partial results in memory."""
    return dt.F32 if dtype.is_narrow_float else dtype


def _groups(
    expression: Expression, reductions: list[tuple[Instruction, Index]]
) -> Iterator[list[tuple[Instruction, Index]]]:
    """Reductions over the same rows that do not need each other, those first that others need."""
    left = list(reductions)
    needs = {}
    for reduce, index in left:
        inner, _ = reduced_index(reduce, index)
        inside = trace(expression, [(reduce.operands[0], inner, ())]).reductions
        needs[reduce] = {r for r, _ in inside}
    done: set[Instruction] = set()
    while left:
        ready = [reduction for reduction in left if needs[reduction[0]] <= done]
        shape = reduction_dims(ready[0][0])
        group = [reduction for reduction in ready if reduction_dims(reduction[0]) == shape]
        done |= {reduce for reduce, _ in group}
        left = [reduction for reduction in left if reduction not in group]
        yield group
