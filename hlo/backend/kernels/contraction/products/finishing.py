"""Finishing: rows of a product's sums to the result, through what a fusion does to them.

    registers | scratch, a tile's rows --Finishing--> result

Where tiles are assembly this loop is the only one that is left to LLVM: it is a function of its
own, and the product around it is glue.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, advanced, divided, strided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.control import each
from hlo.backend.ir.functions import BUFFERS
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.microkernels.microkernel import Tile
from hlo.backend.kernels.contraction.problem.result import Epilogue, Result
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring
from hlo.backend.kernels.contraction.products.form import ProductForm
from hlo.backend.kernels.contraction.products.partial_sums import PartialSums
from hlo.backend.kernels.contraction.products.plan import ProductPlan
from hlo.backend.lanes.masked import below


class Columns(Struct, frozen=True):
    """The columns of a panel: the first one's index; which lanes of each vector there are."""

    start: Value
    masks: tuple[Value | None, ...]


class PartialTile(Struct, frozen=True):
    """A tile of sums in scratch: where its row 0 waits, and which row of the product that is; the
    first row to be stored; the index of the product's row 0 and column 0 in the result; the first
    column; the row behind the last to be stored.
    """

    sums: Value
    start: Value
    first: Value
    out_index: Value
    column: Value
    end: Value


def columns_from(w: Writer, plan: ProductPlan, start: Value) -> Columns:
    """Those of the panel that begins there."""
    n, lanes = plan.contraction.n, plan.ring.lanes
    if not plan.columns.exceeds(n):
        return Columns(start, (None,) * plan.vectors)
    last = w.int((plan.vectors - 1) * lanes)  # the one panel there is begins at 0
    return Columns(start, (*(None,) * (plan.vectors - 1), below(w, last, n, lanes)))


def waits(ring: Ring, epilogue: Epilogue | None) -> bool:
    """Whether what turned sums become takes the place of the sums until all of a square are."""
    return epilogue is not None and epilogue.dtype.bits <= 8 * ring.scalar_bytes


class Finishing:
    """Stores of one function: the product's kernel, or the one that it calls."""

    def __init__(
        self, w: Writer, plan: ProductPlan, form: ProductForm, epilogue: Epilogue | None
    ) -> None:
        self.w, self.plan, self.form = w, plan, form
        self.c, self.ring = plan.contraction, plan.ring
        self.epilogue = epilogue
        self.result = Result(w, self.ring, self.c.out, 2, epilogue)

    def row(self, row: Sequence[Parts], out_index: Value, offset: Value, columns: Columns) -> None:
        """A row of sums to where it begins in the result."""
        if self.epilogue is not None and self.epilogue.gates > 1:
            self._gates(row, add(self.w, out_index, offset), columns, self.epilogue.gates)
            return
        w, stride = self.w, self.c.columns[-1].out if self.c.columns else 1
        index = add(w, add(w, out_index, offset), times(w, columns.start, stride))
        for v, (parts, mask) in enumerate(zip(row, columns.masks, strict=True)):
            at = add(w, index, w.int(v * self.ring.lanes * stride))
            self.result.store(parts, at, stride, mask)

    def _gates(self, row: Sequence[Parts], index: Value, columns: Columns, gates: int) -> None:
        """A row of a panel that has columns of all gates, to its elements from an index on."""
        w, lanes = self.w, self.ring.lanes
        index = add(w, index, divided(w, columns.start, gates))
        count = len(row) // gates
        for v in range(count):
            sums = tuple(part for parts in row[v::count] for part in parts)
            self.result.store(sums, add(w, index, w.int(v * lanes)), 1, None)

    def tile(self, tile: Tile, start: Value, out_index: Value, columns: Columns) -> None:
        """The rows of a tile in registers, the first one the product's row `start`."""
        w, axes = self.w, self.form.row_axes
        base = strided(w, start, axes)
        stride = axes[0][1] if axes else 0
        for r, row in enumerate(tile):
            self.row(row, out_index, add(w, base, w.int(r * stride)), columns)

    def waiting(self, tile: PartialTile, columns: Columns) -> None:
        """The rows of a tile that waits."""
        w, waiting = self.w, PartialSums(self.w, self.plan)
        waiting.place(tile.sums)
        if self.plan.turns:
            self._turned(tile, waiting)
            return

        def at_row(r: Value) -> None:
            offset = strided(w, add(w, tile.start, r), self.form.row_axes)
            self.row(waiting.sums(waiting.row(r)), tile.out_index, offset, columns)

        each(w, tile.first, tile.end, at_row)

    def _turned(self, tile: PartialTile, waiting: PartialSums) -> None:
        """A tile's columns, which follow each other in the result, a vector of all at a time. What
        a fusion does to them is written once: they wait once more when it is done, where what the
        result holds has room for that.
        """
        w, rows, lanes = self.w, self.plan.rows.step, self.ring.lanes
        index = add(w, tile.out_index, times(w, tile.column, rows))
        is_waiting = waits(self.ring, self.epilogue)
        held = self.result.vector(lanes) if is_waiting else self.ring.vector

        def at_vector(v: Value) -> None:
            first = times(w, v, lanes)
            begin = add(w, index, times(w, first, rows))

            def place(row: Value) -> Value:
                return advanced(w, waiting.row(row), first, self.ring.scalar)

            if is_waiting:
                each(w, w.int(0), w.int(rows), lambda r: self._finished(place(r), begin, r))
            places = [place(w.int(r)) for r in range(rows)]
            values = [w.load(at, held, self.ring.scalar_bytes) for at in places]
            if not is_waiting:
                values = [self._form(x, begin, w.int(r)) for r, x in enumerate(values)]
            self.result.store_turns(values, begin)

        each(w, w.int(0), w.int(self.plan.vectors), at_vector)

    def _form(self, sums: Value, begin: Value, row: Value) -> Value:
        """A vector of a row's sums as what the result holds; its first row's lane 0 is at begin."""
        index = add(self.w, begin, row)
        (value,) = self.result.form((sums,), index, self.plan.rows.step, None)
        return value

    def _finished(self, place: Value, begin: Value, row: Value) -> None:
        """The same of a vector that waits, in its place."""
        sums = self.w.load(place, self.ring.vector, self.ring.scalar_bytes)
        self.w.store(self._form(sums, begin, row), place, self.ring.scalar_bytes)

    def called(self, tile: PartialTile) -> Kernel:
        """Like `waiting`, by a function; what is called."""
        names = PartialTile.__struct_fields__[: 5 if tile.end.is_constant else 6]
        given = [getattr(tile, name) for name in names]
        own = [Value(f"%{name}", value.type) for name, value in zip(names, given, strict=True)]
        inner = Writer()
        finishing = Finishing(inner, self.plan, self.form, self.epilogue)
        there = replace(tile, **dict(zip(names, own, strict=True)))
        finishing.waiting(there, columns_from(inner, self.plan, there.column))
        function = as_function(inner, (BUFFERS, *own), has_entry=False)
        call(self.w, function, BUFFERS, *given)
        return function
