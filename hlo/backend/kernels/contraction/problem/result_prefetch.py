"""Result prefetch: while a tile is summed, the lines of the result that it will write arrive.

    Contraction, rows and columns of a tile --ResultPrefetch--> hints before the sums of a tile

A tile writes a line or two of each of its rows, which lie apart: no processor foresees them, so
that a store would wait for its line, and few stores can wait at once. Source: the microkernels of
BLIS fetch their tile of C first (Van Zee, van de Geijn, "BLIS", ACM TOMS 41, 2015).
"""

from __future__ import annotations

from hlo.backend.ir.arithmetic import add, strided
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.axes import Contraction, merged, only
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.ir.dtype import DType
from hlo.machine import Machine

# Loads of a tile's sums beside which a hint costs nothing. With less to load only results that go
# to memory gain: f32[1000,64] by [64,1000] took 1.03 of the time with hints.
BESIDE = 64


class ResultPrefetch:
    """Hints for tiles of so many rows and columns, whose sums load so many vectors; none where the
    result stays in a core's cache, or does not lie in rows, or `streams` past the caches.
    """

    def __init__(
        self,
        w: Writer,
        c: Contraction,
        machine: Machine,
        *,
        rows: int,
        columns: int,
        loads: int,
        streams: bool = False,
    ) -> None:
        self.w = w
        self.rows = rows
        self.dtype: DType = c.out
        self.line_bytes = machine.line_bytes
        self.axes = [(a.size, a.out) for a in merged(only(c.rows, "out"))]
        self.width_bytes = columns * self.dtype.item_bytes
        is_run = len(self.axes) == 1 and bool(c.columns) and c.columns[-1].out == 1
        size_bytes = c.batches * c.m * c.n * self.dtype.item_bytes
        hints = rows * -(-self.width_bytes // self.line_bytes)
        is_cheap = hints * BESIDE <= loads
        cache = machine.second_cache.bytes // 2 if is_cheap else machine.last_cache.bytes
        self.is_wanted = is_run and size_bytes > cache and not streams

    def tile(self, base: Value, index: Value, start: Value) -> None:
        """For the rows from `start` on. base: the result; index: of row 0 at the tile's columns."""
        if not self.is_wanted:
            return
        w, ((_, stride),) = self.w, self.axes
        first = add(w, index, strided(w, start, self.axes))
        here = element_address(w, base, first, self.dtype)
        row_bytes = stride * self.dtype.item_bytes
        # Rows that begin inside of lines end in one more.
        ends = [] if row_bytes % self.line_bytes == 0 else [self.width_bytes - 1]
        for row in range(self.rows):
            for at in (*range(0, self.width_bytes, self.line_bytes), *ends):
                line = w.offset("getelementptr", here, w.int(row * row_bytes + at), "i8")
                w.prefetch(line, is_written=True)
