"""Neighbour lookups: what lies side by side in an array is read by one load for each lane.

    gather(x, i), gather(x, i + 1)  --looked_up-->  lanes of x[i], and of x[i + 1]

A gather takes as long as a load for each lane, and so does one load of several elements, which are
turned in registers: two neighbours are read in half the time, four in a third (Zen 4; of two words:
27 cycles for 16 lanes instead of 51; of four: 35 instead of 103). Whether the lanes' places are as
far apart as they should be, and none is clamped, is tested in the run; where one is, each lookup is
made for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.neighbour_places import neighbours
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import access, small_tables, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.open_loops import either
from hlo.backend.lanes.types import Lanes
from hlo.indexing.affine import Expr, Index, stride
from hlo.indexing.maps import cases
from hlo.ir.instruction import Instruction

_PART_BYTES = 16  # A load for one lane at most; within as many, registers are turned quickly.
_LANES = (4, 8, 16)  # Fewer are loaded one by one, more of them in parts.
_WORDS = frozenset({"float", "double", "i32", "i64"})

# Lookups with how many elements further than the first they are, in ascending order.
_Run = tuple[tuple[Instruction, int], ...]


def looked_up(elemental: Elemental, gather: Instruction, index: Index) -> Lanes | None:
    """A gather's elements at an index; None where no other looks up its neighbours there."""
    if elemental.guards:
        return None
    nest = elemental.nest
    with nest.at(nest.depth) as level:
        if ("neighbours", gather, index) not in level.memo:
            found = _run_at(elemental, gather, index)
            if found is None:
                return None
            for member, lanes in found.items():
                level.memo["neighbours", member, index] = lanes
        return level.memo["neighbours", gather, index]  # type: ignore[return-value]  # lanes


def _run_at(
    elemental: Elemental, gather: Instruction, index: Index
) -> dict[Instruction, Lanes] | None:
    """The elements of a gather and of its neighbours."""
    run = _run_of(elemental, gather)
    if len(run) < 2:
        return None
    places = [_place(elemental, member, index) for member, _ in run]
    found = [place for place in places if place is not None]
    if len(found) < len(run):
        return None
    memory, positions = found[0][0], [position for _, position in found]
    steps = [step for _, step in run]
    tests = _tests(elemental, memory, positions, steps)
    if tests is None:
        return None
    lanes = _loaded(elemental, memory, positions, steps, tests)
    return {member: own for (member, _), own in zip(run, lanes, strict=True)}


def _run_of(elemental: Elemental, gather: Instruction) -> _Run:
    """The lookups that a load for the gather's lanes may serve."""
    root = elemental.nest.path[0]
    if ("run", gather) not in root.memo:
        distances = neighbours(gather)
        ours = [(d, m) for m, d in distances.items() if m not in elemental.saved]
        root.memo["run", gather] = _cut(gather, sorted(ours, key=lambda pair: pair[0]))
    return root.memo["run", gather]  # type: ignore[return-value]  # a run under this key


def _cut(gather: Instruction, order: list[tuple[int, Instruction]]) -> _Run:
    """Of all neighbours those that one load holds with a gather, counted from the first of them."""
    most = _PART_BYTES // gather.shape.dtype.item_bytes
    run: list[tuple[Instruction, int]] = []
    for distance, member in order:
        if run and distance - run[0][1] >= most:
            if any(m is gather for m, _ in run):
                break
            run = []
        run.append((member, distance))
    return tuple((m, d - run[0][1]) for m, d in run)


def _place(elemental: Elemental, gather: Instruction, index: Index) -> tuple[Memory, Expr] | None:
    """Where a lookup's elements lie, if each lane looks for itself."""
    table = gather.operands[0]
    if not table.shape.size:
        return None
    (case,) = cases(gather, index, elemental.starts(gather))
    found = elemental.place_in_memory(table, case.index)
    if found is None:
        return None
    memory, position = found
    element = types.storage_scalar(memory.dtype)
    if element not in _WORDS or memory.dtype.is_complex or position.lanes not in _LANES:
        return None
    if stride(position) is not None or access.mask_of(position) is not None:
        return None
    is_named = memory.leaf >= 0  # Others are written by the kernel itself.
    if is_named and small_tables.holds(elemental.nest, memory.size, position, element):
        return None
    return found


def _tests(
    elemental: Elemental, memory: Memory, positions: list[Expr], steps: list[int]
) -> list[Value] | None:
    """Lanes of i1: whether the positions are as far apart as the steps, and the load ends in the
    array; None where some never are."""
    w, nest, first = elemental.nest.w, elemental.nest, positions[0]
    tests = []
    for position, step in zip(positions[1:], steps[1:], strict=True):
        apart = position - first - step
        if apart.is_constant and apart.constant:
            return None
        if not apart.is_constant:
            lanes = nest.lane_values(apart, first.lanes)
            tests.append(w.compare("icmp eq", lanes, w.zero(lanes.type)))
    last = memory.size - _width(steps)
    if last < 0:
        return None
    if steps[-1] + 1 < _width(steps) and first.high > last:
        lanes = nest.lane_values(first, first.lanes)
        tests.append(w.compare("icmp sle", lanes, w.int(last, lanes.type)))
    return tests


def _width(steps: Sequence[int]) -> int:
    """Elements of a load that reaches to the last step: a power of two."""
    return 1 << steps[-1].bit_length()


def _loaded(
    elemental: Elemental,
    memory: Memory,
    positions: list[Expr],
    steps: list[int],
    tests: list[Value],
) -> list[Value]:
    """The lanes of all lookups: of one load for each lane where all tests hold."""
    nest, w = elemental.nest, elemental.nest.w

    def together() -> list[Value]:
        return _values(elemental, memory, _columns(elemental, memory, positions[0], steps))

    def alone() -> list[Value]:
        found = [access.load(nest, memory, position, None) for position in positions]
        return [lanes for lanes in found if isinstance(lanes, Value)]

    if not tests:
        return together()
    holds = tests[0]
    for test in tests[1:]:
        holds = w.binary("and", holds, test)
    bits = w.cast("bitcast", holds, f"i{holds.lanes}")
    return either(nest, w.compare("icmp eq", bits, w.int(-1, bits.type)), together, alone)


def _values(elemental: Elemental, memory: Memory, raw: list[Value]) -> list[Value]:
    nest = elemental.nest
    found = [types.decoded(nest.w, nest.target, lanes, memory.dtype) for lanes in raw]
    return [lanes for lanes in found if isinstance(lanes, Value)]


def _columns(elemental: Elemental, memory: Memory, first: Expr, steps: list[int]) -> list[Value]:
    """Lanes of the elements so many steps behind the first ones.

    Loads are put together so that registers are turned within each 16 bytes of them: a part.
    """
    w, element = elemental.nest.w, types.storage_scalar(memory.dtype)
    width, part = _width(steps), _PART_BYTES // memory.dtype.item_bytes
    base, offsets = access.lane_offsets(elemental.nest, memory, first, element)

    def load(lane: int) -> Value:
        offset = w.extract(offsets, lane)
        if offset.type != "i64":
            offset = w.cast("sext", offset, "i64")
        return w.load(w.address(base, offset, element), vector_of(element, width), 1)

    loaded = [load(lane) for lane in range(first.lanes)]
    runs = part // width  # that fill a part
    parts = range(0, first.lanes, part)
    rows = [
        w.end_to_end([loaded[p + k + n] for p in parts for n in range(runs)])
        for k in range(0, part, runs)
    ]
    return [_column(w, rows, step, width, part) for step in steps]


def _column(w: Writer, rows: list[Value], step: int, width: int, part: int) -> Value:
    """Of two or four rows whose parts hold runs of so many elements, the ones at a step of each."""
    if len(rows) > 2:  # each part is one run: a half of each of two, in turns, and then of those
        half, step = step // 2 * 2, step % 2
        turns = [(half + n, row) for n in range(2) for row in range(2)]
        rows = [_picked(w, a, b, turns, part) for a, b in zip(rows[::2], rows[1::2], strict=True)]
        order = [(2 * step + n, row) for row in range(2) for n in range(2)]
    else:
        order = [(n, row) for row in range(2) for n in range(step, part, width)]
    return _picked(w, rows[0], rows[1], order, part)


def _picked(w: Writer, a: Value, b: Value, order: list[tuple[int, int]], part: int) -> Value:
    """Each part of a vector: elements of the same part of two, by place and by which of them."""
    places = [p + n + row * a.lanes for p in range(0, a.lanes, part) for n, row in order]
    return w.shuffle(a, b, places)
