"""The loops of one part: units, loops between, lanes; outputs stored where their index is fixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from hlo.backend.emitters.elemental import Elemental, Saved
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.kept_strips import strips_of
from hlo.backend.kernels.lane_axis import lane_axis
from hlo.backend.kernels.outputs import memory_of, place_of, store
from hlo.backend.kernels.part import Part, is_within, reduce_dims
from hlo.backend.kernels.phases import Phases, begin_rows, block_of, phases_of, rows_of
from hlo.backend.kernels.prefetching import fetch_ahead, fetched, folds_in_order
from hlo.backend.kernels.rows import saved_rows
from hlo.backend.kernels.squares import emit_squares, finish_squares
from hlo.backend.kernels.streams import emit_streams
from hlo.backend.kernels.strips import emit_strips
from hlo.backend.lanes import access
from hlo.backend.lanes.lane_loops import lane_loop, lane_loop_between, masked_loop
from hlo.backend.loops.schedule import Place, Tail
from hlo.indexing import affine
from hlo.indexing.affine import Atom, Expr
from hlo.ir.instruction import Instruction

Limits = tuple[Value, Value]  # of a loop, known at run time


class Written(Struct, frozen=True):
    """What was decided while a part was written: its phases, and what it keeps, where."""

    phases: Phases
    saved: dict[Instruction, Saved]
    places: list[Place]


def emit_part(elemental: Elemental, part: Part, low: Value, high: Value) -> Written:
    """The code for units [low, high) of the part."""
    nest = elemental.nest
    before = len(nest.record.memories) if nest.record is not None else 0
    elemental.lanes = part.lanes
    phases = () if part.strip else phases_of(elemental.expression, part)
    if part.strip:
        elemental.saved = dict(strips_of(elemental, part))
    else:
        elemental.saved = dict(saved_rows(elemental, part))
        elemental.saved |= rows_of(elemental, part, phases)
    saved = dict(elemental.saved)

    def unit(counter: Value, _: list[Value]) -> list[Value]:
        position = nest.variable(counter, 0, part.units - 1)
        if part.squares is not None:
            emit_squares(elemental, part, position)
            return []
        extents = (*(part.rounds(k) for k in range(part.prefix)), part.blocks)
        *outer, block = affine.delinearized(position, extents)
        if part.strip:
            emit_strips(elemental, part, outer, block)
            return []
        _Emission(elemental, part, block, phases).run(list(outer))
        return []

    nest.loop(low, high, 1, [], unit)
    if part.squares is not None:
        finish_squares(nest)
    elemental.saved = {}
    elemental.scratch_used = 0  # the next part runs after this one
    return Written(phases, saved, nest.record.memories[before:] if nest.record is not None else [])


class _Emission:
    """One part being written."""

    def __init__(self, elemental: Elemental, part: Part, block: Expr, phases: Phases) -> None:
        self.elemental = elemental
        self.part = part
        self.block = block
        self.phases = phases
        self.waiting = list(part.outer)
        self.folded: set[Instruction] = set()

    def run(self, outer: list[Expr]) -> None:
        """Loops over what `outer` does not fix yet."""
        part, nest = self.part, self.elemental.nest
        depth = len(outer)
        is_last = depth == part.loops
        outers = self._side_by_side(outer) if is_last else [outer]
        self._fold(outers)
        self._store_outer(outers)
        if is_last:
            self._innermost(outers)
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            self.run([*outer, nest.variable(counter, 0, part.rounds(depth) - 1)])
            return []

        nest.loop(0, part.rounds(depth), 1, [], body)

    def _side_by_side(self, outer: list[Expr]) -> list[list[Expr]]:
        """The rows of one round; past the end the last one is computed again."""
        nest, part = self.elemental.nest, self.part
        if part.rows == 1:
            return [outer]
        *rest, group = outer
        first, most = group * part.rows, part.extents[part.loops - 1] - 1
        found = []
        for row in (first + k for k in range(part.rows)):
            if row.high > most:
                with nest.at(row.depth):
                    value = nest.w.intrinsic("llvm.smin", "i64", nest.scalar(row), nest.w.int(most))
                    row = nest.variable(value, 0, most)
            found.append([*rest, row])
        return found

    def _fold(self, outers: list[list[Expr]]) -> None:
        """Reductions whose index is fixed by now are stages before the inner loops."""
        part = self.part
        depth = len(outers[0])
        fixed = part.variables[:depth]
        places: list[dict[Atom, Expr]] = [dict(zip(fixed, o, strict=True)) for o in outers]
        folds = folds_in_order(self.elemental, part)
        for reduce, index in folds:
            if reduce in self.folded or not all(e.is_made_of(fixed) for e in index):
                continue
            if not is_within(index, reduce_dims(reduce)):
                continue  # beside a pad's operand, say: where it is asked for, a test stands before
            self.folded.add(reduce)
            path = (0,) if reduce.shape.is_tuple else ()
            wanted = [tuple(e.substituted(place) for e in index) for place in places]
            saved = self.elemental.saved
            if reduce is folds[-1][0]:
                self.elemental.saved = fetched(self.elemental, part) | saved
            self.elemental.lanes_at(reduce, wanted, path)
            self.elemental.saved = saved

    def _store_outer(self, outers: list[list[Expr]]) -> None:
        """Outputs of fewer dimensions whose index is fixed by now."""
        part, elemental = self.part, self.elemental
        free = part.variables[len(outers[0]) :]
        inner = [affine.of(v) for v in free]
        for output in list(self.waiting):
            indices = [output.row_index(part.index([*outer, *inner])) for outer in outers]
            if any(e.depends_on(v) for e in indices[0] for v in free):
                continue
            self.waiting.remove(output)
            found = elemental.lanes_at(output.source, indices, output.path)
            for lanes, index in zip(found, indices, strict=True):
                store(elemental, output, index, lanes)

    def _innermost(self, outers: list[list[Expr]]) -> None:
        part, nest = self.part, self.elemental.nest
        outer = outers[0]
        if not part.in_lanes:
            self._store(outers, [None])
            return

        length = part.extents[-1]
        limits: Limits | None = None
        if part.block:
            w = nest.w
            start = nest.scalar(self.block * part.block)
            end = w.binary("add", start, w.int(part.block))
            if length % part.block:
                end = w.intrinsic("llvm.smin", "i64", end, w.int(length))
            limits = (start, end)
        if part.streams:
            emit_streams(self.elemental, part, outer, limits)
        if not self.phases:
            for rows in [[o] for o in outers] if part.in_turn else [outers]:
                self._lanes(limits, partial(self._store_rows, rows))
        elif limits is None and length <= block_of(part.machine):
            self._in_phases(outer, affine.ZERO, None)
        else:
            self._in_blocks(outer, limits or (nest.w.int(0), nest.w.int(length)))

    def _in_blocks(self, outer: list[Expr], limits: Limits) -> None:
        """All phases over so many elements as rows hold, then over the next."""
        nest, length = self.elemental.nest, self.part.extents[-1]
        size = block_of(self.part.machine)
        low, high = limits

        def block(counter: Value, _: list[Value]) -> list[Value]:
            w = nest.w
            end = w.intrinsic("llvm.smin", "i64", w.binary("add", counter, w.int(size)), high)
            self._in_phases(outer, nest.variable(counter, 0, length - 1), (counter, end))
            return []

        nest.loop(low, nest.w.binary("add", high, nest.w.int(size - 1)), size, [], block)

    def _in_phases(self, outer: list[Expr], first: Expr, limits: Limits | None) -> None:
        """One loop after another; `first`: where the rows that they leave begin."""
        elemental, part = self.elemental, self.part
        start = affine.linear(part.index([*outer, first]), part.outputs[0].dims)
        begin_rows(elemental, start)
        for kept in self.phases:

            def keep(variables: list[Expr], kept: tuple[Instruction, ...] = kept) -> None:
                indices = [part.index([*outer, v]) for v in variables]
                for member in kept:
                    elemental.lanes_at(member, indices)

            self._lanes(limits, keep)
            elemental.end_stage()
        self._lanes(limits, lambda variables: self._store([outer], list(variables)))

    def _lanes(self, limits: Limits | None, body: Callable[[list[Expr]], None]) -> None:
        """`body` over the lanes of the last loop, or of a block of it."""
        part, nest = self.part, self.elemental.nest
        length, lanes = part.extents[-1], part.lanes

        def static(variables: list[Expr], carried: list[Value]) -> list[Value]:
            body(variables)
            return carried

        low, high = limits or (nest.w.int(0), nest.w.int(length))
        block = block_of(part.machine) if self.phases else part.block
        axis = lane_axis(part, block if limits is not None else 0)
        if axis.tail is Tail.OVERLAPPING:
            self._overlapping(low, high, body)
        elif axis.tail is Tail.PREDICATED:
            masked_loop(nest, low, high, (0, length), lanes, body)
        elif limits is None:
            shortens = axis.tail is Tail.SHORT
            lane_loop(nest, 0, length, lanes, part.copies, [], static, shortens=shortens)
        else:
            rest = (axis.tail_step, 1) if axis.tail_step else None
            lane_loop_between(nest, *limits, (0, length), lanes, part.copies, body, rest=rest)

    def _overlapping(self, low: Value, high: Value, body: Callable[[list[Expr]], None]) -> None:
        """A vector a round; the last one ends where the loop's range does, instead of a mask."""
        nest, w, length = self.elemental.nest, self.elemental.nest.w, self.part.extents[-1]
        lanes = self.part.lanes

        def vector(counter: Value, _: list[Value]) -> list[Value]:
            start = w.intrinsic("llvm.smin", "i64", counter, w.int(length - lanes))
            body([nest.variable(start, 0, length - 1, lanes)])
            return []

        # The last round may be cut short: it runs while one element is left.
        nest.loop(low, w.binary("add", high, w.int(lanes - 1)), lanes, [], vector)

    def _store_rows(self, outers: list[list[Expr]], last: list[Expr]) -> None:
        """The results at the lanes; what later rows need there is fetched meanwhile."""
        self._store(outers, list(last))
        fetch_ahead(self.elemental, self.part, outers, last)

    def _store(self, outers: list[list[Expr]], last: list[Expr | None]) -> None:
        """Everything is evaluated before the first store: an output may lie over an operand."""
        elemental, part = self.elemental, self.part
        if part.tile is not None:
            outers = self._tiled(outers[0])
        indices = [part.index(o if v is None else [*o, v]) for v in last for o in outers]
        written = [(o, indices) for o in part.outputs]
        # What still waits has rows of one element: [n] beside [n, 1].
        written += [(o, [o.row_index(i) for i in indices]) for o in self.waiting]
        found = [elemental.lanes_at(o.source, at, o.path) for o, at in written]
        places = [[place_of(elemental, o, index) for index in at] for o, at in written]
        for (output, _), lanes, at in zip(written, found, places, strict=True):
            for value, position in zip(lanes, at, strict=True):
                access.store(elemental.nest, memory_of(elemental, output), position, value)

    def _tiled(self, outer: list[Expr]) -> list[list[Expr]]:
        """The outer variables for each step of a tile; the last tile overlaps the one before."""
        nest, part = self.elemental.nest, self.part
        k = part.tile
        assert k is not None
        most = part.extents[k] - part.lanes
        block = outer[k]
        start = block * part.lanes
        if start.high > most:
            with nest.at(block.depth):
                value = nest.w.intrinsic("llvm.smin", "i64", nest.scalar(start), nest.w.int(most))
                start = nest.variable(value, 0, most)
        return [[*outer[:k], start + step, *outer[k + 1 :]] for step in range(part.lanes)]
