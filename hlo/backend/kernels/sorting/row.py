"""Row: where the elements that are sorted together lie in a row-major array."""

from __future__ import annotations

import math

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer


class Row(Struct, frozen=True):
    """How rows of a row-major array lie in memory.

    rows: how many there are; count: elements of each; inner: elements between neighbours.
    """

    rows: int
    count: int
    inner: int

    @staticmethod
    def of(dims: tuple[int, ...], along: int) -> Row:
        """The rows along a dimension."""
        inner = math.prod(dims[along + 1 :])
        return Row(math.prod(dims[:along]) * inner, dims[along], inner)

    def base(self, w: Writer, r: Value) -> Value:
        """The number of row r's first element."""
        if self.inner == 1:
            return w.binary("mul", r, w.int(self.count))
        outer = w.binary("udiv", r, w.int(self.inner))
        rest = w.binary("urem", r, w.int(self.inner))
        start = w.binary("mul", outer, w.int(self.count * self.inner))
        return w.binary("add", start, rest)

    def address(self, w: Writer, array: Value, base: Value, j: Value, element: str) -> Value:
        """Where element j of the row lies."""
        step = j if self.inner == 1 else w.binary("mul", j, w.int(self.inner))
        return w.address(array, w.binary("add", base, step), element)
