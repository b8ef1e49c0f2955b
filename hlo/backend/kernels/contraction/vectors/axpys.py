"""Axpys: few rows against a large matrix whose rows are the columns' runs.

    out[m, :] += lhs[m, k] * rhs[k, :]

The matrix is read once, in its own order; sums wait in the first cache (chunks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hlo.analysis.factors import ROWS_AT_ONCE
from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.problem.addressing import (
    Place,
    Run,
    begin,
    define,
    moved,
    outside,
    read,
)
from hlo.backend.kernels.contraction.problem.axes import (
    Contraction,
    static_offset,
)
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address, loaded
from hlo.backend.kernels.contraction.vectors.chunks import Chunks
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.plan import (
    DEPTHS,
    LEAST_UNITS,
    column_blocks,
    row_groups,
)


class Axpys(Chunks[Value | None]):
    """`depths` rows of the matrix at a time are added to the sums of a chunk of columns, `vectors`
    of them at a time. Few numbers of lhs wait in registers (is_held), others are read where they
    are used, once for these vectors. groups: of lhs's rows, that meet these one after the other.
    """

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        super().__init__(c, ring, epilogue)
        blocks = column_blocks(c, ring)
        if c.batches * blocks < LEAST_UNITS:
            blocks = max(blocks, min(LEAST_UNITS, self._blocks(c.n // (8 * ring.lanes))))
        self._cut(ring.lanes, blocks)
        most = 16 if ring.registers == 32 else 8
        self.holds_matrix = ring.parts == 1 and c.m > ROWS_AT_ONCE
        # Two vectors of the matrix's rows meet a number of lhs, so that it is read once for both.
        self.depths = max(1, min(most // 2 if self.holds_matrix else DEPTHS, c.k))
        # Blocks of sums end where they do with another machine's groups: bits are the same.
        self.whole = c.k // DEPTHS * DEPTHS
        self.is_held = c.m * ring.parts * self.depths <= most
        self.groups = [range(c.m)] if self.holds_matrix else row_groups(c.m)
        held = self.depths if self.holds_matrix else len(self.groups[0]) * ring.parts
        self.vectors = 1 if self.is_held else max(1, min(2, most // held))
        self.ahead = RowPrefetch.of_rows(c, ring.target.machine)
        self.sums_size = c.m * self.chunk * ring.parts
        self.scratch_bytes = (1 + self.has_totals) * self.sums_size * ring.scalar_bytes

    def leaves_vectors(self, at_once: int) -> bool:
        """Whether some unit has whole vectors of columns left when it takes so many at a time."""
        lanes = self.ring.lanes
        return any(columns // lanes % at_once for columns in (self.chunk, self.c.n))

    def kernel(self) -> Kernel:
        """The kernel, written."""
        return self._kernel(self._block)

    def _each(self, body: Callable[[Value, Value | None], None]) -> None:
        """body(column within the chunk, mask) for the chunk's vectors."""
        self._each_run(lambda at, mask, vectors: body(at, mask), 1)

    def _each_run(self, body: Callable[[Value, Value | None, int], None], vectors: int) -> None:
        """body(column within the chunk, mask, how many) for 1 or 2 vectors at a time, then for what
        is left: a whole one, a part of one.
        """
        w, lanes = self.w, self.ring.lanes
        runs, whole = (divided(w, self.count, n * lanes) for n in (vectors, 1))
        ranged(w, w.int(0), runs, lambda i: body(times(w, i, vectors * lanes), None, vectors))
        if self.leaves_vectors(vectors):
            last = times(w, runs, vectors)
            at_last = times(w, last, lanes)
            self._once(w.binary("sub", whole, last), lambda: body(at_last, None, 1))
        if self.c.n % lanes == 0:
            return
        rest = w.binary("urem", self.count, w.int(lanes))
        at = times(w, whole, lanes)
        mask = w.compare("icmp ult", counted("i64", lanes), w.splat(rest, lanes))
        self._once(rest, lambda: body(at, mask, 1))

    def _once(self, count: Value, body: Callable[[], None]) -> None:
        """The body where the count is not 0."""
        some = self.w.intrinsic("llvm.umin", "i64", count, self.w.int(1))
        ranged(self.w, self.w.int(0), some, lambda _: body())

    def _sum_addresses(self, row: int, at: Value, *, of_totals: bool = False) -> list[Value]:
        ring, first = self.ring, self.sums_size if of_totals else 0
        addresses = [first + (row * ring.parts + i) * self.chunk for i in range(ring.parts)]
        moved = advanced(self.w, self.scratch, at, ring.scalar)
        return [advanced(self.w, moved, place, ring.scalar) for place in addresses]

    def _clear(self, at: Value, mask: Value | None) -> None:
        for r in range(self.c.m):
            zeros = self.ring.zero(self.w, self.ring.lanes)
            self._put(zeros, self._sum_addresses(r, at))
            if self.has_totals:
                self._put(zeros, self._sum_addresses(r, at, of_totals=True))

    def _put(self, values: Parts, addresses: list[Value]) -> None:
        for value, address in zip(values, addresses, strict=True):
            self.w.store(value, address, self.ring.scalar_bytes)

    def _add_to_totals(self, at: Value, mask: Value | None) -> None:
        zeros = self.ring.zero(self.w, self.ring.lanes)
        for r in range(self.c.m):
            addresses = self._sum_addresses(r, at, of_totals=True)
            self._put(self._with_totals(r, at), addresses)
            self._put(zeros, self._sum_addresses(r, at))

    def _with_totals(self, row: int, at: Value) -> Parts:
        sums = self._at(self._sum_addresses(row, at))
        if not self.has_totals:
            return sums
        totals = self._at(self._sum_addresses(row, at, of_totals=True))
        return self.ring.add(self.w, totals, sums)

    def _at(self, addresses: list[Value]) -> Parts:
        ring = self.ring
        return tuple(self.w.load(a, ring.vector, ring.scalar_bytes) for a in addresses)

    def _group(self, number: Value, depths: int) -> list[Value]:
        """Depths from one on that is a multiple of a whole group's."""
        w, c, ring, size = self.w, self.c, self.ring, self.depths
        k = times(w, number, size)
        (axis,) = c.depth
        bases: list[Value] = []
        matrix_rows: list[Place] = []
        for d in range(depths):
            at = add(w, k, w.int(d))
            bases.append(element_address(w, self.lhs, times(w, at, axis.lhs), c.lhs.dtype))
            define(self.matrix, at, number, max(1, c.k // size), size, d)
            depth = ((axis.size, axis.rhs),)
            matrix_rows.append(moved(w, self.matrix, at, depth, c.rhs.dtype))
        held = [[self._number(base, r) for r in range(c.m)] for base in bases if self.is_held]

        def at_run(rows: Sequence[int], at: Value, mask: Value | None, vectors: int) -> None:
            begin(ring, *matrix_rows[:1])
            places = [add(w, at, w.int(v * ring.lanes)) for v in range(vectors)]
            self._ask_next(matrix_rows, number, at, vectors * ring.lanes)
            columns: dict[int, list[Parts]] = {}
            sums: dict[int, list[Parts]] = {}
            for r, d in self._order(rows, depths):
                if d == 0:
                    sums[r] = [self._at(self._sum_addresses(r, p)) for p in places]
                if d not in columns:
                    columns[d] = [self._columns_of(matrix_rows[d], p, mask) for p in places]
                left = held[d][r] if held else self._number(bases[d], r)
                pairs = zip(sums[r], columns[d], strict=True)
                sums[r] = [ring.multiply_add(w, total, left, x) for total, x in pairs]
                if d == depths - 1:
                    for total, place in zip(sums.pop(r), places, strict=True):
                        self._put(total, self._sum_addresses(r, place))

        with outside(matrix_rows[0]):
            for rows in self.groups:
                self._each_run(partial(at_run, rows), self.vectors)
        return []

    def _order(self, rows: Sequence[int], depths: int) -> list[tuple[int, int]]:
        """Registers hold the sums of few rows while those of the matrix come; of more they hold the
        rows of the matrix, whose depths each row of lhs takes one after the other. Two parts of
        each would leave too few registers: groups of sums.
        """
        if self.holds_matrix:
            return [(r, d) for r in rows for d in range(depths)]
        return [(r, d) for d in range(depths) for r in rows]

    def _columns_of(self, row: Place, at: Value, mask: Value | None) -> Parts:
        """A vector of a row of the matrix. at: the column within the chunk, whose first one an
        address is moved to.
        """
        w, n, lanes = self.w, self.c.n, self.ring.lanes
        if not isinstance(row, Value):
            # What is left of a vector of columns is at the end of them all.
            is_last = mask is not None
            at = w.int(n // lanes * lanes) if is_last else add(w, self.first_column, at)
        run = Run(at, n, is_whole=True)
        return read(w, self.ring, self.c.rhs.dtype, row, run, lanes, mask)

    def _number(self, base: Value, row: int) -> Parts:
        w, c, ring = self.w, self.c, self.ring
        offset = w.int(static_offset(row, c.rows, "lhs"))
        parts = loaded(w, ring, c.lhs.dtype, element_address(w, base, offset, c.lhs.dtype), 1)
        return tuple(w.splat(p, ring.lanes) for p in parts)

    def _finish(self, at: Value, mask: Value | None) -> None:
        column = add(self.w, self.first_column, at)
        for r in range(self.c.m):
            self._store(r, column, self._with_totals(r, at), mask)
