"""Matrix prefetch: rows that are asked for ahead, where a matrix comes from memory.

Streams of few rows go over runs of a matrix's rows, some rows side by side. These are far apart,
and a processor's own prefetcher ends at a page: hints ask for the next rows' lines while the
products of these are made. On Zen 4 8 rows of bf16 by 4096 x 8192 take half the time so. What the
last cache holds comes fast enough: hints would cost a tenth. Not so where rows are short and lie
one after the other (dots of each with a vector): several go on side by side, each too short for the
processor to see where it goes, and the next ones are asked for into the first cache. And not so
where dots make many products of what they load, which fill the window in which a core looks for
further loads: without hints products and memory take their times one after the other. So does
arithmetic on what rows are computed of, element by element, whose lines are asked for instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.addressing import Place, Run, followed
from hlo.backend.kernels.contraction.problem.axes import Contraction, extent
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.ir.dtype import DType
from hlo.machine import Machine

# Of a page, the longest rows of which the next ones are asked for, of a matrix that a core's caches
# may hold. Emerald Rapids, f32: rows of 64 took 0.8 of the time so, of 200 0.85, of 500 0.95, of
# 1000 1.1.
_SHORT_ROW = 0.5
# Rows that dots multiply a matrix by from which on hints pay out of the last cache too. Zen 4, one
# and two threads, f32: 1024 x 2048 to 1400 x 4096 numbers by 6 and 8 rows 0.7 to 0.98 of the time,
# by 1 to 3 rows 0.9 to 1.24. Out of memory, 2048 x 4096 to 8192 x 4096: 1 to 12 rows 0.7 to 0.93,
# bf16 and f16 0.62 to 0.8, c64 0.65.
_BUSY_ROWS = 4


class RowPrefetch(Struct, frozen=True):
    """Which lines of a matrix are asked for ahead.

    dtype: of the matrix; line_bytes: 0 where nothing is asked for; locality: LLVM's number of
    the cache that is asked, 3 of the first one, 2 of the second; awaited_bytes: that come while one
    line is waited for.
    """

    dtype: DType
    line_bytes: int
    locality: int = 2
    awaited_bytes: int = 0

    @staticmethod
    def of(c: Contraction, machine: Machine) -> RowPrefetch:
        """For the columns of a product that comes from memory."""
        return RowPrefetch._beyond(2 * machine.last_cache.bytes, c, machine)

    @staticmethod
    def of_rows(c: Contraction, machine: Machine) -> RowPrefetch:
        """For rows of columns, which may be computed of an array that comes from memory."""
        found = RowPrefetch.of(c, machine)
        if c.rhs.prologue is None or _matrix_bytes(c) <= 2 * machine.last_cache.bytes:
            return found
        return replace(found, line_bytes=machine.line_bytes)

    @staticmethod
    def of_dots(c: Contraction, machine: Machine) -> RowPrefetch:
        """For columns that run along depth, of which some are read side by side."""
        short = RowPrefetch.of_short(c, machine)
        second, last = machine.second_cache.bytes, machine.last_cache.bytes
        near = second if c.m >= _BUSY_ROWS else 4 * last  # of which a core may find others' shares
        return short if short.line_bytes else RowPrefetch._beyond(near, c, machine)

    @staticmethod
    def _beyond(near: int, c: Contraction, machine: Machine) -> RowPrefetch:
        """For matrices of more than so many bytes in all, which come fast enough."""
        is_far = c.rhs.prologue is None and _matrix_bytes(c) > near
        awaited = machine.rates.awaited_bytes
        return RowPrefetch(c.rhs.dtype, machine.line_bytes if is_far else 0, awaited_bytes=awaited)

    @staticmethod
    def of_short(c: Contraction, machine: Machine) -> RowPrefetch:
        """For rows of the matrix (its columns, as the product sees them) that lie one after the
        other and end before a processor's own prefetcher has seen where they go.
        """
        row_bytes = c.k * c.rhs.dtype.item_bytes
        is_run = len(c.depth) == 1 and len(c.columns) == 1 and c.columns[0].rhs == c.k
        is_short = row_bytes <= _SHORT_ROW * machine.cycles.page_bytes
        is_large = machine.first_cache.bytes < row_bytes * c.n
        asks = is_run and is_short and is_large and c.rhs.prologue is None
        awaited = machine.rates.awaited_bytes
        return RowPrefetch(c.rhs.dtype, machine.line_bytes if asks else 0, 3, awaited)

    def steps(self, elements: int) -> int:
        """How many steps of so many elements of the matrix ahead lines are asked for: short ones
        are over before their lines have come.
        """
        return max(1, -(-self.awaited_bytes // (elements * self.dtype.item_bytes)))

    def ask(self, w: Writer, rows: Sequence[Place], first: Value, ahead: int, columns: int) -> None:
        """For so many columns from the first on of the rows so many elements ahead, which may lie
        behind the matrix: a hint is no access.
        """
        size = self.dtype.item_bytes
        for row in rows if self.line_bytes else ():
            assert isinstance(row, Value), "in memory"
            at = element_address(w, row, first, self.dtype)
            self._ask_lines(w, at, ahead * size, columns * size)

    def ask_source(
        self, w: Writer, row: Place, run: Run, lanes: int, counter: Value, steps: int
    ) -> None:
        """The same for a vector of a row that is computed of an array's elements one by one, for
        as many steps of the counter ahead; nothing where it is computed otherwise.
        """
        found = followed(row, run, counter) if self.line_bytes else None
        if found is not None:
            size = lanes * found.item_bytes
            self._ask_lines(w, found.address, steps * found.step_bytes, size)

    def _ask_lines(self, w: Writer, at: Value, ahead: int, size: int) -> None:
        for byte in range(0, size, self.line_bytes):
            there = w.offset("getelementptr", at, w.int(ahead + byte), "i8")
            w.prefetch(there, locality=self.locality)


def _matrix_bytes(c: Contraction) -> float:
    """Of all batches' columns, as they are read."""
    matrices = extent(tuple(a for a in c.batch if a.rhs))
    return matrices * c.k * c.n * c.rhs.read_bytes
