"""Units: what of a nest runs in parallel, how many rows side by side, how many vectors a round."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from msgspec.structs import replace

from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.domain import Domain
from hlo.backend.loops.nest_schedule import LIGHT, UNITS, NestSchedule, is_streamed
from hlo.backend.loops.reductions import FEW, LITTLE_CODE, UNROLLED
from hlo.backend.loops.schedule import Axis, Role, Source, Tail
from hlo.backend.loops.trace import Read
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Variable
from hlo.indexing.queries import result_dims
from hlo.machine import COMMON, Machine

# Elements of the last dimension that one unit takes, if they are light: of heavier ones so many
# that they weigh as much, down to the least.
_BLOCK, _LEAST_BLOCK = 4096, 256
_COLUMN_BLOCK = 64  # The same of a column: the rest of its rows is shared out as finely.
_EVEN = 4  # There are a multiple of so many blocks.
_ROUND_VECTORS = 8  # A block is a multiple of so many, which most rounds divide.
# The most vectors of columns that are reduced side by side, and where several units share them.
_MOST_COLUMNS, _SHARED_COLUMNS = 8, 4
_MOST_ROWS = 4  # Rows side by side: their partial results share the registers.
_ROWS_WEIGHT = 160  # The most that the code of rows side by side may weigh.
# The most vectors that go through a while together, and the most that their code may weigh.
_MOST_CHAINS, _CHAINS_WEIGHT = 4, 480
_LOOP_BLOCK = 256  # Elements of the last dimension that a unit takes through a while.
# The most bytes of an operand's rows side by side, and where their results are stored side by side
# too: longer rows are streams in more pages than the processor has at hand.
_ROWS_BYTES = 1 << 13
_STORED_ROWS_BYTES = 1 << 11
# Rows whose terms lie between each other's: bytes of a stretch, up to which they go together; the
# most bytes and rows; units that are left, at least. 16 rows take 0.8 of the time of 8 and twice as
# long to compile.
_STRETCH_BYTES, _TOGETHER_BYTES, _TOGETHER_ROWS, _FEWEST_UNITS = 1 << 7, 1 << 9, 8, 4
# Whether rows are side by side or streams decides in which order terms are added, so that COMMON's
# cycles decide, not those of the machine that code is made for.
_PER_CYCLE, _LATENCY = COMMON.cycles.operations, COMMON.cycles.latency
_ALONE = 1 << 14  # Cycles of a kernel that no thread is woken for.
_TREE = 10 * COMMON.cycles.latency  # Cycles from the last step of a reduction to its result.


def choose_units(schedule: NestSchedule) -> NestSchedule:
    """With rows, vectors a round, parallel loops and blocks: enough units, none below a
    reduction."""
    if schedule.is_blocked:
        return schedule
    domain, loops, vector = schedule.domain, schedule.loops, schedule.vector
    levels = [
        domain.fixes(index)
        for reduce, index in domain.trace.reductions
        if prod(reduce.operands[0].shape.dims) > prod(result_dims(reduce)) * 8
    ]
    outer = [domain.fixes(o.row_index(domain.own_index)) for o in domain.outer]
    shared = [n for n in levels if n <= loops] if vector is not None else levels
    schedule = _choose_rows(schedule, levels)
    schedule, units = _choose_parallel(schedule, min([loops, *shared, *outer]))
    if vector is None:
        return schedule
    vertical = [n for n in levels if n > loops and schedule.source is not Source.TURNED]
    schedule = _choose_vectors(schedule, is_reduction=bool(vertical))
    if vertical and not (shared or outer):
        schedule = _choose_sums(schedule)
    if shared or outer:
        return schedule
    block, length = _block(schedule, units, is_reduction=bool(vertical)), domain.extents[-1]
    if block:
        schedule = schedule.because(f"block: {block} of {length} elements a unit")
    return schedule.split(block)


def _choose_parallel(schedule: NestSchedule, most: int) -> tuple[NestSchedule, int]:
    """The outermost loops are split over units, until these are enough."""
    units, prefix = 1, 0
    while prefix < most and (units < UNITS or prefix == 0):
        units *= schedule.outer(prefix).rounds
        schedule = schedule.with_first(prefix, role=Role.PARALLEL)
        prefix += 1
    remark = f"units: {units} by {prefix} of {most} loops outside of reductions, {UNITS} wanted"
    return schedule.because(remark), units


def _choose_vectors(schedule: NestSchedule, *, is_reduction: bool) -> NestSchedule:
    """Vectors a round, and whether the loop over lanes has one body: the last round runs again over
    elements of the one before, or all lanes are masked, as the last ones have to be.
    """
    domain, lanes, last = schedule.domain, schedule.lanes, len(schedule.domain.extents) - 1
    length = domain.extents[-1]
    unroll = _unroll(schedule, -(-length // lanes), is_reduction=is_reduction)
    schedule = schedule.with_axis(last, step=unroll * lanes)
    if unroll > 1:
        remark = f"vectors: {unroll} a round, an element's weight is {domain.weight}"
        schedule = schedule.because(remark)
    light = 0 if schedule.is_small and schedule.has_masks else LIGHT
    if length % lanes == 0 or length < lanes or schedule.tile is not None or is_reduction:
        return schedule
    # Conditions hold or not where the places of the last elements are known.
    is_free = schedule.source is not Source.TURNED and not domain.trace.conditions
    again = [n for n in (unroll, unroll // 2) if n and is_free and schedule.may_run_again(n)]
    if again:
        schedule = schedule.with_axis(last, step=again[0] * lanes, tail=Tail.OVERLAPPING)
        return schedule.because("one body: the last round ends where the elements do")
    if domain.weight > light and schedule.masks_all:
        schedule = schedule.with_axis(last, tail=Tail.PREDICATED)
        remark = f"one body: an element's weight is {domain.weight}, light is {light}"
        schedule = schedule.because(remark)
    return schedule


def _block(schedule: NestSchedule, units: int, *, is_reduction: bool) -> int:
    """Elements of the loop over lanes that a unit takes, 0: all."""
    length, vector, block = schedule.domain.extents[-1], schedule.vector, 0
    assert vector is not None, "there are lanes"
    if is_reduction and schedule.prefix == schedule.loops:
        block = vector.step
        return block if block < length else 0
    weight = max(LIGHT, schedule.domain.weight)
    most = max(_LEAST_BLOCK, _power_of_two(_BLOCK * LIGHT // weight))
    most = _LOOP_BLOCK if schedule.domain.trace.carried else most
    if _is_column(schedule.domain):
        most = min(most, max(_COLUMN_BLOCK, length // UNITS))
    if length >= 2 * most and schedule.prefix == schedule.loops and units < UNITS:
        block = max(1, most // vector.step) * vector.step
        rounds = max(vector.step, _ROUND_VECTORS * schedule.lanes)
        block = min(block, _even_block(length, block, rounds))
    return block if block < length else 0


def _is_column(domain: Domain) -> bool:
    """Whether a box has one element of each row, the rest of which other boxes write: two threads
    that write parts of the same rows take their lines from each other, for which each waits.

    A column beside 15 others, of 2,400 rows, took 16 times as long on two threads as on one.
    """
    whole = domain.outputs[0].dims
    outermost = next((d for d, size in enumerate(whole) if size > 1), 0)
    is_part = domain.dims[outermost + 1 :] != whole[outermost + 1 :]
    return is_part and domain.extents == (domain.dims[outermost],)


def _even_block(length: int, most: int, step: int) -> int:
    """The block of at most about `most` elements, in whole rounds of `step`, of which two threads
    and four get as many each: so kernels of a loop over arrays of one size end a thread's share in
    about the same place, whatever edges they leave out. Six rows of 200 that change threads in each
    of a step's three kernels cost a fifth of a finite-difference step.
    """
    needed = -(-length // most)
    blocks = -(-needed // _EVEN) * _EVEN
    return -(-length // (blocks * step)) * step


def _power_of_two(most: int) -> int:
    """The largest one up to a number, 0 for 0: whole rounds, however many vectors a round gets."""
    return 1 << most.bit_length() - 1 if most else 0


# -- rows side by side -----------------------------------------------------------------------


def _choose_rows(schedule: NestSchedule, levels: list[int]) -> NestSchedule:
    """Rows side by side: as many as bring the waits at their ends under an eighth of their work.

    In cycles; units stay enough, or the kernel is one thread's anyway, and fast code is worth more
    than little. A reduction over lanes ends in a chain of halvings, what is done once per row (a
    mean, a reciprocal root) is a chain too: nothing else can be done meanwhile but another row's.
    """
    domain, loops = schedule.domain, schedule.loops
    if not loops or schedule.tile is not None or not levels or max(levels) != loops:
        return schedule
    if (rows := _rows_of_a_place(schedule)) > 1:
        remark = f"rows: {rows} side by side, of which each has a part of a place in memory"
        return _side_by_side(schedule.because(remark), rows)
    fixed = set(domain.variables[:loops])
    waits, work, row_bytes = _TREE * levels.count(loops), 0, 0
    for ops, index in domain.trace.work:
        vectors = -(-_steps(index, fixed) // schedule.lanes)
        work += ops * vectors // _PER_CYCLE
        waits += 2 * max(ops, 2) if _steps(index, fixed) == 1 else 0
    for read in domain.trace.reads:
        steps = _steps([read.position], fixed)
        work += -(-steps // schedule.lanes) // _PER_CYCLE
        row_bytes = max(row_bytes, steps * read.dtype.item_bytes)
    units = prod(domain.extents[:loops])
    is_alone = units * (work + waits) <= _ALONE and not schedule.is_small
    extent = domain.extents[loops - 1]
    units = min(units if is_alone else units // UNITS, extent)
    rows = 1
    while waits > rows * work // 8 and rows < _MOST_ROWS:
        twice = 2 * rows
        is_apart = schedule.vector is None or _may_take_turns(schedule, twice)
        most_bytes = _ROWS_BYTES if is_apart else _STORED_ROWS_BYTES
        if twice > units or twice * domain.weight > _ROWS_WEIGHT or twice * row_bytes > most_bytes:
            break
        # The last round takes rows again where they are no whole rounds.
        now, then = (-(-extent // n) * (n * work + waits) for n in (rows, twice))
        if then >= now:
            break
        rows = twice
    schedule = schedule.because(
        f"rows: {rows} side by side, waits of {waits} cycles beside {rows} x {work} of work"
    )
    return _side_by_side(schedule, rows)


def _rows_of_a_place(schedule: NestSchedule) -> int:
    """How many rows side by side read what lies together: of rows whose terms lie between each
    other's, each by itself goes through all pages for a part of their lines.

    Emerald Rapids, one thread, of the time of a row after the other: sums of f32[8,56,56,32,8] over
    places and the last 8 numbers 0.45, of 2 to 32 numbers 0.25 to 0.93 (64: 1.07, so they stay);
    statistics of groups behind a 1x1 convolution 0.70.
    """
    domain, rows = schedule.domain, 1
    extent, units = domain.extents[schedule.loops - 1], prod(domain.extents[: schedule.loops])
    steps = [_step_between(schedule, read) for read in domain.trace.reads if read.reduced]
    step_bytes = max(steps, default=0)
    if schedule.vector is not None or not 0 < step_bytes <= _STRETCH_BYTES:
        return 1
    while (
        2 * rows <= _TOGETHER_ROWS
        and 2 * rows * step_bytes <= _TOGETHER_BYTES
        and extent % (2 * rows) == 0
        and units >= 2 * rows * _FEWEST_UNITS
        and 2 * rows * domain.weight <= _ROWS_WEIGHT
    ):
        rows *= 2
    return rows


def _step_between(schedule: NestSchedule, read: Read) -> int:
    """Bytes from a row's terms at a place to those of the next row; 0 where a row's terms are one
    stretch of memory, or the first cache holds all rows'.
    """
    domain, at, size = schedule.domain, read.position, read.dtype.item_bytes
    step = abs(at.coefficient(domain.variables[schedule.loops - 1]) or 0)
    is_between = any(v.high > 0 and abs(at.coefficient(v) or 0) > step for v in read.reduced)
    terms = domain.extents[schedule.loops - 1] * prod(v.high + 1 for v in read.reduced)
    return step * size if is_between and terms * size > COMMON.first_cache.bytes else 0


def _side_by_side(schedule: NestSchedule, rows: int) -> NestSchedule:
    """With so many rows a round, which large results store one after the other.

    Fewer streams to memory; but what all rows read is read, and converted, for each of them.
    """
    if rows == 1:
        return schedule
    domain, row = schedule.domain, schedule.loops - 1
    tail = Tail.OVERLAPPING if domain.extents[row] % rows else Tail.NONE
    schedule = schedule.with_axis(row, step=rows, tail=tail)
    size_bytes = domain.outputs[0].array.size_bytes
    is_large = schedule.vector is not None and is_streamed(schedule.machine, size_bytes)
    if not is_large or not _may_take_turns(schedule, rows):
        return schedule
    place = row + 1
    turn = Axis(schedule.axes[row].name, rows, Role.UNROLLED, loop=row)
    axes = (*schedule.axes[:place], turn, *schedule.axes[place:])
    return replace(schedule, axes=axes)


def _may_take_turns(schedule: NestSchedule, rows: int) -> bool:
    """Whether rows share nothing, and none that is computed again may lie over its operand."""
    domain, row = schedule.domain, schedule.loops - 1
    lane = domain.variables[-1]
    return domain.extents[row] % rows == 0 and not any(
        r.position.depends_on(lane) and not r.position.depends_on(domain.variables[row])
        for r in domain.trace.reads
    )


def _steps(index: Iterable[Expr], fixed: set[Variable]) -> int:
    """How many values an index takes while some variables stay."""
    return prod(v.high - v.low + 1 for v in affine.loop_variables(index) if v not in fixed)


def _choose_sums(schedule: NestSchedule) -> NestSchedule:
    """Rows side by side whose lanes each reduce for themselves, where a row has fewer vectors than
    keep the processor busy: a step of a reduction waits for the one before, so that two to four
    vectors go through it together. Units stay enough, or the kernel is one thread's anyway.

    Logarithms of sums of exponentials over 16 states take 0.6 of the time, maxima of 16 columns
    over thousands of rows 0.6; plain sums, which wait for memory, 1.1 to 1.3: they stay.
    """
    domain, loops, vector = schedule.domain, schedule.loops, schedule.vector
    if not loops or schedule.rows > 1 or schedule.tile is not None or vector is None:
        return schedule
    steps = [(ops, _steps(index, set())) for ops, index in domain.trace.work]
    if not _waits_for_steps(domain, steps):
        return schedule
    rows, row = _MOST_ROWS * schedule.lanes // vector.step, domain.extents[loops - 1]
    cycles = sum(ops * -(-count // schedule.lanes) // _PER_CYCLE for ops, count in steps)
    units = prod(domain.extents[:loops])
    most = units if cycles <= _ALONE else units // UNITS
    while rows > 1 and (row % rows or rows > most):
        rows //= 2
    return _side_by_side(schedule, rows) if rows > 1 else schedule


def _waits_for_steps(domain: Domain, steps: list[tuple[int, int]]) -> bool:
    """Whether a reduction is a loop of which a step takes longer than to read its element: there is
    more than one op to it, or one that looks for NaN.
    """
    terms = {
        reduce: prod(reduce.operands[0].shape.dims) // prod(result_dims(reduce))
        for reduce, _ in domain.trace.reductions
    }
    loops = [reduce for reduce, count in terms.items() if count > UNROLLED]
    if any(reducer_of(r).idempotent and r.operands[0].shape.dtype.is_float for r in loops):
        return True
    ops = sum(ops * count for ops, count in steps if count > domain.size) // domain.size
    is_long = ops > LITTLE_CODE or any(terms[reduce] > FEW for reduce in loops)
    return bool(loops) and is_long and ops > sum(terms.values())


# -- vectors a round -------------------------------------------------------------------------


def _unroll(schedule: NestSchedule, vectors: int, *, is_reduction: bool) -> int:
    """Vectors per round of the lane loop; short reductions written out in each are work enough."""
    if schedule.tile is not None or schedule.source is Source.TURNED:
        return 1
    if schedule.is_small:
        return 1
    if is_reduction:
        most = max(1, min(_MOST_COLUMNS, vectors))
        return min(most, _SHARED_COLUMNS) if _is_shared_out(schedule, vectors // most) else most
    weight = schedule.domain.weight
    if schedule.domain.trace.carried:
        trace = schedule.domain.trace
        return min(chains(trace.carried, trace.weight, schedule.machine), vectors)
    wanted = 4 if weight <= 4 else 2 if weight <= LIGHT else 1
    steps = _steps_written_out(schedule)
    if steps >= 4:
        wanted = min(wanted, 8 // steps)
    return max(1, min(wanted // schedule.rows, vectors))


def _is_shared_out(schedule: NestSchedule, units: int) -> bool:
    """Whether columns are reduced by several units, of fewer vectors each: where they are few, all
    of them take long, and so many vectors have enough to do while each waits for its last sum.
    """
    domain = schedule.domain
    if schedule.prefix or units > 1:
        return False
    operations = 1 + domain.weight  # the reducer's own is one
    if _SHARED_COLUMNS * operations < _PER_CYCLE * _LATENCY:
        return False
    size = max(prod(reduce.operands[0].shape.dims) for reduce, _ in domain.trace.reductions)
    return domain.weight * size > _ALONE * _PER_CYCLE * schedule.lanes


def chains(carried: int, weight: int, machine: Machine) -> int:
    """Vectors that go through a while together, of which an element carries so many numbers and
    weighs so much: a trip is a chain of ops, each of which waits for the one before, so as many as
    have their numbers in registers. A mandelbrot of 4 took two thirds of the time of one of 2.
    """
    wanted = _MOST_CHAINS
    while wanted > 1 and (wanted * carried > machine.registers or wanted * weight > _CHAINS_WEIGHT):
        wanted //= 2
    return wanted


def _steps_written_out(schedule: NestSchedule) -> int:
    """Of the longest reduction that each lane has of its own."""
    domain = schedule.domain
    lane = domain.variables[-1]
    own = [r for r, at in domain.trace.reductions if any(e.depends_on(lane) for e in at)]
    return max((prod(r.operands[0].shape.dims) // prod(result_dims(r)) for r in own), default=1)
