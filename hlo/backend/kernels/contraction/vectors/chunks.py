"""Chunks: what kernels share that add the matrix's rows to sums of a chunk of its columns.

A chunk is a unit's columns, whose sums wait in the first cache while the unit goes through the
matrix's rows, some of them at a time. A column's BLOCK depths are added before the total
(sum_blocks.py).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from hlo.backend.ir.arithmetic import add, clipped, times
from hlo.backend.ir.control import loop
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.problem.addressing import Place, Run
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring, element_address
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.streaming import Streaming

P = TypeVar("P")  # what says which of some columns exist: a mask, or how many


class Chunks(Streaming, Generic[P]):
    """A kernel that adds rows of a matrix to sums of a chunk of its columns.

    chunk: columns of each unit but the last; depths: rows of the matrix taken at a time,
    as a group; whole: depths in groups that a loop goes through, those behind it are written out;
    ahead: which lines of further groups are asked for.
    """

    depths: int
    whole: int
    ahead: RowPrefetch

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        super().__init__(c, ring, epilogue)
        self.has_totals = ring.rounds and c.k > BLOCK

    def _cut(self, step: int, blocks: int) -> None:
        """Columns are cut into so many blocks, or fewer, of whole steps."""
        steps = -(-self.c.n // step)
        self.chunk = -(-steps // blocks) * step
        self.blocks = -(-self.c.n // self.chunk)

    def _block(self, block: Value) -> None:
        """A unit's chunk: zeros, all rows of the matrix, the results."""
        w, c = self.w, self.c
        start = times(w, block, self.chunk)
        self.first_column = start
        self.matrix: Place = self.rhs
        if isinstance(self.rhs, Value):
            self.matrix = element_address(w, self.rhs, start, c.rhs.dtype)
        left = w.binary("sub", w.int(c.n), start)
        self.count = w.intrinsic("llvm.umin", "i64", left, w.int(self.chunk))
        self._each(self._clear)
        groups, size = self.whole // self.depths, BLOCK // self.depths

        def block_of_sums(number: Value, _: list[Value]) -> list[Value]:
            first = times(w, number, size)
            count = clipped(w, first, size, groups)
            loop(w, count, [], lambda g, _: self._group(add(w, first, g), self.depths))
            self._each(self._add_to_totals)
            return []

        if self.has_totals:
            loop(w, w.int(-(-groups // size)), [], block_of_sums)
        elif groups:
            loop(w, w.int(groups), [], lambda g, _: self._group(g, self.depths))
        for first in range(self.whole, c.k, self.depths):
            self._group(w.int(first // self.depths), min(self.depths, c.k - first))
        self._each(self._finish)

    def _ask_next(self, rows: list[Place], number: Value, at: Value, columns: int) -> None:
        """For the lines of some columns of the rows that come next. number: the group's, of which
        code begins to read; at: the first column within the chunk.
        """
        w, lanes, step = self.w, self.ring.lanes, self.c.depth[0].rhs
        groups = self.ahead.steps(len(rows) * self.chunk)
        if isinstance(rows[0], Value):
            self.ahead.ask(w, rows, at, groups * len(rows) * step, columns)
            return
        for first in range(0, columns, lanes):
            run = Run(add(w, add(w, self.first_column, at), w.int(first)), self.c.n)
            for row in rows:
                self.ahead.ask_source(w, row, run, lanes, number, groups)

    @abstractmethod
    def _each(self, body: Callable[[Value, P], None]) -> None:
        """body(first column within the chunk, which there are) for all of them."""

    @abstractmethod
    def _clear(self, at: Value, part: P) -> None:
        """Sums and totals are zeros."""

    @abstractmethod
    def _add_to_totals(self, at: Value, part: P) -> None:
        """A block's sums; the next one begins with zeros."""

    @abstractmethod
    def _finish(self, at: Value, part: P) -> None:
        """Results of sums, stored."""

    @abstractmethod
    def _group(self, number: Value, depths: int) -> list[Value]:
        """Add so many rows of the matrix to the sums, from those on that this many groups leave
        behind.
        """
