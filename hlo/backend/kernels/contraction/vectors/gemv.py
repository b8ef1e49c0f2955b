"""Matrix-vector products: few rows against a large matrix, which is read once, in its own order.

    dots:  out[m, n] = sum of lhs[m, :] * rhs[n, :]   vectors along depth, summed across at the end
    axpys: out[m, :] += lhs[m, k] * rhs[k, :]         vectors along the columns, sums wait in L1

Both read whole stretches of memory, as bandwidth wants it; neither packs anything. Few columns that
run along depth are rows of dots, with many results at one distance: `is_turned`. Complex ones are
copied for that, both parts apart, so that rows take apart the matrix alone. A lane of dots
sums DOTS_BLOCK vectors, a column of axpys BLOCK depths (sum_blocks.py), before these sums are added
to the total: vector_sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hlo.backend.ir.arithmetic import add, advanced, clipped, divided, times
from hlo.backend.ir.control import loop, ranged
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.microkernels.lane_sums import across
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
    Axes,
    Contraction,
    static_offset,
)
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address, loaded
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK, block_sizes
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.plan import (
    DEPTHS,
    LEAST_UNITS,
    ROWS_AT_ONCE,
    at_once,
    chains,
    column_blocks,
    dots_cut,
    dots_rows,
    is_dots,
    row_groups,
)
from hlo.backend.kernels.contraction.vectors.streaming import Streaming
from hlo.backend.lanes.masked import below, first_of
from hlo.backend.lanes.masked import load as masked_load


def streamed(c: Contraction, ring: Ring, epilogue: Epilogue | None = None) -> Dots | Axpys:
    """The kernel of a product whose other factor is streamed (plan.py), to be written.

    buffers: lhs, rhs, result, what the epilogue reads, starts, scratch.
    """
    return Dots(c, ring, epilogue) if is_dots(c, ring) else Axpys(c, ring, epilogue)


# -- dots --------------------------------------------------------------------------------------


class Dots(Streaming):
    """Rows x `at_once` columns x `chains` of sums in registers; depth in vectors. A unit takes
    `size` of the `steps` of columns.
    """

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        super().__init__(c, ring, epilogue)
        self.at_once = at_once(c, ring)
        self.chains = chains(c, ring)
        self.cut = dots_cut(c, ring)
        self.ahead = RowPrefetch.of_short(c, ring.target.machine)
        self.next_column = c.columns[-1].rhs if c.columns else 0
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
            for rows in dots_rows(c, self.ring):
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
            self.ahead.ask(w, [at], k, self.at_once * self.next_column, ring.lanes)
            for r, number in enumerate(left):
                place = r * len(columns) + j
                total = tuple(own[place * ring.parts : (place + 1) * ring.parts])
                result[place] = ring.multiply_add(w, total, number, right)
        return [*others[0], *(part for parts in result for part in parts), *others[1]]


# -- axpys -------------------------------------------------------------------------------------


class Axpys(Streaming):
    """`depths` rows of the matrix at a time are added to the sums of a chunk of columns, `vectors`
    of them at a time. Few numbers of lhs wait in registers (is_held), others are read where they
    are used, once for these vectors. groups: of lhs's rows, that meet these one after the other.
    """

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        super().__init__(c, ring, epilogue)
        blocks = column_blocks(c, ring)
        if c.batches * blocks < LEAST_UNITS:
            blocks = max(blocks, min(LEAST_UNITS, self._blocks(c.n // (8 * ring.lanes))))
        vectors = -(-c.n // ring.lanes)
        self.chunk = -(-vectors // blocks) * ring.lanes
        self.blocks = -(-c.n // self.chunk)
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
        self.has_totals = ring.rounds and c.k > BLOCK
        self.ahead = RowPrefetch.of(c, ring.target.machine)
        self.sums_size = c.m * self.chunk * ring.parts
        self.scratch_bytes = (1 + self.has_totals) * self.sums_size * ring.scalar_bytes

    def leaves_vectors(self, at_once: int) -> bool:
        """Whether some unit has whole vectors of columns left when it takes so many at a time."""
        lanes = self.ring.lanes
        return any(columns // lanes % at_once for columns in (self.chunk, self.c.n))

    def kernel(self) -> Kernel:
        """The kernel, written."""
        return self._kernel(self._block)

    def _block(self, block: Value) -> None:
        w, c = self.w, self.c
        start = times(w, block, self.chunk)
        self.first_column = start
        self.matrix = self.rhs
        if isinstance(self.rhs, Value):
            self.matrix = element_address(w, self.rhs, start, c.rhs.dtype)
        left = w.binary("sub", w.int(c.n), start)
        self.count = w.intrinsic("llvm.umin", "i64", left, w.int(self.chunk))
        self._each_vector(lambda at, mask: self._clear(at))
        groups = self.whole // self.depths

        def group(g: Value, _: list[Value]) -> list[Value]:
            return self._group(g, self.depths)

        def block_of_sums(number: Value, _: list[Value]) -> list[Value]:
            size = BLOCK // self.depths
            first = times(w, number, size)
            count = clipped(w, first, size, groups)
            loop(w, count, [], lambda g, none: group(add(w, first, g), none))
            self._each_vector(lambda at, mask: self._add_to_totals(at))
            return []

        if self.has_totals:
            loop(w, w.int(-(-groups // (BLOCK // self.depths))), [], block_of_sums)
        elif groups:
            loop(w, w.int(groups), [], group)
        for first in range(self.whole, c.k, self.depths):
            self._group(w.int(first // self.depths), min(self.depths, c.k - first))
        self._each_vector(self._finish)

    def _each_vector(self, body: Callable[[Value, Value | None], None]) -> None:
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

    def _clear(self, at: Value) -> None:
        for r in range(self.c.m):
            zeros = self.ring.zero(self.w, self.ring.lanes)
            self._put(zeros, self._sum_addresses(r, at))
            if self.has_totals:
                self._put(zeros, self._sum_addresses(r, at, of_totals=True))

    def _put(self, values: Parts, addresses: list[Value]) -> None:
        for value, address in zip(values, addresses, strict=True):
            self.w.store(value, address, self.ring.scalar_bytes)

    def _add_to_totals(self, at: Value) -> None:
        """A block's sums; the next one begins with zeros."""
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
            self.ahead.ask(w, matrix_rows, at, depths * axis.rhs, vectors * ring.lanes)
            columns: dict[int, list[Parts]] = {}
            sums: dict[int, list[Parts]] = {}
            for r, d in self._order(rows, depths):
                if d == 0:
                    sums[r] = [self._at(self._sum_addresses(r, p)) for p in places]
                if d not in columns:
                    columns[d] = [self._columns_of(matrix_rows[d], p, mask) for p in places]
                number = held[d][r] if held else self._number(bases[d], r)
                pairs = zip(sums[r], columns[d], strict=True)
                sums[r] = [ring.multiply_add(w, total, number, x) for total, x in pairs]
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
