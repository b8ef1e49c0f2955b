"""Lower streams: reductions over columns that walk memory row by row (loops/choose_streams.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.analysis.reducers import reducer_of
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.horizontal_reduction import Accumulators
from hlo.backend.emitters.reduction import Space, space_of
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.carried_sums import Carried
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.backend.lanes.vector_loops import vector_loop, vector_loop_between
from hlo.backend.loops.nest_schedule import NestSchedule, Streamed, Walk
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr, Index
from hlo.indexing.queries import result_dims
from hlo.ir.instruction import Instruction


class Stream(Struct, eq=False):
    """A reduction whose results one unit keeps in memory: where, and what its columns start
    from."""

    reduce: Instruction
    index: Index
    space: Space
    partial: list[Memory]
    total: list[Memory]  # The partial results' own memory where there is one block of rows only.
    surplus: list[Memory]  # What totals in twice the digits are too large by.
    start: Expr
    is_touched: bool = False
    is_filled: bool = False

    def place(self, index: Index) -> Expr:
        return affine.linear(index, result_dims(self.reduce)) - self.start

    def load(self, elemental: Elemental, memories: list[Memory], place: Expr) -> Accumulators:
        """What stands there of all arrays that are reduced together."""
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
        self.store(elemental, self.total, place, list(carried.reduction))
        self.store(elemental, self.surplus, place, list(carried.surplus))

    def _carried(self, elemental: Elemental, total: Accumulators, place: Expr) -> Carried:
        surplus = self.load(elemental, self.surplus, place)
        return Carried(*(tuple(v for a in x for v in types.parts(a)) for x in (total, surplus)))


Limits = tuple[Value, Value]


def emit_streams(
    elemental: Elemental, schedule: NestSchedule, outer: list[Expr], limits: Limits | None
) -> None:
    """The reductions of one unit; their results are there for what follows."""
    first = affine.ZERO
    domain = schedule.domain
    if limits is not None:
        first = elemental.nest.variable(limits[0], 0, domain.extents[-1] - 1)
    own: list[Atom] = list(domain.variables)
    at = dict(zip(own, [*outer, first], strict=True))
    columns = _Columns(elemental, schedule, dict(zip(own[:-1], outer, strict=True)), limits)
    for walk in schedule.walks:
        streams = [_stream(elemental, reduction, at) for reduction in walk.reductions]
        _Emission(columns, walk, streams).run()
        for stream in streams:
            stream.is_filled = True
            if not stream.reduce.shape.is_tuple:
                elemental.saved[stream.reduce] = stream
                continue
            for k, memory in enumerate(stream.total):
                element = types.storage_scalar(memory.dtype)
                base = elemental.nest.pointer(memory.base, stream.start * -1, element)
                elemental.enter((stream.reduce, (k,)), Memory(base, memory.dtype, memory.size))


def end_streams(elemental: Elemental, schedule: NestSchedule) -> None:
    """Forget where the results of reductions lie."""
    for reduce, _ in schedule.domain.trace.reductions:
        for k in range(len(reduce.operands) // 2 if reduce.shape.is_tuple else 0):
            elemental.forget((reduce, (k,)))


def _stream(elemental: Elemental, reduction: Streamed, at: dict[Atom, Expr]) -> Stream:
    space = space_of(elemental, reduction.reduce, reducer_of(reduction.reduce))
    start = affine.linear(reduction.index, result_dims(reduction.reduce)).substituted(at)
    found: list[list[Memory]] = []
    for _ in range(reduction.accumulators):
        bases = [
            thread_memory(elemental, reduction.columns * d.item_bytes) for d in reduction.dtypes
        ]
        pairs = zip(bases, reduction.dtypes, strict=True)
        found.append([Memory(base, dtype, reduction.columns) for base, dtype in pairs])
    total = found[min(1, len(found) - 1)]
    surplus = found[2] if reduction.accumulators == 3 else []
    return Stream(reduction.reduce, reduction.index, space, found[0], total, surplus, start)


class _Columns(Struct):
    """Loops over a unit's columns. outer: what the loops around them stand at."""

    elemental: Elemental
    schedule: NestSchedule
    outer: dict[Atom, Expr]
    limits: Limits | None

    def run(self, body: Callable[[list[Expr]], None]) -> None:
        """`body` over vectors of columns."""
        nest, vector = self.elemental.nest, self.schedule.vector
        assert vector is not None, "columns are lanes"
        length, lanes, unroll = self.schedule.domain.extents[-1], vector.lanes, vector.vectors
        if self.limits is not None:
            rest = (lanes, 1) if length % vector.step else None
            span = (0, length)
            vector_loop_between(nest, *self.limits, span, lanes, unroll, body, rest=rest)
            return

        def static(variables: list[Expr], carried: list[Value]) -> list[Value]:
            body(variables)
            return carried

        vector_loop(nest, 0, length, lanes, unroll, [], static)

    def at(self, index: Index, column: Expr) -> Index:
        """A reduction's index at a column."""
        place = self.outer | {self.schedule.lane: column}
        return tuple(e.substituted(place) for e in index)


class _Emission(Struct):
    """A group of reductions being written."""

    columns: _Columns
    walk: Walk
    streams: list[Stream]

    def run(self) -> None:
        """Blocks of rows inside the loops over the other reduced dimensions."""
        self._begin([(s, s.total) for s in self.streams])
        self._clear([s for s in self.streams if s.surplus])
        self._outer([])

    def _outer(self, outer: list[Expr]) -> None:
        nest = self.columns.elemental.nest
        depth = len(outer)
        if depth == len(self.walk.extents) - 1:
            self._blocks(outer)
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            self._outer([*outer, nest.variable(counter, 0, self.walk.extents[depth] - 1)])
            return []

        nest.loop(0, self.walk.extents[depth], 1, [], body)

    def _blocks(self, outer: list[Expr]) -> None:
        """So many rows at a time, where sums are long, and what is left of them."""
        nest, length = self.columns.elemental.nest, self.walk.extents[-1]
        rows, size = self.walk.rows, self.walk.block
        whole = length // rows * rows
        long = [s for s in self.streams if s.total is not s.partial]
        if not long:
            self._rows(outer, 0, whole, rows)
        else:

            def block(counter: Value, _: list[Value]) -> list[Value]:
                w = nest.w
                end = w.binary("add", counter, w.int(size))
                if whole % size:
                    end = w.intrinsic("llvm.smin", "i64", end, w.int(whole))
                self._begin([(s, s.partial) for s in long])
                self._rows(outer, counter, end, rows)
                self._join(long)
                return []

            nest.loop(0, -(-whole // size) * size, size, [], block)
        if whole < length:
            self._chunk([*outer, affine.number(whole)], length - whole, is_last=True)

    def _rows(self, outer: list[Expr], low: int | Value, high: int | Value, rows: int) -> None:
        nest, length = self.columns.elemental.nest, self.walk.extents[-1]

        def body(counter: Value, _: list[Value]) -> list[Value]:
            first = nest.variable(counter, 0, length // rows * rows - rows)
            self._chunk([*outer, first], rows)
            return []

        nest.loop(low, high, rows, [], body)

    def _begin(self, memories: Sequence[tuple[Stream, list[Memory]]]) -> None:
        """What the reductions start from, in every column."""

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
                    stream.store(elemental, memories, place, self._reduced(stream, before, column))

        columns.run(body)

    def _elements(
        self, stream: Stream, at: list[Index], first: list[Expr], rows: int
    ) -> list[list[Accumulators]]:
        """Per column, those of the rows."""
        space = stream.space
        wanted = [
            space.full(index, space.inner([*first[:-1], first[-1] + row], self.walk.extents))
            for row in range(rows)
            for index in at
        ]
        start = space.start(max(e.lanes for e in at[0]))
        elements = [space.wide(x, start) for x in space.element(wanted)]
        return [elements[n :: len(at)] for n in range(len(at))]

    def _reduced(
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
