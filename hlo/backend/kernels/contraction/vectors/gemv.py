"""Matrix-vector products: few rows against a large matrix, which is read once, in its own order.

    dots:  out[m, n] = sum of lhs[m, :] * rhs[n, :]   vectors along depth, summed across at the end
    axpys: out[m, :] += lhs[m, k] * rhs[k, :]         vectors along the columns (axpys.py)

Both read whole stretches of memory, as bandwidth wants it; neither packs anything. Few columns that
run along depth are rows of dots, with many results at one distance: `is_turned`. Complex ones are
copied for that, both parts apart, so that rows take apart the matrix alone. A lane of dots
sums DOTS_BLOCK vectors, a column of axpys BLOCK depths (sum_blocks.py), before these sums are added
to the total: vector_sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo.backend.ir.arithmetic import add, clipped, divided, times
from hlo.backend.ir.control import loop, ranged
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.microkernels.lane_sums import across
from hlo.backend.kernels.contraction.problem.addressing import (
    Place,
    Run,
    begin,
    moved,
    outside,
    read,
)
from hlo.backend.kernels.contraction.problem.axes import (
    Axes,
    Contraction,
    static_offset,
)
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address, loaded
from hlo.backend.kernels.contraction.problem.sum_blocks import block_sizes
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.plan import (
    at_once,
    chains,
    dots_cut,
    dots_rows,
    is_dots,
)
from hlo.backend.kernels.contraction.vectors.streaming import Streaming
from hlo.backend.lanes.masked import below, first_of
from hlo.backend.lanes.masked import load as masked_load

if TYPE_CHECKING:
    from hlo.backend.kernels.contraction.vectors.axpys import Axpys


def streamed(c: Contraction, ring: Ring, epilogue: Epilogue | None = None) -> Dots | Axpys:
    """The kernel of a product whose other factor is streamed (plan.py), to be written.

    buffers: lhs, rhs, result, what the epilogue reads, starts, scratch.
    """
    if is_dots(c, ring):
        return Dots(c, ring, epilogue)
    from hlo.backend.kernels.contraction.vectors.axpys import Axpys  # many programs have dots alone

    return Axpys(c, ring, epilogue)


# -- dots --------------------------------------------------------------------------------------


class Dots(Streaming):
    """Rows x `at_once` columns x `chains` of sums in registers; depth in vectors. A unit takes
    `size` of the `steps` of columns. asking: of the columns of a step those for which the group of
    rows at work asks for the next ones.
    """

    asking: range

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        super().__init__(c, ring, epilogue)
        self.at_once = at_once(c, ring)
        self.chains = chains(c, ring)
        self.cut = dots_cut(c, ring)
        self.ahead = RowPrefetch.of_dots(c, ring.target.machine)
        step = self.at_once * (c.columns[-1].rhs if c.columns else 0)
        self.next_columns = self.ahead.steps(self.at_once * c.k) * step
        self.steps = -(-c.n // self.at_once)
        self.size = -(-self.steps // self._blocks(self.steps))
        self.blocks = -(-self.steps // self.size)

    def kernel(self) -> Kernel:
        """The kernel, written."""

        def block(index: Value) -> None:
            w, size = self.w, self.size
            first = times(w, index, size)
            last = w.intrinsic("llvm.umin", "i64", add(w, first, w.int(size)), w.int(self.steps))
            ranged(w, first, last, self._columns)

        return self._kernel(block)

    def _columns(self, step: Value) -> None:
        w, c = self.w, self.c
        start = times(w, step, self.at_once)
        columns = self._column_places(start)
        mask = None
        if c.n % self.at_once:
            mask = below(w, start, c.n, self.at_once)
        with outside(columns[0]):
            groups = dots_rows(c, self.ring)
            for number, rows in enumerate(groups):
                self.asking = range(number, self.at_once, len(groups))
                self._rows(rows, columns, start, mask)

    def _rows(
        self, numbers: Sequence[int], columns: list[Place], start: Value, mask: Value | None
    ) -> None:
        """The results of some rows in these columns."""
        totals = self._totals(self._row_places(numbers), columns)
        for r, total in zip(numbers, totals, strict=True):
            self._store(r, start, total, mask)

    def _row_places(self, numbers: Sequence[int]) -> list[Value]:
        """Where rows begin."""
        w, c = self.w, self.c
        offsets = [w.int(static_offset(r, c.rows, "lhs")) for r in numbers]
        return [element_address(w, self.lhs, offset, c.lhs.dtype) for offset in offsets]

    def _further(self, row: Value, elements: Value) -> Value:
        """Where a row goes on, so many elements behind."""
        return element_address(self.w, row, elements, self.c.lhs.dtype)

    def _totals(self, rows: list[Value], columns: list[Place]) -> list[Parts]:
        """Of some rows with these columns, a vector each."""
        w, c, ring = self.w, self.c, self.ring
        parts, width = ring.parts, ring.parts * self.at_once
        zeros = list(ring.zero(w, ring.lanes)) * (len(rows) * self.at_once * self.chains)
        sums = self._over_depth(c.depth, rows, columns, zeros)
        while len(sums) > len(rows) * width:
            half = len(sums) // 2
            sums = self._added(sums[:half], sums[half:])
        own = [sums[n * width : (n + 1) * width] for n in range(len(rows))]
        return [tuple(across(w, ring, row[i::parts]) for i in range(parts)) for row in own]

    def _column_places(self, start: Value) -> list[Place]:
        """Where the columns begin; those beyond the last repeat it."""
        w, c = self.w, self.c
        axes = [(a.size, a.rhs) for a in c.columns]
        places = []
        for j in range(self.at_once):
            index = add(w, start, w.int(j))
            if c.n % self.at_once:
                index = w.intrinsic("llvm.umin", "i64", index, w.int(c.n - 1))
            places.append(moved(w, self.rhs, index, axes, c.rhs.dtype))
        return places

    def _over_depth(
        self, axes: Axes, rows: list[Value], columns: list[Place], sums: list[Value]
    ) -> list[Value]:
        """The loops over depth; the one that is cut makes blocks, and adds them."""
        w, axis, inner = self.w, axes[0], axes[1:]
        level = len(self.c.depth) - len(axes)
        rounds = self.cut.rounds if self.cut and self.cut.level == level else 0
        if not inner:
            return self._run(axis.size, rounds, rows, columns, sums)

        def once(i: Value, carried: list[Value]) -> list[Value]:
            own_rows = [self._further(at, times(w, i, axis.lhs)) for at in rows]
            own = [moved(w, at, i, ((axis.size, axis.rhs),), self.c.rhs.dtype) for at in columns]
            return self._over_depth(inner, own_rows, own, carried)

        def block(number: Value, totals: list[Value]) -> list[Value]:
            first = times(w, number, rounds)
            count = clipped(w, first, rounds, axis.size)
            own = loop(w, count, self._zeros(totals), lambda i, s: once(add(w, first, i), s))
            return self._added(totals, own)

        if not rounds:
            return loop(w, w.int(axis.size), sums, once)
        return loop(w, w.int(-(-axis.size // rounds)), sums, block)

    def _run(
        self, size: int, rounds: int, rows: list[Value], columns: list[Place], sums: list[Value]
    ) -> list[Value]:
        """One contiguous run of depth: blocks of `rounds` (0: one), the rest masked."""
        w, lanes, chains = self.w, self.ring.lanes, self.chains
        vectors, rest = divmod(size, lanes)
        whole, left = divmod(vectors, chains)
        sizes = block_sizes(rounds, whole) if rounds else ()

        def added(
            first: Value, most: int, sizes: Sequence[int], before: list[Value]
        ) -> list[Value]:
            """With up to `most` rounds from the first on, each a vector for every chain."""
            count = clipped(w, first, most, whole)
            if not sizes:
                return loop(w, count, before, lambda i, found: round_(add(w, first, i), found))
            block, *smaller = sizes

            def at_block(number: Value, totals: list[Value]) -> list[Value]:
                at = add(w, first, times(w, number, block))
                return self._added(totals, added(at, block, smaller, self._zeros(totals)))

            blocks = divided(w, add(w, count, w.int(block - 1)), block)
            return loop(w, blocks, before, at_block)

        def round_(number: Value, found: list[Value]) -> list[Value]:
            first = times(w, number, chains)
            for chain in range(chains):
                at = times(w, add(w, first, w.int(chain)), lanes)
                found = self._step(at, None, chain, rows, columns, found)
            return found

        own = self._zeros(sums) if rounds else sums
        if whole:
            own = added(w.int(0), whole, sizes, own)
        for chain in range(left + (rest > 0)):
            mask = None
            if chain == left:
                mask = first_of(rest, lanes)
            at = w.int((whole * chains + chain) * lanes)
            own = self._step(at, mask, chain, rows, columns, own)
        return self._added(sums, own) if rounds else own

    def _of_row(self, row: Value, k: Value, mask: Value | None) -> Parts:
        """A vector of a row's depths."""
        w, dtype, apart = self.w, self.c.lhs.dtype, self.c.lhs.apart
        at = element_address(w, row, k, dtype)
        if not apart:
            return loaded(w, self.ring, dtype, at, self.ring.lanes, mask)
        places = (at, element_address(w, at, w.int(apart), dtype))
        return tuple(masked_load(w, self.ring.vector, p, dtype.item_bytes, mask) for p in places)

    def _zeros(self, like: list[Value]) -> list[Value]:
        return [self.w.zero(value.type) for value in like]

    def _added(self, left: list[Value], right: list[Value]) -> list[Value]:
        pairs = zip(left, right, strict=True)
        return [self.ring.add(self.w, (a,), (b,))[0] for a, b in pairs]

    def _step(
        self,
        k: Value,
        mask: Value | None,
        chain: int,
        rows: list[Value],
        columns: list[Place],
        sums: list[Value],
    ) -> list[Value]:
        """The sums with a vector at depth k, which a chain of theirs takes."""
        w, c, ring = self.w, self.c, self.ring
        count = len(sums) // self.chains
        others, own = (sums[: chain * count], sums[(chain + 1) * count :]), sums[chain * count :]

        begin(ring, *columns[:1])
        run = Run(k, c.depth[-1].size, is_whole=True)
        left = [self._of_row(at, k, mask) for at in rows]
        result: list[Parts] = [()] * (len(rows) * len(columns))
        for j, at in enumerate(columns):
            right = read(w, ring, c.rhs.dtype, at, run, ring.lanes, mask)
            if j in self.asking:
                self.ahead.ask(w, [at], k, self.next_columns, ring.lanes)
            for r, number in enumerate(left):
                place = r * len(columns) + j
                total = tuple(own[place * ring.parts : (place + 1) * ring.parts])
                result[place] = ring.multiply_add(w, total, number, right)
        return [*others[0], *(part for parts in result for part in parts), *others[1]]
