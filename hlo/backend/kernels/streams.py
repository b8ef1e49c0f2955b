"""Streams: folds over columns that walk through memory row by row.

    for 256 rows:  partial = e;  for 8 rows:  for columns:  partial = f(partial, tree of 8 elements)
                   total = f(total, partial)    sums in twice the digits (carried_sums.py)

Lanes that fold their own columns read a few vectors of a row and then of the next, a page away:
neither the prefetcher nor the table of pages keeps up. Here a unit takes many columns, whose
partial results lie in the first cache, and reads several rows side by side from end to end. Folds
of one shape are made in one pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.joining import Accumulators
from hlo.backend.emitters.reduction import Space, space_of
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.carried_sums import Carried
from hlo.backend.kernels.part import Part, Walk, reduce_dims
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.lane_loops import lane_loop, lane_loop_between
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.folds import BLOCK
from hlo.backend.loops.trace import reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON

_ROWS = 8  # side by side: streams that the prefetcher follows
_COPIES = 2  # vectors of columns at a time
# Streams add in another order than other folds do: no one machine's caches decide. Elements of so
# many bytes come from memory, which takes longer than their code.
_MEMORY_BYTES = COMMON.last_cache.bytes
_NARROW = 8  # vectors: so few columns are read from end to end anyway
_FEWEST_ROWS = 32
# Of the elements of a unit's folds: fewer do not leave the second cache.
_FEWEST_BYTES = COMMON.second_cache.bytes // 8
_PICKED_BYTES = COMMON.last_cache.bytes  # of elements that are picked, slower than to read them
_ROW_BYTES = COMMON.first_cache.bytes // 2  # of all partial results of a unit
_PIECE_BYTES = 1 << 11  # of a row that a unit should read at least
_UNITS = 8
_WEIGHT = 24  # of an element's code: it is there eight times
_COLUMN_WEIGHT = 40  # of what is done again for every eight rows


class Stream(Struct, eq=False):
    """A fold whose results one unit keeps in memory: where, and what its columns start from."""

    reduce: Instruction
    index: Index
    space: Space
    partial: list[Memory]
    total: list[Memory]  # the partial results' own where there is one block of rows only
    surplus: list[Memory]  # of a total in twice the digits
    start: Expr
    is_touched: bool = False
    is_filled: bool = False

    def place(self, index: Index) -> Expr:
        return affine.linear(index, reduce_dims(self.reduce)) - self.start

    def load(self, elemental: Elemental, memories: list[Memory], place: Expr) -> Accumulators:
        """What stands there of all arrays that are folded together."""
        return [access.load(elemental.nest, m, place, None) for m in memories]

    def store(
        self, elemental: Elemental, memories: list[Memory], place: Expr, values: Accumulators
    ) -> None:
        """Of all arrays."""
        for memory, value in zip(memories, values, strict=True):
            access.store(elemental.nest, memory, place, value)

    def lanes_at(self, elemental: Elemental, _: Instruction, indices: list[Index]) -> list[Lanes]:
        """The results, rounded."""
        found = []
        for index in indices:
            place = self.place(index)
            total = self.load(elemental, self.total, place)
            if self.surplus:
                total = [self._carried(elemental, total, place).total(elemental.nest.w)]
            if self.space.reducer.idempotent:
                found.append(self.space.rounded(total)[0])
            else:
                found.append(self.space.with_init(total, types.width(total[0]))[0])
        return found

    def take_partial(self, elemental: Elemental, place: Expr) -> None:
        """total = f(total, partial)"""
        total, partial = (self.load(elemental, m, place) for m in (self.total, self.partial))
        if not self.surplus:
            self.store(elemental, self.total, place, self.space.applied(total, partial))
            return
        carried = self._carried(elemental, total, place).followed(
            elemental.nest.w, partial[0], lambda a, x: self.space.applied([a], [x])[0]
        )
        self.store(elemental, self.total, place, list(carried.fold))
        self.store(elemental, self.surplus, place, list(carried.surplus))

    def _carried(self, elemental: Elemental, total: Accumulators, place: Expr) -> Carried:
        surplus = self.load(elemental, self.surplus, place)
        return Carried(*(tuple(v for a in x for v in types.parts(a)) for x in (total, surplus)))


# -- which parts -------------------------------------------------------------------------------


def plan_streams(part: Part, lanes: int) -> None:
    """Let the part's folds be streams where that suits them: its copies and its blocks."""
    if part.strip or not part.in_lanes or part.tile is not None or part.rows != 1 or part.outer:
        return
    folds = part.trace.reductions
    if not folds or not all(_suits(part, lanes, *fold) for fold in folds):
        return
    if not _is_cheap(part):
        return
    copies = _copies(part)
    block = _block(part, copies)
    if block is not None:
        part.streams, part.copies, part.block, part.in_one = True, copies, block, False
        part.remarks = [r for r in part.remarks if not r.startswith(("vectors:", "block:"))]
        columns = block or part.extents[-1]
        part.remarks.append(
            f"streams: folds over columns, {columns} a unit of {_ROW_BYTES} bytes at most, "
            f"an element's weight is {part.weight} of {_WEIGHT}"
        )


def _suits(part: Part, lanes: int, reduce: Instruction, index: Index) -> bool:
    """Whether a fold's results are the part's elements one by one, its rows long and apart."""
    arrays = reduce.operands[: len(reduce.operands) // 2]
    reducer = reducer_of(reduce)
    is_known = reducer.is_cheap or (reducer.idempotent and len(arrays) > 1)
    if any(x.shape.dtype.is_complex for x in arrays) or not (reducer.reassociates and is_known):
        return False
    last = part.variables[-1]
    own = affine.linear(part.index([affine.of(v) for v in part.variables]), part.dims)
    place = affine.linear(index, reduce_dims(reduce))
    if place.terms != own.terms or place.coefficient(last) != 1:
        return False
    length, rows = part.extents[-1], reduce.operands[0].shape.size // prod(reduce_dims(reduce))
    item_bytes = min(o.shape.dtype.item_bytes for o in reduce.operands)
    if length <= _NARROW * lanes or rows < _FEWEST_ROWS:
        return False
    if len(arrays) > 1 and arrays[0].shape.size * item_bytes < _PICKED_BYTES:
        return False
    return rows * length * item_bytes >= _FEWEST_BYTES


def _is_cheap(part: Part) -> bool:
    """Whether elements may stand in the code several times, and columns' own values be made anew.

    What several stages share is kept in rows of its own, which streams do not fill.
    """
    found, last = part.trace, part.variables[-1]
    if part.weight > _WEIGHT or found.conditions:
        return False
    if any(len(at) > 1 for at in (found.heavy_at | found.rounded_at).values()):
        return False
    folded = [r for r in found.reads if r.folded]
    if not any(r.position.coefficient(last) == 1 for r in folded):
        return False
    if not all(r.position.coefficient(last) in (0, 1) for r in folded):
        return False
    own = set(part.variables)
    columns = sum(
        ops
        for ops, index in found.work
        if any(e.depends_on(last) for e in index) and affine.loop_variables(index) <= own
    )
    return columns <= _COLUMN_WEIGHT


def _copies(part: Part) -> int:
    """One vector at a time where more would leave a shorter batch, and are no faster."""
    arrays = [reduce.operands[0].shape for reduce, _ in part.trace.reductions]
    is_slow = all(x.size * x.dtype.item_bytes >= _MEMORY_BYTES for x in arrays)
    return 1 if is_slow and part.extents[-1] % (_COPIES * part.lanes) else _COPIES


def _block(part: Part, copies: int) -> int | None:
    """Columns of a unit: few enough for the first cache. 0: all; None: no number will do."""
    length, step = part.extents[-1], part.lanes * copies
    folds = [reduce for reduce, _ in part.trace.reductions]
    kept = [_kept(x.shape.dtype) for r in folds for x in r.operands[: len(r.operands) // 2]]
    most = _ROW_BYTES // sum(dtype.item_bytes for dtype in kept)
    least = _PIECE_BYTES // min(r.operands[0].shape.dtype.item_bytes for r in folds)
    units = prod(part.rounds(k) for k in range(part.prefix))
    columns = min(max(-(-length // -(-_UNITS // units)), least), most)
    blocks = -(-length // columns)
    if blocks == 1:
        return 0
    if part.prefix != part.loops:
        return None
    return -(-length // (blocks * step)) * step


def _kept(dtype: DType) -> DType:
    """What partial results lie in memory as."""
    return dt.F32 if dtype.is_narrow_float else dtype


# -- code --------------------------------------------------------------------------------------

Limits = tuple[Value, Value]


def emit_streams(
    elemental: Elemental, part: Part, outer: list[Expr], limits: Limits | None
) -> None:
    """The folds of one unit; their results are there for what follows."""
    first = affine.ZERO
    if limits is not None:
        first = elemental.nest.variable(limits[0], 0, part.extents[-1] - 1)
    own: list[Atom] = list(part.variables)
    at = dict(zip(own, [*outer, first], strict=True))
    columns = _Columns(elemental, part, dict(zip(own[:-1], outer, strict=True)), limits)
    for group in _groups(elemental, part):
        streams = []
        for reduce, index in group:
            space = space_of(elemental, reduce, reducer_of(reduce))
            start = affine.linear(index, reduce_dims(reduce)).substituted(at)
            partial, total, surplus = _memories(elemental, part, space)
            streams.append(Stream(reduce, index, space, partial, total, surplus, start))
        _Emission(columns, streams).run()
        for stream in streams:
            stream.is_filled = True
            if not stream.reduce.shape.is_tuple:
                elemental.saved[stream.reduce] = stream
                continue
            for k, memory in enumerate(stream.total):
                element = types.storage_scalar(memory.dtype)
                base = elemental.nest.pointer(memory.base, stream.start * -1, element)
                elemental.enter((stream.reduce, (k,)), Memory(base, memory.dtype, memory.size))


def end_streams(elemental: Elemental, part: Part) -> None:
    """Forget where the results of folds lie."""
    for reduce, _ in part.trace.reductions:
        for k in range(len(reduce.operands) // 2 if reduce.shape.is_tuple else 0):
            elemental.forget((reduce, (k,)))


def _groups(elemental: Elemental, part: Part) -> Iterator[list[tuple[Instruction, Index]]]:
    """Folds over the same rows that do not need each other, those first that others need."""
    left = list(part.trace.reductions)
    needs = {}
    for reduce, index in left:
        inner, _ = reduced_index(reduce, index)
        inside = trace(elemental.expression, [(reduce.operands[0], inner, ())]).reductions
        needs[reduce] = {r for r, _ in inside}
    done: set[Instruction] = set()
    while left:
        ready = [fold for fold in left if needs[fold[0]] <= done]
        shape = _shape(ready[0][0])
        group = [fold for fold in ready if _shape(fold[0]) == shape]
        done |= {reduce for reduce, _ in group}
        left = [fold for fold in left if fold not in group]
        yield group


def _shape(reduce: Instruction) -> tuple[object, ...]:
    return reduce.operands[0].shape.dims, reduce["dimensions"]


def _memories(
    elemental: Elemental, part: Part, space: Space
) -> tuple[list[Memory], list[Memory], list[Memory]]:
    """Rows for partial results, totals and what these are too large by; where sums are not long,
    the same for results and totals.
    """
    dtypes = [_kept(kind) for kind in space.kinds]
    size = part.block or part.extents[-1]
    is_long = space.reducer.sums and dtypes[0].is_float and prod(space.extents) > BLOCK
    is_one = not space.instruction.shape.is_tuple  # others are read where their totals lie
    is_carried = is_long and is_one and space.reducer.opcodes == ("add",)
    found: list[list[Memory]] = []
    for _ in range(1 + is_long + is_carried):
        bases = [thread_memory(elemental, size * dtype.item_bytes) for dtype in dtypes]
        found.append([Memory(b, d, size) for b, d in zip(bases, dtypes, strict=True)])
    return found[0], found[min(1, len(found) - 1)], found[2] if is_carried else []


class _Columns(Struct):
    """Loops over a unit's columns. outer: what the loops around them stand at."""

    elemental: Elemental
    part: Part
    outer: dict[Atom, Expr]
    limits: Limits | None

    def run(self, body: Callable[[list[Expr]], None]) -> None:
        """`body` over vectors of columns."""
        part, nest = self.part, self.elemental.nest
        length, lanes = part.extents[-1], part.lanes
        if self.limits is not None:
            rest = (lanes, 1) if length % (lanes * part.copies) else None
            span = (0, length)
            lane_loop_between(nest, *self.limits, span, lanes, part.copies, body, rest=rest)
            return

        def static(variables: list[Expr], carried: list[Value]) -> list[Value]:
            body(variables)
            return carried

        lane_loop(nest, 0, length, lanes, part.copies, [], static)

    def at(self, index: Index, column: Expr) -> Index:
        """A fold's index at a column."""
        place = self.outer | {self.part.variables[-1]: column}
        return tuple(e.substituted(place) for e in index)


class _Emission(Struct):
    """A group of folds being written."""

    columns: _Columns
    streams: list[Stream]
    extents: tuple[int, ...] = ()

    def run(self) -> None:
        """Blocks of rows inside the loops over the other folded dimensions."""
        first = self.streams[0]
        self.extents = first.space.factored(first.index) or (1,)
        self.columns.part.walks.append(self._walk())
        self._begin([(s, s.total) for s in self.streams])
        self._clear([s for s in self.streams if s.surplus])
        self._outer([])

    def _walk(self) -> Walk:
        """What was decided."""
        long = [s for s in self.streams if s.total is not s.partial]
        memories = [m for s in self.streams for m in (*s.partial, *s.surplus)]
        memories += [m for s in long for m in s.total]
        return Walk(
            tuple(s.reduce for s in self.streams),
            self.extents,
            min(_ROWS, self.extents[-1]),
            BLOCK if long else 0,
            tuple(m.dtype for m in memories),
            len(memories),
            sum(bool(s.surplus) for s in self.streams),
        )

    def _outer(self, outer: list[Expr]) -> None:
        nest = self.columns.elemental.nest
        depth = len(outer)
        if depth == len(self.extents) - 1:
            self._blocks(outer)
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            self._outer([*outer, nest.variable(counter, 0, self.extents[depth] - 1)])
            return []

        nest.loop(0, self.extents[depth], 1, [], body)

    def _blocks(self, outer: list[Expr]) -> None:
        """BLOCK rows at a time where sums are long, and what is left of them."""
        nest, length = self.columns.elemental.nest, self.extents[-1]
        rows = min(_ROWS, length)
        whole = length // rows * rows
        long = [s for s in self.streams if s.total is not s.partial]
        if not long:
            self._rows(outer, 0, whole, rows)
        else:

            def block(counter: Value, _: list[Value]) -> list[Value]:
                w = nest.w
                end = w.binary("add", counter, w.int(BLOCK))
                if whole % BLOCK:
                    end = w.intrinsic("llvm.smin", "i64", end, w.int(whole))
                self._begin([(s, s.partial) for s in long])
                self._rows(outer, counter, end, rows)
                self._join(long)
                return []

            nest.loop(0, -(-whole // BLOCK) * BLOCK, BLOCK, [], block)
        if whole < length:
            self._chunk([*outer, affine.number(whole)], length - whole, is_last=True)

    def _rows(self, outer: list[Expr], low: int | Value, high: int | Value, rows: int) -> None:
        nest, length = self.columns.elemental.nest, self.extents[-1]

        def body(counter: Value, _: list[Value]) -> list[Value]:
            first = nest.variable(counter, 0, length // rows * rows - rows)
            self._chunk([*outer, first], rows)
            return []

        nest.loop(low, high, rows, [], body)

    def _begin(self, memories: Sequence[tuple[Stream, list[Memory]]]) -> None:
        """What the folds start from, in every column."""

        def body(variables: list[Expr]) -> None:
            for (stream, memory), v in itertools.product(memories, variables):
                place = stream.place(self.columns.at(stream.index, v))
                start = stream.space.start(v.lanes)
                stream.store(self.columns.elemental, memory, place, start)

        self.columns.run(body)

    def _clear(self, carried: Sequence[Stream]) -> None:
        """No surplus yet."""
        elemental = self.columns.elemental

        def body(variables: list[Expr]) -> None:
            for stream, v in itertools.product(carried, variables):
                zero = elemental.nest.w.zero(types.parts(stream.space.start(v.lanes)[0])[0].type)
                place = stream.place(self.columns.at(stream.index, v))
                stream.store(elemental, stream.surplus, place, [zero])

        if carried:
            self.columns.run(body)

    def _join(self, long: Sequence[Stream]) -> None:
        """total = f(total, partial)"""
        elemental = self.columns.elemental

        def body(variables: list[Expr]) -> None:
            for stream, v in itertools.product(long, variables):
                place = stream.place(self.columns.at(stream.index, v))
                stream.take_partial(elemental, place)

        self.columns.run(body)

    def _chunk(self, first: list[Expr], rows: int, *, is_last: bool = False) -> None:
        """Some rows from the first on: their elements as a tree, to what is there."""
        columns, elemental = self.columns, self.columns.elemental

        def body(variables: list[Expr]) -> None:
            for stream in self.streams:
                at = [columns.at(stream.index, v) for v in variables]
                elements = self._elements(stream, at, first, rows)
                memories = stream.total if is_last else stream.partial
                for index, column in zip(at, elements, strict=True):
                    place = stream.place(index)
                    before = stream.load(elemental, memories, place)
                    stream.store(elemental, memories, place, self._folded(stream, before, column))

        columns.run(body)

    def _elements(
        self, stream: Stream, at: list[Index], first: list[Expr], rows: int
    ) -> list[list[Accumulators]]:
        """Per column, those of the rows."""
        space = stream.space
        wanted = [
            space.full(index, space.inner([*first[:-1], first[-1] + row], self.extents))
            for row in range(rows)
            for index in at
        ]
        start = space.start(max(e.lanes for e in at[0]))
        elements = [space.wide(x, start) for x in space.element(wanted)]
        return [elements[n :: len(at)] for n in range(len(at))]

    def _folded(
        self, stream: Stream, before: Accumulators, level: list[Accumulators]
    ) -> Accumulators:
        """By pairs; one by one where elements are picked, so that the order is known."""
        if stream.reduce.shape.is_tuple:
            for element in level:
                before = stream.space.applied(before, element)
            return before
        while len(level) > 1:
            pairs = [level[k : k + 2] for k in range(0, len(level), 2)]
            level = [stream.space.applied(*p) if len(p) == 2 else p[0] for p in pairs]
        return stream.space.applied(before, level[0])
