"""Word dots: few rows against a matrix of 8-bit integers whose columns run along depth, as words.

    sum of (l + 128) r - sum of 128 r  =  sum of l r      modulo 2^32

Both factors lie as quads along depth, so that the matrix is read once and as it is; rows, whose
elements the instruction may want moved by half their range (words.py), are copied, which are few.
What a row of zeros gives, moved so, is a product of the same vectors of the matrix with a number
that the code knows, in the first group of rows, and is taken from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.problem.addressing import Place
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Parts
from hlo.backend.kernels.contraction.vectors.gemv import Dots
from hlo.backend.kernels.contraction.words.words import Worded
from hlo.backend.kernels.contraction.words.zeros import ZERO_WORD


class WordDots(Dots):
    """The kernel. buffers: lhs's words, rhs, result, what the epilogue reads, starts."""

    def __init__(self, worded: Worded, epilogue: Epilogue | None) -> None:
        super().__init__(worded.contraction, worded.ring, epilogue)
        self.is_moved = worded.lhs.is_moved
        self.zeros: Parts | None = None

    def _columns(self, step: Value) -> None:
        self.zeros = None
        super()._columns(step)

    def _rows(
        self, numbers: Sequence[int], columns: list[Place], start: Value, mask: Value | None
    ) -> None:
        w, rows = self.w, self._row_places(numbers)
        if self.is_moved and self.zeros is None:
            *totals, self.zeros = self._totals([*rows, self._zero_word], columns)
        else:
            totals = self._totals(rows, columns)
        for r, total in zip(numbers, totals, strict=True):
            if self.zeros is not None:
                total = tuple(w.binary("sub", a, b) for a, b in zip(total, self.zeros, strict=True))
            self._store(r, start, total, mask)

    @property
    def _zero_word(self) -> Value:
        """In place of a row's address."""
        return self.w.int(ZERO_WORD, "i32")

    def _further(self, row: Value, elements: Value) -> Value:
        return super()._further(row, elements) if row.type == "ptr" else row

    def _of_row(self, row: Value, k: Value, mask: Value | None) -> Parts:
        if row.type == "ptr":
            return super()._of_row(row, k, mask)
        return (self.w.splat(row, self.ring.lanes),)
