"""Matrix-vector products: few rows against a large matrix, which is read once, in its own order.

    dots:  out[m, n] = sum of lhs[m, :] * rhs[n, :]   vectors along depth, summed across at the end
    axpys: out[m, :] += lhs[m, k] * rhs[k, :]         vectors along the columns, sums wait in L1

Both read whole stretches of memory, as bandwidth wants it; neither packs anything. A lane of dots
sums DOTS_BLOCK vectors, a column of axpys BLOCK depths (sum_blocks.py), before these sums are added
to the total: vector_sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hlo.backend.ir.control import loop, ranged
from hlo.backend.ir.kernel import Kernel, Sums
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.axes import Axes, Contraction
from hlo.backend.kernels.contraction.lane_masks import below, iota
from hlo.backend.kernels.contraction.lane_sums import across
from hlo.backend.kernels.contraction.loops import (
    add,
    advanced,
    buffer_address,
    clipped,
    divided,
    kernel_function,
    split_index,
    strided,
    times,
)
from hlo.backend.kernels.contraction.result import Epilogue, Result
from hlo.backend.kernels.contraction.ring import Parts, Ring, element_address, loaded
from hlo.backend.kernels.contraction.sum_blocks import (
    BLOCK,
    FEW,
    Cut,
    block_sizes,
    chain_of,
    cut_of,
)
from hlo.backend.lanes.masked import constant_mask
from hlo.ir.dtype import DType
from hlo.machine import COMMON

MOST_ROWS = 8
UNIT_BYTES = 64 << 10  # of the matrix: less is not worth a unit
UNITS = 32
# A matrix beyond this comes from memory. It decides in which order terms are added, and so does
# CHUNK: no one machine's caches do.
STREAMED_BYTES = COMMON.last_cache.bytes
LEAST_UNITS = 4
CHUNK = COMMON.first_cache.bytes // 8  # columns whose sums stay in the first cache
DOTS_BLOCK = 32  # vectors along depth that are added one after the other


def vector_kernel(c: Contraction, ring: Ring, epilogue: Epilogue | None = None) -> Kernel | None:
    """A kernel for few rows; None where the blocked product is better.

    buffers: lhs, rhs, result, what the epilogue reads, scratch.
    """
    if c.m > MOST_ROWS or c.k < ring.lanes or c.is_diagonal:
        return None
    if c.columns and c.columns[-1].out != 1:
        return None
    if _is_dots(c, ring):
        return _Dots(c, ring, epilogue).kernel()
    return _Axpys(c, ring, epilogue).kernel() if streams_columns(c, ring) else None


def streams_columns(c: Contraction, ring: Ring) -> bool:
    """Whether few rows meet a large matrix whose rows are the columns' runs."""
    if c.m > MOST_ROWS or c.is_diagonal or len(c.columns) != 1 or len(c.depth) != 1:
        return False
    (columns,) = c.columns
    large = c.k * c.n * c.rhs.dtype.item_bytes >= STREAMED_BYTES
    return large and (columns.out, columns.rhs) == (1, 1) and c.n >= 8 * ring.lanes


def _at_once(c: Contraction, ring: Ring) -> int:
    """Columns of one step of `dots`: a power of two whose sums fit the registers; 0 if none."""
    limit = (24 if ring.registers == 32 else 12) // (c.m * ring.parts * ring.parts)
    if limit == 0:
        return 0
    fitting = 1 << (limit.bit_length() - 1)
    return min(8, ring.lanes, fitting, 1 << (c.n - 1).bit_length())


def _chains(c: Contraction, ring: Ring) -> int:
    """Sums that one result is made of, which take vectors turn by turn: few results would wait for
    their own additions.
    """
    sums = c.m * _at_once(c, ring) * ring.parts
    most = min(4, max(1, 8 // sums), c.depth[-1].size // ring.lanes)
    return 1 << (most.bit_length() - 1)


def vector_sums(c: Contraction, ring: Ring) -> Sums:
    """How long chains of additions are in `vector_kernel`'s sums."""
    if _is_dots(c, ring):
        across_lanes = ring.lanes.bit_length() - 1
        chain = ring.parts * _dots_chain(c, ring)
        joined = _chains(c, ring).bit_length() - 1
        return Sums("dots", chain + joined + across_lanes)
    return Sums("axpys", ring.parts * min(c.k, BLOCK) + c.k // BLOCK + 2)


def _is_dots(c: Contraction, ring: Ring) -> bool:
    inner = c.depth[-1]
    along = inner.lhs == 1 and inner.rhs == 1 and inner.size >= ring.lanes
    return along and _at_once(c, ring) > 0


def _dots_counts(c: Contraction, ring: Ring) -> list[int]:
    """Rounds of the loops over depth: the innermost one runs over some vectors."""
    *outer, inner = [a.size for a in c.depth]
    return [*outer, -(-inner // (ring.lanes * _chains(c, ring)))]


def _dots_chain(c: Contraction, ring: Ring) -> int:
    """The most additions that a lane's term goes through."""
    counts, cut = _dots_counts(c, ring), _dots_cut(c, ring)
    if cut is None or cut.level < len(counts) - 1:
        return chain_of(counts, cut)
    sizes = block_sizes(cut.rounds, counts[-1])
    return cut.rounds + FEW * len(sizes) + prod(counts[:-1])


def _dots_cut(c: Contraction, ring: Ring) -> Cut | None:
    """The first level of blocks."""
    counts = _dots_counts(c, ring)
    return cut_of(counts, DOTS_BLOCK) if ring.rounds else None


class _Streaming:
    """What both forms share: the addresses of one batch, and the kernel around its units."""

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        self.w = Writer()
        self.c = c
        self.ring = ring
        self.epilogue = epilogue

    def _kernel(self, blocks: int, body: Callable[[Value], None], scratch_bytes: int) -> Kernel:
        """A unit is (batch, block); body(block) runs with the batch's addresses set."""
        w, c = self.w, self.c
        lhs, rhs = (buffer_address(w, i) for i in range(2))
        self.result = Result(w, self.ring, c.out, 2, self.epilogue)
        if scratch_bytes:
            self.scratch = buffer_address(w, 2 + self.result.buffers)
        lhs = element_address(w, lhs, w.int(c.lhs.offset), c.lhs.dtype)
        rhs = element_address(w, rhs, w.int(c.rhs.offset), c.rhs.dtype)

        def unit(u: Value) -> None:
            b, block = split_index(w, u, (1 << 40, blocks))
            moved = {s: [(a.size, getattr(a, s)) for a in c.batch] for s in ("lhs", "rhs", "out")}
            self.lhs = element_address(w, lhs, strided(w, b, moved["lhs"]), c.lhs.dtype)
            self.rhs = element_address(w, rhs, strided(w, b, moved["rhs"]), c.rhs.dtype)
            self.out_index = strided(w, b, moved["out"])
            body(block)

        ranged(w, Value("%begin", "i64"), Value("%end", "i64"), unit)
        matrix = c.batches * c.k * c.n * c.rhs.dtype.item_bytes
        return Kernel(
            kernel_function(w),
            c.batches * blocks,
            tuple(w.declarations.values()),
            tuple(w.globals.values()),
            scratch_bytes=scratch_bytes,
            bytes_moved=matrix,
            flops=c.flops,
        )

    def _blocks(self, things: int) -> int:
        """Blocks into which `things` parts of the matrix are shared."""
        c = self.c
        size = c.k * c.n * c.rhs.dtype.item_bytes
        return max(1, min(things, UNITS, size // UNIT_BYTES))

    def _store(self, row: int, column: Value, sums: Parts, mask: Value | None) -> None:
        w = self.w
        index = add(w, self.out_index, w.int(static_offset(row, self.c.rows, "out")))
        self.result.store(sums, add(w, index, column), 1, mask)


def static_offset(index: int, axes: Axes, side: str) -> int:
    """Offset of a linear index that is known now."""
    offset = 0
    for axis in reversed(axes):
        index, part = divmod(index, axis.size)
        offset += part * getattr(axis, side)
    return offset


# -- dots --------------------------------------------------------------------------------------


class _Dots(_Streaming):
    """Rows x `at_once` columns x `chains` of sums in registers; depth in vectors."""

    def kernel(self) -> Kernel:
        self.at_once = _at_once(self.c, self.ring)
        self.chains = _chains(self.c, self.ring)
        self.cut = _dots_cut(self.c, self.ring)
        steps = -(-self.c.n // self.at_once)
        blocks = self._blocks(steps)
        size = -(-steps // blocks)
        blocks = -(-steps // size)

        def block(index: Value) -> None:
            w = self.w
            first = times(w, index, size)
            last = w.intrinsic("llvm.umin", "i64", add(w, first, w.int(size)), w.int(steps))
            ranged(w, first, last, self._columns)

        return self._kernel(blocks, block, 0)

    def _columns(self, step: Value) -> None:
        w, c, ring = self.w, self.c, self.ring
        start = times(w, step, self.at_once)
        columns = self._column_addresses(start)
        rows = [
            element_address(w, self.lhs, w.int(static_offset(r, c.rows, "lhs")), c.lhs.dtype)
            for r in range(c.m)
        ]
        zeros = list(ring.zero(w, ring.lanes)) * (c.m * self.at_once * self.chains)
        sums = self._over_depth(c.depth, rows, columns, zeros)
        while len(sums) > c.m * self.at_once * ring.parts:
            half = len(sums) // 2
            sums = self._added(sums[:half], sums[half:])
        mask = None
        if c.n % self.at_once:
            mask = below(w, start, c.n, self.at_once)
        parts, width = ring.parts, ring.parts * self.at_once
        for r in range(c.m):
            row = sums[r * width : (r + 1) * width]
            totals = tuple(across(w, ring, row[i::parts]) for i in range(parts))
            self._store(r, start, totals, mask)

    def _column_addresses(self, start: Value) -> list[Value]:
        """Where the columns begin; those beyond the last repeat it."""
        w, c = self.w, self.c
        axes = [(a.size, a.rhs) for a in c.columns]
        addresses = []
        for j in range(self.at_once):
            index = add(w, start, w.int(j))
            if c.n % self.at_once:
                index = w.intrinsic("llvm.umin", "i64", index, w.int(c.n - 1))
            addresses.append(element_address(w, self.rhs, strided(w, index, axes), c.rhs.dtype))
        return addresses

    def _over_depth(
        self, axes: Axes, rows: list[Value], columns: list[Value], sums: list[Value]
    ) -> list[Value]:
        """The loops over depth; the one that is cut makes blocks, and adds them."""
        w, axis, inner = self.w, axes[0], axes[1:]
        level = len(self.c.depth) - len(axes)
        rounds = self.cut.rounds if self.cut and self.cut.level == level else 0
        if not inner:
            return self._run(axis.size, rounds, rows, columns, sums)

        def once(i: Value, carried: list[Value]) -> list[Value]:
            moved_rows = self._moved(rows, times(w, i, axis.lhs), self.c.lhs.dtype)
            moved = self._moved(columns, times(w, i, axis.rhs), self.c.rhs.dtype)
            return self._over_depth(inner, moved_rows, moved, carried)

        def block(number: Value, totals: list[Value]) -> list[Value]:
            first = times(w, number, rounds)
            count = clipped(w, first, rounds, axis.size)
            own = loop(w, count, self._zeros(totals), lambda i, s: once(add(w, first, i), s))
            return self._added(totals, own)

        if not rounds:
            return loop(w, w.int(axis.size), sums, once)
        return loop(w, w.int(-(-axis.size // rounds)), sums, block)

    def _moved(self, addresses: list[Value], offset: Value, dtype: DType) -> list[Value]:
        return [element_address(self.w, address, offset, dtype) for address in addresses]

    def _run(
        self, size: int, rounds: int, rows: list[Value], columns: list[Value], sums: list[Value]
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
                mask = constant_mask([i < rest for i in range(lanes)])
            at = w.int((whole * chains + chain) * lanes)
            own = self._step(at, mask, chain, rows, columns, own)
        return self._added(sums, own) if rounds else own

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
        columns: list[Value],
        sums: list[Value],
    ) -> list[Value]:
        """The sums with a vector at depth k, which a chain of theirs takes."""
        w, c, ring = self.w, self.c, self.ring
        count = len(sums) // self.chains
        others, own = (sums[: chain * count], sums[(chain + 1) * count :]), sums[chain * count :]

        def vector(at: Value, dtype: DType) -> Parts:
            return loaded(w, ring, dtype, element_address(w, at, k, dtype), ring.lanes, mask)

        left = [vector(at, c.lhs.dtype) for at in rows]
        result: list[Parts] = [()] * (len(rows) * len(columns))
        for j, at in enumerate(columns):
            right = vector(at, c.rhs.dtype)
            for r, number in enumerate(left):
                place = r * len(columns) + j
                total = tuple(own[place * ring.parts : (place + 1) * ring.parts])
                result[place] = ring.multiply_add(w, total, number, right)
        return [*others[0], *(part for parts in result for part in parts), *others[1]]


# -- axpys -------------------------------------------------------------------------------------


class _Axpys(_Streaming):
    """`depths` rows of the matrix at a time are added to the sums of a chunk of columns."""

    def kernel(self) -> Kernel:
        c, ring = self.c, self.ring
        blocks = -(-c.n // CHUNK)
        if c.batches * blocks < LEAST_UNITS:
            blocks = max(blocks, min(LEAST_UNITS, self._blocks(c.n // (8 * ring.lanes))))
        vectors = -(-c.n // ring.lanes)
        self.chunk = -(-vectors // blocks) * ring.lanes
        blocks = -(-c.n // self.chunk)
        limit = (16 if ring.registers == 32 else 8) // (c.m * ring.parts)
        self.depths = max(1, min(8, limit))
        self.has_totals = ring.rounds and c.k > BLOCK
        self.sums_size = c.m * self.chunk * ring.parts
        scratch = (1 + self.has_totals) * self.sums_size * ring.scalar_bytes
        return self._kernel(blocks, self._block, scratch)

    def _block(self, block: Value) -> None:
        w, c = self.w, self.c
        start = times(w, block, self.chunk)
        self.first_column = start
        self.matrix = element_address(w, self.rhs, start, c.rhs.dtype)
        left = w.binary("sub", w.int(c.n), start)
        self.count = w.intrinsic("llvm.umin", "i64", left, w.int(self.chunk))
        self._each_vector(lambda at, mask: self._clear(at))
        groups, rest = divmod(c.k, self.depths)

        def group(g: Value, _: list[Value]) -> list[Value]:
            return self._group(times(w, g, self.depths), self.depths)

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
        if rest:
            self._group(w.int(groups * self.depths), rest)
        self._each_vector(self._finish)

    def _each_vector(self, body: Callable[[Value, Value | None], None]) -> None:
        """body(column within the chunk, mask) for the chunk's vectors."""
        w, lanes, total = self.w, self.ring.lanes, self.c.n
        whole = w.binary("udiv", self.count, w.int(lanes))
        ranged(w, w.int(0), whole, lambda i: body(times(w, i, lanes), None))
        if total % lanes == 0:
            return
        rest = w.binary("urem", self.count, w.int(lanes))
        some = w.intrinsic("llvm.umin", "i64", rest, w.int(1))
        at = times(w, whole, lanes)
        mask = w.compare("icmp ult", iota(lanes, "i64"), w.splat(rest, lanes))
        ranged(w, w.int(0), some, lambda _: body(at, mask))

    def _sum_addresses(self, row: int, at: Value, *, of_totals: bool = False) -> list[Value]:
        ring, first = self.ring, self.sums_size if of_totals else 0
        places = [first + (row * ring.parts + i) * self.chunk for i in range(ring.parts)]
        moved = advanced(self.w, self.scratch, at, ring.scalar)
        return [advanced(self.w, moved, place, ring.scalar) for place in places]

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

    def _group(self, k: Value, depths: int) -> list[Value]:
        w, c, ring = self.w, self.c, self.ring
        (axis,) = c.depth
        numbers: list[list[Parts]] = []
        matrix_rows: list[Value] = []
        for d in range(depths):
            at = add(w, k, w.int(d))
            base = element_address(w, self.lhs, times(w, at, axis.lhs), c.lhs.dtype)
            numbers.append([self._number(base, r) for r in range(c.m)])
            matrix_rows.append(element_address(w, self.matrix, times(w, at, axis.rhs), c.rhs.dtype))

        def at_vector(at: Value, mask: Value | None) -> None:
            vectors = [
                loaded(
                    w, ring, c.rhs.dtype, element_address(w, m, at, c.rhs.dtype), ring.lanes, mask
                )
                for m in matrix_rows
            ]
            for r in range(c.m):
                total = self._at(self._sum_addresses(r, at))
                for d in range(depths):
                    total = ring.multiply_add(w, total, numbers[d][r], vectors[d])
                self._put(total, self._sum_addresses(r, at))

        self._each_vector(at_vector)
        return []

    def _number(self, base: Value, row: int) -> Parts:
        w, c, ring = self.w, self.c, self.ring
        offset = w.int(static_offset(row, c.rows, "lhs"))
        parts = loaded(w, ring, c.lhs.dtype, element_address(w, base, offset, c.lhs.dtype), 1)
        return tuple(w.splat(p, ring.lanes) for p in parts)

    def _finish(self, at: Value, mask: Value | None) -> None:
        column = add(self.w, self.first_column, at)
        for r in range(self.c.m):
            self._store(r, column, self._with_totals(r, at), mask)
