"""Which loop lanes run over: what reductions keep, rows, or inside of the reductions.

And the tiles that are turned.

NestSchedule of serial axes --choose_lanes--> one with a vector axis, or with none
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from hlo.analysis.reducers import reducer_of
from hlo.backend.loops.domain import are_apart
from hlo.backend.loops.nest_schedule import LIGHT, UNITS, NestSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.reductions import UNROLLED, is_short_row
from hlo.backend.loops.schedule import Axis, Role, Source, Tail
from hlo.backend.loops.trace import Read
from hlo.backend.loops.vectors import (
    MOST_APART,
    MOST_INTERLEAVED,
    MOST_JOINED,
    MOST_LANES,
    MOST_TURNS,
    fitting,
    narrowed,
    takes_rows,
)
from hlo.indexing.affine import DivMod, Expr, Variable, of, rests_on_values
from hlo.indexing.reductions import reduction_dims
from hlo.ir.instruction import Instruction

# Elements of a block of squares, along the operand's rows and across them.
_BLOCK_SIDES = (256, 64)
# Rows up to this length leave lanes idle, or cost a tree of lanes for little.
_SHORT_REDUCTION = 16
_MOST_IN_A_ROW = 16  # Terms of sums that lanes make for a short row each.
_MOST_TWICE = 400  # Ops and elements of such rows of which a tail has code of its own.
_MANY_TERMS = 8  # For so many, what is done for each row of terms is little.
_GATHERED = 2  # What a term costs that lanes gather, in plain ops of a result alone.
_ROOM = 32  # Registers that hold a formula's numbers beside what is computed.
_PAIRS = 4  # The fewest rounds of a loop whose values take two registers.
_LEAST_STRIPS = 4  # Batches are shortened until there are so many, enough for a few cores.


def choose_lanes(schedule: NestSchedule) -> NestSchedule:
    """The schedule with its vector axis; no lanes where they run inside the reductions."""
    extents = schedule.domain.extents
    if not extents:
        return schedule
    remark = _why_rows_are_turned(schedule)
    if remark:
        schedule = replace(schedule, source=Source.TURNED).because(remark)
    else:
        remark, is_row_reduction = _why_lanes_are_inside(schedule)
        schedule = schedule.because(remark) if remark else schedule
        if is_row_reduction:
            return schedule
    tiled = _tiled(schedule)
    if tiled is None:
        schedule = _paired(_narrowed(_gathered(schedule)))
        return _over(schedule, schedule.lanes)
    return tiled


def _over(schedule: NestSchedule, lanes: int) -> NestSchedule:
    last = len(schedule.domain.extents) - 1
    return schedule.with_axis(last, role=Role.VECTOR, lanes=lanes, step=lanes)


# -- strips ----------------------------------------------------------------------------------


def choose_strip(schedule: NestSchedule, kept: int) -> NestSchedule | None:
    """Lanes over what reductions keep: where that is contiguous, or what they reduce is very
    short."""
    domain, lanes = schedule.domain, schedule.lanes
    extents = domain.extents
    count = next((c for c in range(1, len(extents)) if prod(extents[:c]) == kept), 0)
    # Results of a row, of which each place is written out; sums are those of all rows together.
    is_few = bool(count) and domain.reduces_around(count - 1)
    if is_few:
        lanes = narrowed(extents[count - 1], lanes)
        schedule = replace(schedule, lanes=lanes)
    elif not count or extents[count - 1] < lanes:
        return None
    reduced, length = prod(extents[count:]), extents[count - 1]
    place = domain.outputs[0].place(domain.own_index)
    is_contiguous = place.coefficient(domain.variables[count - 1]) == 1
    longest = MOST_APART if is_few else _SHORT_REDUCTION
    if not is_contiguous and (reduced > longest or domain.order):
        return None
    vectors, units = -(-length // lanes), prod(extents[: count - 1])
    is_row = not is_few and not is_contiguous and _are_short_rows(schedule, count - 1)
    is_long = reduced > UNROLLED and not is_row
    wanted = 1 if schedule.is_small else 4 if is_contiguous else 1 + is_long
    most = min(wanted, vectors)
    while most > 1 and units * vectors < _LEAST_STRIPS * most:
        most //= 2
    in_one = domain.weight > LIGHT or schedule.is_small
    why = "contiguous" if is_contiguous else f"around rows of {reduced}"
    unroll = min(range(1, most + 1), key=lambda n: _visits(vectors, n, in_one=in_one))
    visits = _visits(vectors, unroll, in_one=in_one)
    step = unroll * lanes
    shared = min((domain.fixes(at) for _, at in domain.trace.reductions), default=count)
    wanted = 1 if shared < count else -(-UNITS // units)  # each sum once
    block = max(step, length // wanted // step * step) if wanted > 1 else length
    for k in range(count - 1):  # of rows that share a sum, one unit has all
        schedule = schedule.with_axis(k, role=Role.PARALLEL if k < shared else Role.SERIAL)
    # Which part of a joined array an element is of is known where its place is written out.
    written = MOST_JOINED if domain.trace.conditions else max(UNROLLED, MOST_TURNS)
    for k in range(count, len(extents)):
        role = Role.UNROLLED if is_few or is_row or reduced <= written else Role.SERIAL
        schedule = schedule.with_axis(k, role=role)
    schedule = schedule.with_axis(count - 1, role=Role.VECTOR, lanes=lanes, step=step)
    schedule = schedule.split(block if block < length else 0)
    schedule = schedule.with_axis(
        count - 1, of=length, **_strip_tail(schedule, in_one=in_one, is_row=is_row)
    )
    return schedule.because(
        f"lanes: over the {length} that all reductions keep, {why}",
        f"batch: {unroll} vectors, {visits} visits of a row for {vectors}, {most} at most",
        f"units: {schedule.units} of {UNITS} wanted",
    )


def _are_short_rows(schedule: NestSchedule, loop: int) -> bool:
    """Whether lanes over a loop take a short row each that reductions meet (a softmax over ten
    classes, a norm of a dozen features), of which each place is written out: it is read and stored
    as a row that is turned in registers, and what several stages need of it stays there.
    """
    domain, trace, lanes = schedule.domain, schedule.domain.trace, schedule.lanes
    reduced = prod(domain.extents[loop + 1 :])
    if reduced > _MOST_IN_A_ROW or trace.conditions:
        return False
    # A masked tail has as much code again, and that of narrow elements is long.
    last = schedule.with_axis(loop, role=Role.VECTOR, lanes=lanes, step=lanes)
    has_tail = domain.extents[loop] % lanes > 0 and not last.may_run_again(1)
    is_much = reduced * (1 + domain.weight) > _MOST_TWICE or not schedule.masks_words
    if reduced > UNROLLED and has_tail and is_much:
        return False
    along = [r for r in trace.reads if r.reduced and r.position.depends_on(domain.variables[loop])]
    weight = trace.weight_along({v for read in along for v in read.reduced})
    arrays = len({read.source for read in along})
    return domain.lies_in_rows(loop) and all(
        len(reduction_dims(reduce).extents) == 1
        and is_short_row([reduce], _terms(reduce), weight, arrays)
        for reduce, _ in trace.reductions
    )


def rows_of_few(schedule: NestSchedule) -> int:
    """How many rows of a few results there are (points, pixels, pairs of which each member is
    computed otherwise, or something costly of a short sum), if lanes take a row each; 0 if the
    results are no such rows.

    Each place in a row is written out, and the rows of a vector are put together in registers.
    """
    domain = schedule.domain
    if len(domain.extents) < 2 or domain.outer or domain.trace.is_open:
        return 0
    # A row of a few pixels of a few colours, as of an image that is made larger, is two loops.
    for loops in (1, 2):
        if _are_rows_of_few(schedule, loops) and _takes_sums(schedule, loops):
            return prod(domain.extents[:-loops])
    return 0


def _takes_sums(schedule: NestSchedule, loops: int) -> bool:
    """Whether lanes may take a row of the last loops each, for all sums there are: none, or those
    that are made before the lanes run, of which nothing is kept, and short ones of a row, which
    each lane makes for itself; or costly short ones.
    """
    domain = schedule.domain
    around = len(domain.extents) - loops - 1
    heavy = [at for indices in domain.trace.heavy_at.values() for at in indices]
    is_light = len(heavy) == domain.trace.heavy and all(domain.fixes(at) <= around for at in heavy)
    if is_light and all(
        domain.fixes(at) <= around + (_terms(reduce) <= MOST_INTERLEAVED)
        for reduce, at in domain.trace.reductions
    ):
        return True
    return not domain.trace.reductions or _are_costly_short_sums(schedule)


def _terms(reduce: Instruction) -> int:
    return prod(reduce.operands[0].shape.dims[d] for d in reduction_dims(reduce).reduced)


def _are_rows_of_few(schedule: NestSchedule, loops: int) -> bool:
    """Whether the last loops, so many, are a row of a few results that lanes take each."""
    domain, lanes = schedule.domain, schedule.lanes
    if len(domain.extents) <= loops:
        return False
    rows = domain.extents[-loops - 1]
    length = prod(domain.extents[-loops:])
    # Conditions on the loops around rows alone choose whole rows, not places within one.
    outer = domain.variables[:-loops]
    is_joined = not all(c.index.is_made_of(outer) for c in domain.trace.conditions)
    joined = MOST_APART if loops == 1 and are_apart(domain) else MOST_JOINED if is_joined else 0
    most = joined or MOST_INTERLEAVED
    is_shared = bool(domain.trace.drawn)  # by a row: it has the numbers of one step
    runs = length // domain.extents[-1]
    takes = takes_rows(rows, length, lanes, most_joined=joined, is_shared=is_shared, runs=runs)
    if not takes or domain.weight > LIGHT * (most + 1):
        return False
    return domain.lies_in_rows(len(domain.extents) - loops - 1)


def _are_costly_short_sums(schedule: NestSchedule) -> bool:
    """Whether short sums that make short rows take longer than to put their rows together: few
    terms of which something costly is computed (a power of what a small matrix makes of a point),
    or many, in rows that leave lanes idle (points of seven numbers by a matrix of three columns,
    bits by a parity check). Lanes over columns would be idle for the most part. Cheap results of
    few terms take twice the time so.
    """
    domain = schedule.domain
    row = domain.extents[-1]
    terms = [_terms(reduce) for reduce, _ in domain.trace.reductions]
    if 2 * row > schedule.lanes:
        return False
    if domain.trace.heavy > 0:
        return all(n <= MOST_INTERLEAVED for n in terms)
    is_many = all(MOST_INTERLEAVED < n <= _MOST_IN_A_ROW for n in terms)
    return is_many and row < MOST_INTERLEAVED and not _are_columns_of_rows(schedule)


def _are_columns_of_rows(schedule: NestSchedule) -> bool:
    """Whether lanes over short rows read what they sum as it lies: columns of a small matrix for
    each row."""
    *outer, last = schedule.domain.variables
    return any(
        read.position.depends_on(last)
        and any(read.position.depends_on(v) for v in outer)
        and all(read.position.coefficient(v) != 1 for v in read.reduced)
        for read in schedule.domain.trace.reads
        if read.reduced
    )


def _visits(vectors: int, unroll: int, *, in_one: bool) -> int:
    """Of rows' addresses by batches of vectors; to find the address costs as much as a vector."""
    whole, rest = divmod(vectors, unroll)
    return whole * (unroll + 1) + (unroll + 1 if rest and in_one else rest + 1 if rest else 0)


def _strip_tail(schedule: NestSchedule, *, in_one: bool, is_row: bool) -> dict[str, object]:
    """What becomes of the lanes after the last full batch of a strip."""
    vector = schedule.vector
    assert vector is not None, "a strip has lanes"
    rest = schedule.domain.extents[vector.loop] % vector.step
    is_plain = is_row or not schedule.domain.trace.reductions
    if rest and is_plain and schedule.may_run_again(vector.vectors):
        return {"tail": Tail.OVERLAPPING}
    if rest and in_one:
        return {"tail": Tail.PREDICATED}
    vectors = -(-rest // vector.lanes)
    return {"tail": Tail.MASKED if rest else Tail.NONE, "tail_step": vectors * vector.lanes}


# -- rows ------------------------------------------------------------------------------------


def _why_lanes_are_inside(schedule: NestSchedule) -> tuple[str, bool]:
    """Whether lanes should run inside the reductions rather than over the last dimension, and
    why."""
    trace, last = schedule.domain.trace, schedule.domain.variables[-1]
    along, across, gathered = 0, 0, 0
    for read in trace.reads:
        if not any(read.position.depends_on(v) for v in read.reduced):
            continue
        step = read.position.coefficient(last)
        inner = [v for v in read.reduced if read.position.coefficient(v) == 1 and v.high > 0]
        if not read.position.depends_on(last):
            continue
        # Of sums within sums, those that the read is a term of.
        terms = prod(v.high + 1 for v in read.reduced if read.position.depends_on(v))
        if step != 1 and inner and terms >= _MANY_TERMS:
            along += 1
            gathered += terms
        elif not _stays_for_many(read):
            across += 1
    if along <= across or _rest(schedule) > _GATHERED * gathered:
        return "", False
    remark = f"lanes: inside the reductions, {along} reads run along them, {across} across"
    return remark, all(reducer_of(r).reassociates for r, _ in trace.reductions)


def _rest(schedule: NestSchedule) -> int:
    """What lanes over the last dimension would save of a result's cost: all but the terms of its
    reductions, which is done for one result at a time where lanes run inside of these.
    """
    trace = schedule.domain.trace
    lanes = min(schedule.lanes, schedule.domain.extents[-1])
    terms = trace.weight_along({v for read in trace.reads for v in read.reduced})
    return (trace.weight - terms) * (lanes - 1) // lanes


def _stays_for_many(read: Read) -> bool:
    """Whether one element is read for many terms in a row, as a norm's factor for a channel."""
    terms = 1
    for v in reversed(read.reduced):
        if read.position.depends_on(v):
            terms *= _stay(read.position, v)
            break
        terms *= v.high + 1
    return terms >= _MANY_TERMS


def _stay(position: Expr, variable: Variable) -> int:
    """Steps of a variable for which a position that depends on it stays as it is: those that a
    quotient takes together, where a reshape has joined groups with what is in them.
    """
    steps = []
    for atom in position.terms:
        if not of(atom).depends_on(variable):
            continue
        if not isinstance(atom, DivMod) or not atom.is_quotient:
            return 1
        step = atom.inner.coefficient(variable)
        steps.append(atom.divisor // abs(step) if step else 1)
    return min(steps, default=1)


def _why_rows_are_turned(schedule: NestSchedule) -> str:
    """Why lanes may take a row each, all read from end to end together; "" if they may not."""
    domain, lanes = schedule.domain, schedule.lanes
    last, trace = domain.variables[-1], domain.trace
    if (
        not 2 * lanes <= domain.extents[-1]
        or lanes > MOST_LANES
        or trace.conditions
        or not trace.reductions
    ):
        return ""
    reduces = [reduce for reduce, _ in trace.reductions]
    # What all rows are multiplied by (a vector) is the same number for all lanes.
    along = [r for r in trace.reads if r.reduced and r.position.depends_on(last)]
    arrays = len({r.source for r in along})
    if not along:
        return ""
    lengths = [prod(v.high + 1 for v in read.reduced) for read in along]
    weight = trace.weight_along({v for read in along for v in read.reduced})
    for read, length in zip(along, lengths, strict=True):
        if not is_short_row(reduces, length, weight, arrays):
            return ""
        if len(read.reduced) > 1 or read.position.coefficient(read.reduced[0]) != 1:
            return ""
        if (read.position.coefficient(last) or 0) < 2:
            return ""
    return f"lanes: a row of {max(lengths)} elements each, turned in registers"


def _gathered(schedule: NestSchedule) -> NestSchedule:
    """No more lanes than one instruction gathers where all that is read and written lies apart, as
    columns at an image's border: more are as many gathers, and LLVM takes 0.2 ms for each of 64.
    One by one where code has to be short, as such a border's: each lane is loaded and stored for
    itself in any case.
    """
    domain, last = schedule.domain, schedule.domain.variables[-1]
    most = 1 if schedule.is_small and not domain.trace.carried else MOST_LANES
    if schedule.lanes <= most or domain.trace.reductions:
        return schedule
    places = [r.position for r in domain.trace.reads if r.position.depends_on(last)]
    places += [o.place(domain.own_index) for o in domain.outputs]
    if any(place.coefficient(last) in (1, -1) for place in places):
        return schedule
    why = "no two lie together" if most == 1 else "as many as are gathered at once"
    return replace(schedule, lanes=most).because(f"lanes: {most} of {schedule.lanes}, {why}")


def _narrowed(schedule: NestSchedule) -> NestSchedule:
    """Shorter vectors for short loops, unless reductions that go along lanes want full ones."""
    domain, full = schedule.domain, schedule.lanes
    length, last, lanes = domain.extents[-1], domain.variables[-1], full
    if not domain.trace.reductions:
        lanes = fitting(length, full)
    elif all(any(e.depends_on(last) for e in index) for _, index in domain.trace.reductions):
        lanes = narrowed(length, full)
    if lanes == full:
        return schedule
    remark = f"lanes: {lanes} of {full}, which take a loop of {length}"
    return replace(schedule, lanes=lanes).because(remark)


def _paired(schedule: NestSchedule) -> NestSchedule:
    """Values of two registers each, where the numbers of long formulas have no room in registers:
    each is read once for both, and while one half waits the other goes on.
    """
    domain, lanes = schedule.domain, schedule.lanes
    has_room = schedule.machine.registers >= _ROOM or schedule.is_small
    is_plain = not domain.trace.heavy and domain.weight <= LIGHT
    if has_room or is_plain or domain.trace.reductions or domain.outer:
        return schedule
    length = domain.extents[-1]
    # Heavy code has one body, in which pairs would be masked where single registers are not.
    is_masked = domain.weight > LIGHT and length % (2 * lanes) and not length % lanes
    if length < _PAIRS * 2 * lanes or is_masked:
        return schedule
    remark = f"lanes: two registers a value, for {schedule.machine.registers} hold few numbers"
    return replace(schedule, lanes=2 * lanes).because(remark)


# -- tiles -----------------------------------------------------------------------------------


def _tiled(schedule: NestSchedule) -> NestSchedule | None:
    """With the loop along which reads that are strided for the lanes, or begin where run-time
    values say, are contiguous as a tile.
    """
    domain = schedule.domain
    if domain.trace.reductions or domain.outer:
        return None
    last = domain.variables[-1]
    lanes = min(schedule.lanes, 16)
    counts: dict[int, int] = {}
    for read in domain.trace.reads:
        step = read.position.coefficient(last)
        is_apart = rests_on_values(read.position) if step is None else abs(step) > 1
        if not is_apart or read.dtype.is_complex:
            continue
        for k, v in enumerate(domain.variables[:-1]):
            if read.position.coefficient(v) == 1 and domain.extents[k] >= lanes:
                counts[k] = counts.get(k, 0) + 1
    if not counts or domain.extents[-1] < 4:
        return None
    tile = max(counts, key=lambda k: counts[k])
    extent = domain.extents[tile]
    tail = Tail.OVERLAPPING if extent % lanes else Tail.NONE
    schedule = replace(schedule, lanes=lanes).with_axis(tile, lanes=lanes, step=lanes, tail=tail)
    schedule = _over(schedule, lanes)
    schedule = schedule.because(f"tile: loop {tile} by {lanes}, {counts[tile]} reads run along it")
    return _squares(schedule, tile) or schedule


def _squares(schedule: NestSchedule, tile: int) -> NestSchedule | None:
    """Blocks of tiles where the results are large and whole lines: other loops, then blocks of the
    last one and of the tile's, each a unit.
    """
    domain, lanes, last = schedule.domain, schedule.lanes, len(schedule.domain.extents) - 1
    large, line_bytes = schedule.machine.second_cache.bytes, schedule.machine.line_bytes
    if not all(_fills_lines(schedule, o) for o in domain.outputs):
        return None
    rows, columns = (n // lanes * lanes for n in _BLOCK_SIDES)
    if any(columns % (line_bytes // o.array.dtype.item_bytes) for o in domain.outputs):
        return None

    def blocks(loop: int, size: int) -> tuple[Axis, Axis]:
        axis, extent = schedule.outer(loop), domain.extents[loop]
        units = replace(
            axis, role=Role.PARALLEL, step=size, lanes=1,
            tail=Tail.SHORT if extent % size else Tail.NONE,
        )  # fmt: skip
        tail = Tail.OVERLAPPING if extent % lanes else Tail.NONE
        return units, replace(axis, extent=size, of=extent, tail=tail)

    others = [replace(a, role=Role.PARALLEL) for a in schedule.axes if a.loop not in (tile, last)]
    column_blocks, column = blocks(last, columns)
    row_blocks, row = blocks(tile, rows)
    axes = (*others, column_blocks, row_blocks, row, column)
    remark = f"squares: results of {large} bytes or more, whole lines"
    return replace(schedule, axes=axes).because(remark)


def _fills_lines(schedule: NestSchedule, output: Output) -> bool:
    """Whether a result's rows begin and end with lines, and it does not stay in the cache that it
    passes.
    """
    domain, machine = schedule.domain, schedule.machine
    size_bytes, line_bytes = output.array.dtype.item_bytes, machine.line_bytes
    large = machine.second_cache.bytes
    if output.alias is not None or output.array.size * size_bytes < large:
        return False
    if domain.extents[-1] * size_bytes % line_bytes or domain.extents[-1] < schedule.lanes:
        return False
    place = output.place(domain.own_index)
    *outer, last = domain.variables
    steps = [place.coefficient(v) for v in outer]
    return (
        place.coefficient(last) == 1
        and place.constant * size_bytes % line_bytes == 0
        and all(k is not None and k * size_bytes % line_bytes == 0 for k in steps)
    )
