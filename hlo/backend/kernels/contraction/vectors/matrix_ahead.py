"""Rows of a matrix that are asked for ahead, where it comes from memory.

Streams of few rows go over runs of a matrix's rows, some rows side by side. These are far apart,
and a processor's own prefetcher ends at a page: hints ask for the next rows' lines while the
products of these are made. On Zen 4 8 rows of bf16 by 4096 x 8192 take half the time so. What the
last cache holds comes fast enough: hints would cost a tenth.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.places import Place
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.ir.dtype import DType
from hlo.machine import Machine


class RowsAhead(Struct, frozen=True):
    """dtype: of the matrix; line_bytes: 0 where nothing is asked for."""

    dtype: DType
    line_bytes: int

    @staticmethod
    def of(c: Contraction, machine: Machine) -> RowsAhead:
        """For the columns of a product."""
        size = c.k * c.n * c.rhs.dtype.item_bytes
        is_far = size > 2 * machine.last_cache.bytes and c.rhs.prologue is None
        return RowsAhead(c.rhs.dtype, machine.line_bytes if is_far else 0)

    def ask(self, w: Writer, rows: Sequence[Place], first: Value, ahead: int, columns: int) -> None:
        """For so many columns from the first on of the rows so many elements ahead, which may lie
        behind the matrix: a hint is no access.
        """
        size = self.dtype.item_bytes
        for row in rows if self.line_bytes else ():
            assert isinstance(row, Value), "in memory"
            at = element_address(w, row, first, self.dtype)
            for byte in range(0, columns * size, self.line_bytes):
                there = w.offset("getelementptr", at, w.int(ahead * size + byte), "i8")
                w.call_declared("llvm.prefetch.p0", there, *(w.int(n, "i32") for n in (0, 2, 1)))
