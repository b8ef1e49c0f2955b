"""Parts: a kernel's results cut into boxes, each with the loops that suit it.

outputs --parts_of--> [Part]: a box of index space, its loops, what is parallel, what is lanes
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import field
from math import prod

from hlo.backend.codegen import indexing, spaces
from hlo.backend.codegen.elemental import Elemental
from hlo.backend.codegen.indexing import Expr, Index, Variable
from hlo.backend.codegen.lane_loops import fitting, narrowed
from hlo.backend.codegen.trace import Trace, trace
from hlo.backend.emitters import reducers
from hlo.backend.kernels.outputs import Output
from hlo.ir.instruction import Instruction
from hlo.records import dataclass

_BOXES = 12  # at most so many copies of the code for the sides of seams
_BOX_OPS = 300  # and at most so many ops in all of them together
_BLOCK = 4096  # elements of the last dimension that one unit takes
_UNITS = 64  # enough parallel units
_BLOCK_SIDES = (256, 64)  # elements of a block of squares along and across the operand's rows
_STREAMED_BYTES = 2 << 20  # results from this size on do not stay in the cache that they pass
LEAST_STREAM_BYTES = 1 << 18  # of arrays that come from memory, or go there
LINE_BYTES = 64
_MOST_ROWS = 4  # side by side: their partial results share the registers
_ROWS_WEIGHT = 160  # of the code of rows side by side
_ROWS_BYTES = 1 << 13  # of an operand's rows side by side: more streams than pages cost more
_STORED_ROWS_BYTES = 1 << 11  # the same where they are stored side by side too
_TREE = 40  # cycles from the last step of a fold to its result
_PER_CYCLE = 2  # vector operations
_LIGHT = 60  # the weight of an expression of which code may be there several times
_SHORT_FOLD = 16  # elements per row that leave lanes idle, or cost a tree of lanes for little
_STRIP_ELEMENTS = 1 << 16  # of a strip's rows: what its stages share stays in the cache


@dataclass(frozen=True, slots=True)
class Squares:
    """Blocks of a part with a tile loop: `rows` steps of that loop by `columns` of the last."""

    rows: int
    columns: int


@dataclass(slots=True)
class Part:
    """low + [0, dims): the box. Loops: extents[:prefix] are parallel, then blocks of the last, ...

    outputs: written in the innermost loop; outer: written where their fewer dimensions are fixed.
    in_lanes: the last loop runs over lanes. blocks: units per prefix index; block: elements.
    order: the dimensions as loops run over them (None: as they are). strip: lanes run over the last
    dimension that all folds keep, whose loop is `lane_loop`; the dimensions that they fold follow.
    in_one: the lane loop has one body, whose vectors are all masked, as the last one has to be.
    tile: the loop whose steps are taken `lanes` at a time, to turn squares in registers; squares:
    how these are ordered where they are many.
    rows: how many steps of the last loop around the lanes are taken side by side.
    streams: folds over columns walk through memory row by row (kernels/streams.py).
    """

    outputs: list[Output]
    outer: list[Output]
    low: tuple[int, ...]
    dims: tuple[int, ...]
    extents: tuple[int, ...] = ()
    prefix: int = 0
    in_lanes: bool = True
    lanes: int = 1
    order: tuple[int, ...] | None = None
    strip: bool = False
    lane_loop: int = -1
    tile: int | None = None
    squares: Squares | None = None
    rows: int = 1
    block: int = 0
    copies: int = 1
    in_one: bool = False
    streams: bool = False
    trace: Trace = field(default_factory=Trace)
    variables: list[Variable] = field(default_factory=list)

    @property
    def size(self) -> int:
        return prod(self.dims)

    @property
    def weight(self) -> int:
        """What an element costs, in plain ops."""
        return self.trace.ops + 8 * self.trace.heavy

    @property
    def in_turn(self) -> bool:
        """Whether rows that are folded side by side are stored one after the other.

        Fewer streams to memory; but what all rows read is read, and converted, for each of them.
        """
        if self.rows == 1 or self.outputs[0].memory.size_bytes < LEAST_STREAM_BYTES:
            return False
        return self.may_take_turns(self.rows)

    def may_take_turns(self, rows: int) -> bool:
        """Whether rows share nothing, and none that is computed again may lie over its operand."""
        row, lane = self.variables[self.loops - 1], self.variables[-1]
        return self.extents[self.loops - 1] % rows == 0 and not any(
            r.position.depends_on(lane) and not r.position.depends_on(row) for r in self.trace.reads
        )

    @property
    def is_light(self) -> bool:
        """Whether a few short vectors cost no more than a masked one."""
        return self.weight <= _LIGHT and not self.trace.reductions

    @property
    def blocks(self) -> int:
        return -(-self.extents[self.lane_loop] // self.block) if self.block else 1

    @property
    def units(self) -> int:
        if self.squares is not None:
            return prod(self.block_extents())
        return prod(self.rounds(k) for k in range(self.prefix)) * self.blocks

    def block_extents(self) -> tuple[int, ...]:
        """Of a part of squares: its other loops, then blocks of the last one and of the tile's."""
        assert self.squares is not None
        assert self.tile is not None
        others = [n for k, n in enumerate(self.extents[:-1]) if k != self.tile]
        columns = -(-self.extents[-1] // self.squares.columns)
        return (*others, columns, -(-self.extents[self.tile] // self.squares.rows))

    @property
    def loops(self) -> int:
        """How many loops there are around the lanes."""
        return len(self.extents) - self.in_lanes

    def rounds(self, k: int) -> int:
        """How often loop k runs."""
        n = self.extents[k]
        if k == self.tile:
            return -(-n // self.lanes)
        return n if k != self.loops - 1 else -(-n // self.rows)

    def index(self, variables: list[Expr]) -> Index:
        """The result's index for values of the loop variables."""
        order = self.order or tuple(range(len(self.dims)))
        inner = indexing.reshaped(tuple(variables), self.extents, [self.dims[d] for d in order])
        return self._placed(inner)

    def _placed(self, inner: Index) -> Index:
        """The result's index for positions in the box, in the loops' order."""
        order = self.order or tuple(range(len(self.dims)))
        return tuple(inner[order.index(d)] + n for d, n in enumerate(self.low))


def parts_of(elemental: Elemental, outputs: list[Output]) -> list[Part]:
    """Groups of outputs with equal (or leading) dimensions, each cut into boxes."""
    found: list[Part] = []
    for primary, outer in _groups(outputs):
        whole = Part(primary, outer, (0,) * len(primary[0].dims), primary[0].dims)
        if whole.size:
            found += [_planned(elemental, box) for box in _boxes(elemental, whole)]
    return found


def _groups(outputs: list[Output]) -> list[tuple[list[Output], list[Output]]]:
    left = sorted(outputs, key=lambda o: (-prod(o.dims), -len(o.dims)))
    groups = []
    while left:
        dims = left[0].dims
        same = [o for o in left if o.dims == dims]
        outer = [o for o in left if o.dims != dims and o.rows == dims[: len(o.rows)]]
        outer = [o for o in outer if o.alias is None]
        groups.append((same, outer))
        left = [o for o in left if o not in same and o not in outer]
    return groups


def traced(elemental: Elemental, part: Part, index: Index) -> Trace:
    """What the part's results need at an index."""
    roots = [(o.source, index, o.path) for o in part.outputs]
    roots += [(o.source, o.row_index(index), o.path) for o in part.outer]
    return trace(elemental, roots)


# -- boxes -----------------------------------------------------------------------------------


def _boxes(elemental: Elemental, whole: Part) -> list[Part]:
    """The part cut where a condition changes, if that takes few boxes and repeats no reduction."""
    variables = [
        Variable(f"d{k}", n, n + size - 1)
        for k, (n, size) in enumerate(zip(whole.low, whole.dims, strict=True))
    ]
    index = tuple(indexing.of(v) for v in variables)
    found = whole.trace = traced(elemental, whole, index)
    whole.variables = variables
    cuts = _cuts(found, variables)
    count = prod(len(c) + 1 for c in cuts)
    ops = found.ops + len(found.reads)
    if count == 1 or count > _BOXES or count * ops > _BOX_OPS or found.reductions or whole.outer:
        return [whole]
    spans = [
        list(itertools.pairwise([v.low, *sorted(c), v.high + 1]))
        for v, c in zip(variables, cuts, strict=True)
    ]
    boxes = []
    for box in itertools.product(*spans):
        low = tuple(a for a, _ in box)
        boxes.append(Part(whole.outputs, [], low, tuple(b - a for a, b in box)))
    # A cut may uncover another one (a pad of a concatenate).
    return [inner for box in boxes for inner in ([box] if count == 1 else _recut(elemental, box))]


def _recut(elemental: Elemental, box: Part) -> list[Part]:
    variables = [
        Variable(f"d{k}", n, n + size - 1)
        for k, (n, size) in enumerate(zip(box.low, box.dims, strict=True))
    ]
    found = traced(elemental, box, tuple(indexing.of(v) for v in variables))
    if not any(_cuts(found, variables)):
        return [box]
    return _boxes(elemental, box)


def _cuts(found: Trace, variables: list[Variable]) -> list[set[int]]:
    """Per dimension, the positions at which some condition begins or ceases to hold."""
    cuts: list[set[int]] = [set() for _ in variables]
    for condition in found.conditions:
        e = condition.index
        if len(e.terms) != 1:
            continue
        ((atom, k),) = e.terms.items()
        if not isinstance(atom, Variable) or atom not in variables:
            continue
        low, high = condition.low - e.constant, condition.high - e.constant
        if k < 0:
            k, low, high = -k, -high, -low
        for cut in (-(-low // k), high // k + 1):
            if atom.low < cut <= atom.high:
                cuts[variables.index(atom)].add(cut)
    return cuts


# -- loops -----------------------------------------------------------------------------------


def _planned(elemental: Elemental, part: Part) -> Part:
    """Loop extents, lanes, units and unrolling of a box."""

    kept = _choose_order(elemental, part)
    dims = [part.dims[d] for d in part.order or range(len(part.dims))]

    def met(inner: Index) -> list[Expr]:
        index = part._placed(inner)
        found = part.trace = traced(elemental, part, index)
        places = [indexing.linear(index, o.frame) for o in part.outputs]
        places += [indexing.linear(o.row_index(index), o.dims) for o in part.outer]
        return found.expressions() + places

    part.extents, part.variables = spaces.factored_with(dims, met)
    if len(part.variables) != len(part.extents):
        part.variables = spaces.variables_of(part.extents)
        part.trace = traced(elemental, part, part.index([indexing.of(v) for v in part.variables]))
    part.lanes = elemental.lanes
    if _choose_strip(part, kept):
        return part
    part.in_lanes = bool(part.extents) and not _is_row_fold(part, elemental)
    _choose_tile(elemental, part)
    if part.in_lanes and part.tile is None:
        _choose_lanes(part)
    _choose_units(part)
    return part


def _choose_order(elemental: Elemental, part: Part) -> int:
    """The dimensions that all folds keep come first; their number of elements, 0 if they differ."""
    variables, found = part.variables, part.trace
    if len(variables) != len(part.dims):  # not looked at yet
        variables = [Variable(f"d{k}", 0, n - 1) for k, n in enumerate(part.dims)]
        found = traced(elemental, part, part._placed(tuple(indexing.of(v) for v in variables)))
    sets = {
        tuple(d for d, v in enumerate(variables) if any(e.depends_on(v) for e in index))
        for _, index in found.reductions
    }
    long = [d for d, n in enumerate(part.dims) if n > 1]
    if len(sets) != 1 or not all(reducers.reducer(r).reassociates for r, _ in found.reductions):
        return 0
    (kept,) = sets
    if not kept or set(kept) == set(long):
        return 0
    if list(kept) != long[: len(kept)]:
        part.order = (*kept, *(d for d in range(len(part.dims)) if d not in kept))
    return prod(part.dims[d] for d in kept)


def _choose_strip(part: Part, kept: int) -> bool:
    """Lanes over what folds keep: where that is contiguous, or what they fold is very short."""
    count = next((c for c in range(1, len(part.extents)) if prod(part.extents[:c]) == kept), 0)
    if not count or part.extents[count - 1] < part.lanes:
        return False
    folded = prod(part.extents[count:])
    place = part.outputs[0].place(part.index([indexing.of(v) for v in part.variables]))
    is_contiguous = place.coefficient(part.variables[count - 1]) == 1
    if not is_contiguous and (folded > _SHORT_FOLD or part.order):
        return False
    part.strip, part.lane_loop, part.prefix = True, count - 1, count - 1
    vectors = -(-part.extents[count - 1] // part.lanes)
    most = max(1, _STRIP_ELEMENTS // (folded * part.lanes)) if is_contiguous else 1 + (folded > 8)
    part.copies = min(4, most, vectors)
    step = part.copies * part.lanes
    units = prod(part.extents[: count - 1])
    wanted = -(-_UNITS // units)
    part.block = max(step, part.extents[count - 1] // wanted // step * step)
    if part.block >= part.extents[count - 1]:
        part.block = 0
    return True


def _is_row_fold(part: Part, elemental: Elemental) -> bool:
    """Whether lanes should run inside the reductions rather than over the last dimension."""
    last = part.variables[-1]
    along, across = 0, 0
    for read in part.trace.reads:
        if not any(read.position.depends_on(v) for v in read.folded):
            continue
        step = read.position.coefficient(last)
        inner = [v for v in read.folded if read.position.coefficient(v) == 1 and v.high > 0]
        if not read.position.depends_on(last):
            continue
        if step != 1 and inner and prod(v.high + 1 for v in read.folded) >= 8:
            along += 1
        else:
            across += 1
    if along <= across:
        return False
    return all(reducers.reducer(r).reassociates for r, _ in part.trace.reductions)


def _fixed_by(part: Part, index: Index) -> int:
    """How many of the outer loops an index needs."""
    needed = [k for k, v in enumerate(part.variables) if any(e.depends_on(v) for e in index)]
    return max(needed, default=-1) + 1


def _choose_tile(elemental: Elemental, part: Part) -> None:
    """The loop along which reads that are strided for the lanes are contiguous."""
    if not part.in_lanes or part.trace.reductions or part.outer:
        return
    last = part.variables[-1]
    lanes = min(part.lanes, 16)
    counts: dict[int, int] = {}
    for read in part.trace.reads:
        step = read.position.coefficient(last)
        if step is None or abs(step) < 2 or read.dtype.is_complex:
            continue
        for k, v in enumerate(part.variables[:-1]):
            if read.position.coefficient(v) == 1 and part.extents[k] >= lanes:
                counts[k] = counts.get(k, 0) + 1
    if counts and part.extents[-1] >= 4:
        part.tile = max(counts, key=lambda k: counts[k])
        part.lanes = lanes
        part.squares = _squares(part)


def _choose_lanes(part: Part) -> None:
    """Shorter vectors for short loops, unless folds that go along lanes want full ones."""
    length, last = part.extents[-1], part.variables[-1]
    if not part.trace.reductions:
        part.lanes = fitting(length, part.lanes)
    elif all(any(e.depends_on(last) for e in index) for _, index in part.trace.reductions):
        part.lanes = narrowed(length, part.lanes)


def _squares(part: Part) -> Squares | None:
    """Blocks where the results are large and whole lines."""
    assert part.tile is not None
    if not all(_fills_lines(part, o) for o in part.outputs):
        return None
    rows, columns = (n // part.lanes * part.lanes for n in _BLOCK_SIDES)
    return Squares(rows, columns)


def _fills_lines(part: Part, output: Output) -> bool:
    """Whether a large result's rows begin and end with lines."""
    size_bytes = output.memory.dtype.item_bytes
    if output.alias is not None or output.memory.size * size_bytes < _STREAMED_BYTES:
        return False
    if part.extents[-1] * size_bytes % LINE_BYTES or part.extents[-1] < part.lanes:
        return False
    place = output.place(part.index([indexing.of(v) for v in part.variables]))
    *outer, last = part.variables
    steps = [place.coefficient(v) for v in outer]
    return (
        place.coefficient(last) == 1
        and place.constant * size_bytes % LINE_BYTES == 0
        and all(k is not None and k * size_bytes % LINE_BYTES == 0 for k in steps)
    )


def _choose_units(part: Part) -> None:
    if part.squares is not None:
        return
    loops = part.loops
    levels = [
        _fixed_by(part, index)
        for reduce, index in part.trace.reductions
        if prod(reduce.operands[0].shape.dims) > prod(reduce_dims(reduce)) * 8
    ]
    outer = [
        _fixed_by(part, o.row_index(part.index([indexing.of(v) for v in part.variables])))
        for o in part.outer
    ]
    shared = [n for n in levels if n <= loops] if part.in_lanes else levels
    part.rows = _rows(part, levels)
    most = min([loops, *shared, *outer])
    units = 1
    while part.prefix < most and (units < _UNITS or part.prefix == 0):
        units *= part.rounds(part.prefix)
        part.prefix += 1
    if not part.in_lanes:
        return
    length, lanes = part.extents[-1], part.lanes
    vertical = [n for n in levels if n > loops]
    part.copies = _copies(part, -(-length // lanes), is_fold=bool(vertical))
    is_long = part.weight > _LIGHT and part.tile is None and not vertical
    part.in_one = is_long and length > lanes and length % lanes > 0
    if shared or outer:
        return
    if vertical and part.prefix == loops:
        part.block = part.copies * lanes
    elif length >= 2 * _BLOCK and part.prefix == loops and units < _UNITS:
        part.block = _BLOCK // (part.copies * lanes) * part.copies * lanes
    if part.block >= length:
        part.block = 0


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
    units = min(prod(part.extents[:loops]) // _UNITS, part.extents[loops - 1])
    rows = 1
    while waits > rows * work // 8 and rows < _MOST_ROWS:
        twice = 2 * rows
        is_apart = not part.in_lanes or part.may_take_turns(twice)
        most_bytes = _ROWS_BYTES if is_apart else _STORED_ROWS_BYTES
        if twice > units or twice * part.weight > _ROWS_WEIGHT or twice * row_bytes > most_bytes:
            break
        rows = twice
    return rows


def _steps(index: Iterable[Expr], fixed: set[Variable]) -> int:
    """How many values an index takes while some variables stay."""
    return prod(v.high - v.low + 1 for v in indexing.loop_variables(index) if v not in fixed)


def reduce_dims(reduce: Instruction) -> tuple[int, ...]:
    """Dimensions of the result of a reduce (of each of its results)."""
    shape = reduce.shape
    return shape.elements[0].dims if shape.is_tuple else shape.dims


def _copies(part: Part, vectors: int, *, is_fold: bool) -> int:
    """Vectors per round of the lane loop; short folds written out in each are work enough."""
    if part.tile is not None:
        return 1
    if is_fold:
        return max(1, min(8, vectors))
    wanted = 4 if part.weight <= 4 else 2 if part.weight <= _LIGHT else 1
    steps = _steps_written_out(part)
    if steps >= 4:
        wanted = min(wanted, 8 // steps)
    return max(1, min(wanted // part.rows, vectors))


def _steps_written_out(part: Part) -> int:
    """Of the longest fold that each lane has of its own."""
    lane = part.variables[-1]
    own = [r for r, at in part.trace.reductions if any(e.depends_on(lane) for e in at)]
    return max((prod(r.operands[0].shape.dims) // prod(reduce_dims(r)) for r in own), default=1)
