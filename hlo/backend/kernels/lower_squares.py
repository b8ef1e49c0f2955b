"""Squares: large results that are read across the order in which they are written.

    schedule with blocks of a tile --emit_squares--> the loops of a block

A block is so many steps of the tile axis by so many of the last loop; blocks follow the operand's
own order, so that each of its pages is entered once. A strip of squares goes into a buffer, and
from there to memory in whole lines past the cache (a line that is read before it is written, or
written in parts, costs twice as much); they are ordinary stores where memory is not aligned.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.stored import memory_of, place_of
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes import access, types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.schedule import Axis, Role
from hlo.indexing import affine
from hlo.indexing.affine import Expr


def emit_squares(elemental: Elemental, schedule: NestSchedule, position: Expr) -> None:
    """The code of one unit: a block."""
    extents = [axis.rounds for axis in schedule.parallel]
    *others, last, rows = affine.delinearized(position, extents)
    _Square(elemental, schedule, others, last, rows).emit()


def are_fenced(target: Target) -> bool:
    """Whether lines past the cache are waited for by an instruction of their own."""
    w = Writer()
    target.isa.fence_streams(w)
    return bool(w.records)


class _Square(Struct):
    """One block being written; others: the loops but the tile's and the last."""

    elemental: Elemental
    schedule: NestSchedule
    others: list[Expr]
    column_block: Expr
    row_block: Expr

    @property
    def rows(self) -> Axis:
        """The tile's axis in a block."""
        tile = self.schedule.tile
        assert tile is not None, "squares are along a tile axis"
        return tile

    @property
    def columns(self) -> Axis:
        """The last loop's axis in a block."""
        vector = self.schedule.vector
        assert vector is not None, "squares have lanes"
        return vector

    def emit(self) -> None:
        """Strips of squares into buffers, then whole lines from there."""
        outputs, nest, lanes = self.schedule.domain.outputs, self.elemental.nest, self.rows.step
        width = self.columns.extent
        buffers = [self._buffer(output, lanes * width) for output in outputs]

        def strip(row: Expr) -> None:
            def square(column: Expr) -> None:
                found = self._square(row, column)
                place = column - self.column_block * width
                for buffer, lanes in zip(buffers, found, strict=True):
                    for k, value in enumerate(lanes):
                        access.store(nest, buffer, place + k * width, value)

            self._along(self.columns, self.column_block, square)
            for output, buffer in zip(outputs, buffers, strict=True):
                self._lines(output, buffer, row)

        self._along(self.rows, self.row_block, strip)

    # -- loops over squares --------------------------------------------------------------------

    def _along(self, axis: Axis, block: Expr, body: Callable[[Expr], None]) -> None:
        """Squares' first positions along an axis in a block; the last square lies over the one
        before it.
        """
        nest, step, extent, size = self.elemental.nest, axis.step, axis.of, axis.extent
        lanes = axis.lanes if axis.role is Role.VECTOR else 1
        w = nest.w
        first = nest.scalar(block * size)
        end = w.binary("add", first, w.int(size))
        if extent % size:
            end = w.intrinsic("llvm.smin", "i64", end, w.int(extent))
        if extent % step:
            end = w.binary("add", end, w.int(step - 1))

        def one(counter: Value, _: list[Value]) -> list[Value]:
            value = counter
            if extent % step:
                value = w.intrinsic("llvm.smin", "i64", counter, w.int(extent - step))
            body(nest.variable(value, 0, extent - step if lanes == 1 else extent - 1, lanes))
            return []

        nest.loop(first, end, step, [], one)

    def _square(self, row: Expr, column: Expr) -> list[list[Lanes]]:
        """The vectors of a square, of each output."""
        domain = self.schedule.domain
        rows = [self._variables(row + k, column) for k in range(self.rows.step)]
        indices = [domain.index(values) for values in rows]
        return [self.elemental.lanes_at(o.source, indices, o.path) for o in domain.outputs]

    def _variables(self, row: Expr, column: Expr) -> list[Expr]:
        outer = list(self.others)
        outer.insert(self.rows.loop, row)
        return [*outer, column]

    # -- lines ---------------------------------------------------------------------------------

    def _buffer(self, output: Output, size: int) -> Memory:
        dtype = output.array.dtype
        return Memory(thread_memory(self.elemental, size * dtype.item_bytes), dtype, size)

    def _lines(self, output: Output, buffer: Memory, row: Expr) -> None:
        """The buffer's rows to memory: past the cache where lines are aligned."""
        nest = self.elemental.nest
        w, width, extent = nest.w, self.columns.extent, self.columns.of
        first = self.column_block * width
        count = w.int(width)
        if extent % width:
            left = w.binary("sub", w.int(extent), nest.scalar(first))
            count = w.intrinsic("llvm.smin", "i64", left, count)
        with nest.at(0):
            address = w.cast("ptrtoint", memory_of(self.elemental, output).base, "i64")
            low = w.binary("and", address, w.int(self.schedule.machine.line_bytes - 1))
            is_aligned = w.compare("icmp eq", low, w.int(0))
        none = w.int(0)
        for streams in (True, False):
            pair = (count, none) if streams else (none, count)
            end = w.select(is_aligned, *pair)
            self._lines_until(output, buffer, row, first, end, streams=streams)

    def _lines_until(
        self, output: Output, buffer: Memory, row: Expr, first: Expr, end: Value, *, streams: bool
    ) -> None:
        nest, domain = self.elemental.nest, self.schedule.domain
        w, width = nest.w, self.columns.extent
        base = memory_of(self.elemental, output).base
        element, line_bytes = types.storage_scalar(buffer.dtype), self.schedule.machine.line_bytes
        per_line = line_bytes // buffer.dtype.item_bytes
        components = 2 if buffer.dtype.is_complex else 1
        line = vector_of(element, per_line * components)
        hint = ", !nontemporal !{i32 1}" if streams else ""

        def columns(counter: Value, _: list[Value]) -> list[Value]:
            nest.stores(output.array.number)
            column = nest.variable(counter, 0, width - 1)
            for k in range(self.rows.step):
                index = domain.index(self._variables(row + k, first + column))
                source = nest.pointer(buffer.base, (column + k * width) * components, element)
                place = place_of(self.elemental, output, index)
                target = nest.pointer(base, place * components, element)
                value = w.load(source, line, line_bytes)
                align = line_bytes if streams else 1
                w.store(value, target, align, hint)
            return []

        nest.loop(0, end, per_line, [], columns)
