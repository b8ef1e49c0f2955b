"""Lower: one walk of a nest's schedule that writes its code and decides nothing.

    NestSchedule --lower--> loops over units, between, over lanes; stores where indices are fixed

A row is the values of the loops that are open; rows side by side are computed together. Blocks of
squares and reductions that walk through memory are strategies of their own (lower_squares.py,
lower_streams.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.kept import KeptBlock, KeptStrip, kept_of
from hlo.backend.kernels.prefetching import fetched, prefetch_rows
from hlo.backend.kernels.stored import memory_of, place_of, store
from hlo.backend.lanes.row_stores import store_all
from hlo.backend.lanes.vector_loops import (
    masked_loop,
    vector_loop,
    vector_loop_between,
    vector_loop_within,
)
from hlo.backend.loops.domain import is_within, traced
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import Axis, Role, Tail
from hlo.backend.loops.trace import Trace
from hlo.backend.loops.vectors import MOST_LANES, MOST_TURNS
from hlo.indexing import affine
from hlo.indexing.affine import Atom, DivMod, Expr, Index
from hlo.indexing.queries import result_dims
from hlo.ir.instruction import Instruction

Row = list[Expr]  # Values of the loops that are open, the outermost first.
Limits = tuple[Value, Value]  # The limits of a loop, known at run time.


def lower(elemental: Elemental, schedule: NestSchedule, low: Value, high: Value) -> None:
    """The code for units [low, high) of the nest, which are all of them where both are numbers."""
    nest = elemental.nest
    elemental.lanes = schedule.lanes
    elemental.saved = dict(kept_of(elemental, schedule))

    def unit(counter: Value) -> None:
        position = nest.variable(counter, 0, schedule.units - 1)
        if schedule.is_blocked:
            from hlo.backend.kernels.lower_squares import emit_squares  # of turned arrays alone

            emit_squares(elemental, schedule, position)
            return
        extents = tuple(axis.rounds for axis in schedule.parallel)
        numbers = list(affine.delinearized(position, extents))
        _Lowering(elemental, schedule, numbers[schedule.prefix :]).run(numbers[: schedule.prefix])

    def body(counter: Value, _: list[Value]) -> list[Value]:
        unit(counter)
        return []

    if schedule.units == 1 and low.is_constant and high.is_constant:
        nest.once(unit)
    else:
        nest.loop(low, high, 1, [], body)
    if schedule.is_blocked:
        nest.target.isa.fence_streams(nest.w)  # lines on their way past the cache arrive first
    elemental.saved = {}
    elemental.scratch_used = 0  # the next nest runs after this one
    if schedule.walks:
        from hlo.backend.kernels.lower_streams import end_streams  # of reductions over columns

        end_streams(elemental, schedule)


class _Lowering:
    """One unit being written. block: its number among those of the loop over lanes."""

    def __init__(self, elemental: Elemental, schedule: NestSchedule, block: list[Expr]) -> None:
        self.elemental = elemental
        self.schedule = schedule
        self.domain = schedule.domain
        self.block = block
        self.waiting = list(self.domain.outer)
        self.reduced: set[Instruction] = set()

    def run(self, outer: Row) -> None:
        """The loops around the lanes that `outer` does not fix yet, then those over lanes."""
        schedule, nest = self.schedule, self.elemental.nest
        depth = len(outer)
        is_last = depth == schedule.loops
        rows = self._side_by_side(outer) if is_last and not schedule.inner else [outer]
        if not schedule.inner:
            self._reduction(rows)
            self._store_outer(rows)
        if is_last:
            self._lanes(rows)
            return
        axis = schedule.outer(depth)
        rounds = axis.rounds
        if axis.role is Role.UNROLLED:
            for place in range(rounds):
                self.run([*outer, affine.number(place)])
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            self.run([*outer, nest.variable(counter, 0, rounds - 1)])
            return []

        nest.loop(0, rounds, 1, [], body)

    def _side_by_side(self, outer: Row) -> list[Row]:
        """The rows of one round; past the end the last one is computed again."""
        nest, count = self.elemental.nest, self.schedule.rows
        if count == 1:
            return [outer]
        *rest, group = outer
        first, most = group * count, self.domain.extents[self.schedule.loops - 1] - 1
        found = []
        for row in (first + k for k in range(count)):
            if row.high > most:
                with nest.at(row.depth):
                    value = nest.w.intrinsic("llvm.smin", "i64", nest.scalar(row), nest.w.int(most))
                    row = nest.variable(value, 0, most)
            found.append([*rest, row])
        return found

    # -- what is fixed around the lanes ----------------------------------------------------------

    def _reduction(self, rows: list[Row]) -> None:
        """Reductions whose index is fixed by now are stages before the inner loops."""
        fixed = self.domain.variables[: len(rows[0])]
        positions: list[dict[Atom, Expr]] = [dict(zip(fixed, row, strict=True)) for row in rows]
        for reduce, index in self.schedule.reductions:
            if reduce in self.reduced or not all(e.is_made_of(fixed) for e in index):
                continue
            self.reduced.add(reduce)
            path = (0,) if reduce.shape.is_tuple else ()
            wanted = [tuple(e.substituted(place) for e in index) for place in positions]
            saved = self.elemental.saved
            if reduce is self.schedule.reductions[-1][0]:
                self.elemental.saved = fetched(self.elemental, self.schedule) | saved
            self.elemental.lanes_at(reduce, wanted, path)
            self.elemental.saved = saved

    def _store_outer(self, rows: list[Row]) -> None:
        """Outputs of fewer dimensions whose index is fixed by now."""
        free = self.domain.variables[len(rows[0]) :]
        inner = [affine.of(v) for v in free]
        for output in list(self.waiting):
            indices = [output.row_index(self.domain.index([*row, *inner])) for row in rows]
            if any(e.depends_on(v) for e in indices[0] for v in free):
                continue
            self.waiting.remove(output)
            # In lanes one after the other: their chains are long.
            for batch in [indices] if not self.schedule.inner else [[i] for i in indices]:
                found = self.elemental.lanes_at(output.source, batch, output.path)
                for lanes, index in zip(found, batch, strict=True):
                    store(self.elemental, output, index, lanes)

    # -- over lanes ------------------------------------------------------------------------------

    def _lanes(self, rows: list[Row]) -> None:
        schedule, outer = self.schedule, rows[0]
        vector = schedule.vector
        if vector is None:
            self._store(rows)
            return
        limits = self._limits(vector)
        if schedule.walks:
            from hlo.backend.kernels.lower_streams import emit_streams

            emit_streams(self.elemental, schedule, outer, limits)
        if schedule.inner:
            self._over(vector, limits, lambda columns: self._strip([[*outer, c] for c in columns]))
        elif schedule.stages:
            self._staged(vector, outer, limits)
        else:
            for group in [rows] if schedule.turn is None else [[row] for row in rows]:
                self._over(vector, limits, partial(self._store_rows, group))

    def _limits(self, vector: Axis) -> Limits | None:
        """Of the unit's block; where bounds need not be known before, of the whole."""
        nest, w = self.elemental.nest, self.elemental.nest.w
        length, size = self.domain.extents[vector.loop], self.schedule.block
        if not size:
            return (w.int(0), w.int(length)) if self.schedule.inner else None
        (block,) = self.block
        start = nest.scalar(block * size)
        end = w.binary("add", start, w.int(size))
        if length % size:
            end = w.intrinsic("llvm.smin", "i64", end, w.int(length))
        return start, end

    def _over(self, axis: Axis, limits: Limits | None, body: Callable[[list[Expr]], None]) -> None:
        """`body` over the lanes of an axis, or of a part of it."""
        nest, length = self.elemental.nest, self.domain.extents[axis.loop]

        def static(variables: list[Expr], carried: list[Value]) -> list[Value]:
            body(variables)
            return carried

        bounds = self.elemental.bounds if axis.is_bounded and limits is None else None
        low, high = limits or bounds or (nest.w.int(0), nest.w.int(length))
        lanes, unroll = axis.lanes, axis.vectors
        if axis.tail is Tail.OVERLAPPING:
            self._overlapping(axis, low, high, body)
        elif axis.tail is Tail.PREDICATED:
            masked_loop(nest, low, high, (0, length), lanes, body, unroll)
        elif bounds is not None:
            vector_loop_within(nest, (0, length), bounds, lanes, unroll, [], static)
        elif limits is None:
            shortens = axis.tail is Tail.SHORT
            vector_loop(nest, 0, length, lanes, unroll, [], static, shortens=shortens)
        else:
            rest = None
            if axis.tail_step:
                own = min(lanes, axis.tail_step)
                rest = own, axis.tail_step // own
            vector_loop_between(nest, low, high, (0, length), lanes, unroll, body, rest=rest)

    def _overlapping(
        self, axis: Axis, low: Value, high: Value, body: Callable[[list[Expr]], None]
    ) -> None:
        """The last round ends where the loop's range does, instead of a mask."""
        nest, w, length = self.elemental.nest, self.elemental.nest.w, self.domain.extents[axis.loop]
        lanes, step = axis.lanes, axis.step

        def vectors(counter: Value, _: list[Value]) -> list[Value]:
            start = w.intrinsic("llvm.smin", "i64", counter, w.int(length - step))
            first = nest.variable(start, 0, length - 1 - step + lanes, lanes)
            body([first + k for k in range(0, step, lanes)])
            return []

        # The last round may be cut short: it runs while one element is left.
        nest.loop(low, w.binary("add", high, w.int(step - 1)), step, [], vectors)

    # -- stages ----------------------------------------------------------------------------------

    def _staged(self, vector: Axis, outer: Row, limits: Limits | None) -> None:
        """All stages over so many elements as rows hold, then over the next."""
        nest, length = self.elemental.nest, self.domain.extents[-1]
        serial = self.schedule.axes[self.schedule.axes.index(vector) - 1]
        if not (serial.role is Role.SERIAL and serial.loop == vector.loop):
            self._stages(vector, outer, affine.ZERO, None)
            return
        size = serial.step
        low, high = limits or (nest.w.int(0), nest.w.int(length))

        def block(counter: Value, _: list[Value]) -> list[Value]:
            w = nest.w
            end = w.intrinsic("llvm.smin", "i64", w.binary("add", counter, w.int(size)), high)
            self._stages(vector, outer, nest.variable(counter, 0, length - 1), (counter, end))
            return []

        nest.loop(low, nest.w.binary("add", high, nest.w.int(size - 1)), size, [], block)

    def _stages(self, vector: Axis, outer: Row, first: Expr, limits: Limits | None) -> None:
        """One loop after another; `first`: where the rows that they leave begin."""
        elemental, domain = self.elemental, self.domain
        start = affine.linear(domain.index([*outer, first]), domain.outputs[0].dims)
        for row in elemental.saved.values():
            assert isinstance(row, KeptBlock), "stages keep nothing else"
            row.start = start
        for kept in self.schedule.stages:

            def keep(variables: list[Expr], kept: tuple[Instruction, ...] = kept) -> None:
                indices = [domain.index([*outer, v]) for v in variables]
                for member in kept:
                    elemental.lanes_at(member, indices)

            self._over(vector, limits, keep)
            elemental.end_stage()
        self._over(vector, limits, lambda lanes: self._store([[*outer, v] for v in lanes]))

    # -- strips ----------------------------------------------------------------------------------

    def _strip(self, columns: list[Row]) -> None:
        """Reductions as stages, results of fewer dimensions, then the loops over what is
        reduced."""
        elemental, domain = self.elemental, self.domain
        for kept in elemental.saved.values():
            assert isinstance(kept, KeptStrip), "strips keep nothing else"
            kept.begin()
        free = [affine.of(v) for v in domain.variables[len(columns[0]) :]]
        at = [domain.index([*column, *free]) for column in columns]
        for reduce, wanted in _stages([traced(elemental.expression, domain, i) for i in at]):
            if all(map(_is_opened, wanted[0])):
                elemental.lanes_at(reduce, wanted, (0,) if reduce.shape.is_tuple else ())
                elemental.end_stage()
        self.waiting = list(domain.outer)
        self._store_outer(columns)
        self._inner(columns, self.schedule.inner)

    def _inner(self, rows: list[Row], axes: Sequence[Axis]) -> None:
        """Loops over the reduced dimensions around the stores; few steps are written out."""
        nest = self.elemental.nest
        if not axes:
            self._store(rows)
            return
        if axes[0].role is Role.UNROLLED:
            extents = [axis.extent for axis in axes]
            places = [
                affine.delinearized(affine.number(position), extents)
                for position in range(prod(extents))
            ]
            loops, domain = self.schedule.loops, self.domain
            if domain.lies_in_rows(loops) and not domain.trace.conditions:
                together = MOST_LANES
            else:
                together = MOST_TURNS if domain.reduces_around(loops) else 1
            for batch in (places[k : k + together] for k in range(0, len(places), together)):
                self._store([[*row, *fixed] for row in rows for fixed in batch])
            return

        def body(counter: Value, _: list[Value]) -> list[Value]:
            value = nest.variable(counter, 0, axes[0].extent - 1)
            self._inner([[*row, value] for row in rows], axes[1:])
            return []

        nest.loop(0, axes[0].extent, 1, [], body)

    # -- stores ----------------------------------------------------------------------------------

    def _store_rows(self, rows: list[Row], last: list[Expr]) -> None:
        """The results at the lanes; what later rows need there is fetched meanwhile."""
        if self.schedule.tile is not None:
            rows = self._tiled(rows[0])
        self._store([[*row, v] for v in last for row in rows])
        prefetch_rows(self.elemental, self.schedule, rows, last)

    def _store(self, rows: list[Row]) -> None:
        """Everything is evaluated before the first store: an output may lie over an operand."""
        elemental = self.elemental
        indices = [self.domain.index(row) for row in rows]
        written: list[tuple[Output, list[Index]]] = [(o, indices) for o in self.domain.outputs]
        # What still waits has rows of one element: [n] beside [n, 1].
        written += [(o, [o.row_index(i) for i in indices]) for o in self.waiting]
        found = [elemental.lanes_at(o.source, at, o.path) for o, at in written]
        positions = [[place_of(elemental, o, index) for index in at] for o, at in written]
        for (output, _), lanes, at in zip(written, found, positions, strict=True):
            store_all(elemental.nest, memory_of(elemental, output), at, lanes)

    def _tiled(self, outer: Row) -> list[Row]:
        """The outer variables for each step of a tile; the last tile overlaps the one before."""
        nest, tile = self.elemental.nest, self.schedule.tile
        assert tile is not None, "there is a tile"
        k, most = tile.loop, tile.extent - tile.step
        block = outer[k]
        start = block * tile.step
        if start.high > most:
            with nest.at(block.depth):
                value = nest.w.intrinsic("llvm.smin", "i64", nest.scalar(start), nest.w.int(most))
                start = nest.variable(value, 0, most)
        return [[*outer[:k], start + step, *outer[k + 1 :]] for step in range(tile.step)]


def _stages(columns: Sequence[Trace]) -> Iterator[tuple[Instruction, list[Index]]]:
    """The reductions that all columns need, with its index in each; those first that others need.

    Not beside a padded operand, say: where such a reduction is asked for, a test stands before it.
    """
    first, *others = [dict(_numbered(found.reductions)) for found in columns]
    for reduction, index in reversed(first.items()):
        wanted = [index, *(other[reduction] for other in others if reduction in other)]
        reduce, _ = reduction
        if len(wanted) == len(columns) and all(is_within(i, result_dims(reduce)) for i in wanted):
            yield reduce, wanted


def _is_opened(e: Expr) -> bool:
    """Whether the loops around say where that is: not inner ones, nor may it be any element."""
    waiting = [e]
    while waiting:
        for atom in waiting.pop().terms:
            if isinstance(atom, DivMod):
                waiting.append(atom.inner)
            elif atom.value is None:
                return False
    return True


def _numbered(
    reductions: Sequence[tuple[Instruction, Index]],
) -> Iterator[tuple[tuple[Instruction, int], Index]]:
    """Each reduction with how often it was met before, at another index."""
    counts: Counter[Instruction] = Counter()
    for reduce, index in reductions:
        yield (reduce, counts[reduce]), index
        counts[reduce] += 1
