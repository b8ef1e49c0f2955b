"""Word streams: few rows against a matrix whose rows are the columns' runs, by dot products.

    out[m, :] += word(lhs[m, k], lhs[m, k + 1], ..) . words(rhs[k, :], rhs[k + 1, :], ..)

The matrix is read once, in its own order, or computed as it is read (computed.py), and nothing of
it is copied: two or four of its rows become words in registers, halves of each 16 bytes turn by
turn, and their sums wait in the first cache in that order until they are finished. All rows of lhs,
which are words in memory, meet the words that are made of some rows of the matrix. A column's BLOCK
depths are added before the total.

Instructions that read subnormal numbers as zero have a flag say that there were some: every
element of the matrix passes through a register here, so that no kernel of its own has to check.

Where lhs's elements are moved by half their range (words.py), one row more of zeros moved so is
multiplied, which is a number that the code knows, and taken from the others when they are finished
(modulo 2^32, as words/zeros.py does it for blocked products).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.control import ranged, set_flag
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.addressing import (
    Place,
    Run,
    begin,
    codes_of,
    define,
    moved,
    outside,
)
from hlo.backend.kernels.contraction.problem.axes import static_offset
from hlo.backend.kernels.contraction.problem.elements import held
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.problem.subnormal import are_subnormal
from hlo.backend.kernels.contraction.vectors.chunks import Chunks
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.plan import (
    CHUNK_BYTES,
    DEPTHS,
    LEAST_UNITS,
    WORDS_ROWS,
)
from hlo.backend.kernels.contraction.vectors.word_plan import StreamedWords
from hlo.backend.kernels.contraction.vectors.work import word_stream_work
from hlo.backend.kernels.contraction.words.words import (
    PAIR,
)
from hlo.backend.kernels.contraction.words.zeros import ZERO_WORD
from hlo.backend.lanes import masked

WORDS = 4  # Of 16 bytes.


class WordStream(Chunks[int]):
    """The kernel. buffers: lhs's words, rhs, result, what the epilogue reads, starts, the byte if
    it `checks`, scratch.
    """

    def __init__(
        self, words: StreamedWords, epilogue: Epilogue | None, *, checks: bool = False
    ) -> None:
        c, ring = words.contraction, words.ring
        super().__init__(c, ring, epilogue)
        assert ring.dot is not None, "of words"
        self.dot, self.checks, self.further = ring.dot, checks, int(checks)
        self.rows = c.m + words.lhs.is_moved
        self.vectors = self.dot.group  # Of words, and of sums of a row, in a step.
        self.elements = self.vectors * ring.lanes  # Columns of a step.
        self.depths = _depths(words)
        self.whole = c.k // self.depths * self.depths
        self.ahead = RowPrefetch.of_rows(c, ring.target.machine)
        steps = -(-c.n // self.elements)
        blocks = -(-self.rows * c.n * ring.scalar_bytes // CHUNK_BYTES)
        if c.batches * blocks < LEAST_UNITS:
            blocks = max(blocks, min(LEAST_UNITS, self._blocks(steps)))
        self._cut(self.elements, blocks)
        self.scratch_bytes = (1 + self.has_totals) * self.rows * self.chunk * ring.scalar_bytes

    def kernel(self) -> Kernel:
        """The kernel, written."""
        return replace(
            self._kernel(self._block), work=word_stream_work(self.c, self.ring, self.rows)
        )

    def _each(self, body: Callable[[Value, int], None]) -> None:
        """body(column within the chunk, how many) for whole steps, then for what is left."""
        w, rest = self.w, self.c.n % self.elements
        whole = divided(w, self.count, self.elements)
        ranged(w, w.int(0), whole, lambda i: body(times(w, i, self.elements), self.elements))
        if rest:  # of the last chunk: others are whole
            left = w.binary("urem", self.count, w.int(self.elements))
            some = w.intrinsic("llvm.umin", "i64", left, w.int(1))
            ranged(w, w.int(0), some, lambda _: body(times(w, whole, self.elements), rest))

    # -- sums ----------------------------------------------------------------------------------

    def _sums_at(self, row: int, at: Value, *, of_totals: bool = False) -> list[Value]:
        """Where a step's vectors of sums are."""
        first = (row + of_totals * self.rows) * self.chunk
        moved = advanced(self.w, self.scratch, at, self.ring.scalar)
        places = range(first, first + self.elements, self.ring.lanes)
        return [advanced(self.w, moved, place, self.ring.scalar) for place in places]

    def _read(self, row: int, at: Value, *, of_totals: bool = False) -> list[Value]:
        ring, places = self.ring, self._sums_at(row, at, of_totals=of_totals)
        return [self.w.load(place, ring.vector, ring.scalar_bytes) for place in places]

    def _put(self, row: int, at: Value, sums: list[Value], *, of_totals: bool = False) -> None:
        for value, place in zip(sums, self._sums_at(row, at, of_totals=of_totals), strict=True):
            self.w.store(value, place, self.ring.scalar_bytes)

    def _zeros(self) -> list[Value]:
        return [self.w.zero(self.ring.vector)] * self.vectors

    def _clear(self, at: Value, count: int) -> None:
        for row in range(self.rows):
            self._put(row, at, self._zeros())
            if self.has_totals:
                self._put(row, at, self._zeros(), of_totals=True)

    def _add_to_totals(self, at: Value, count: int) -> None:
        for row in range(self.rows):
            self._put(row, at, self._whole(row, at), of_totals=True)
            self._put(row, at, self._zeros())

    def _whole(self, row: int, at: Value) -> list[Value]:
        sums = self._read(row, at)
        if not self.has_totals:
            return sums
        pairs = zip(self._read(row, at, of_totals=True), sums, strict=True)
        return [self.ring.add(self.w, (total,), (own,))[0] for total, own in pairs]

    def _finish(self, at: Value, count: int) -> None:
        """The sums of a step in the order of its columns."""
        w, lanes = self.w, self.ring.lanes
        first = add(w, self.first_column, at)
        of_zeros = [self._whole(row, at) for row in range(self.c.m, self.rows)]
        for row in range(self.c.m):
            sums = self._whole(row, at)
            for zeros in of_zeros:
                sums = [w.binary("sub", x, y) for x, y in zip(sums, zeros, strict=True)]
            for n, part in enumerate(_in_columns(w, sums)[: -(-count // lanes)]):
                left = count - n * lanes
                mask = masked.first_of(left, lanes) if left < lanes else None
                self._store(row, add(w, first, w.int(n * lanes)), (part,), mask)

    # -- products ------------------------------------------------------------------------------

    def _group(self, number: Value, depths: int) -> list[Value]:
        """Depths from one on that is a multiple of a whole group's."""
        w, c = self.w, self.c
        (axis,) = c.depth
        rows = self._rows(number, depths)
        word = times(w, times(w, number, self.depths // self.vectors), axis.lhs)
        numbers = element_address(w, self.lhs, word, c.lhs.dtype)

        def at_step(at: Value, count: int) -> None:
            begin(self.ring, *rows[:1])
            self._ask_next(rows, number, at, self.elements)
            words = self._words(rows, at, count)
            for r in range(self.rows):
                sums = self._read(r, at)
                for n, columns in enumerate(words):
                    factor = self._number(numbers, r, n)
                    pairs = zip(sums, columns, strict=True)
                    sums = [self.dot.multiply_add(w, total, factor, x) for total, x in pairs]
                self._put(r, at, sums)

        with outside(rows[0]):
            self._each(at_step)
        return []

    def _rows(self, number: Value, depths: int) -> list[Place]:
        """Where the matrix's rows of a group begin."""
        w, c = self.w, self.c
        (axis,) = c.depth
        first = times(w, number, self.depths)
        if isinstance(self.matrix, Value):
            row = element_address(w, self.matrix, times(w, first, axis.rhs), c.rhs.dtype)
            offsets = [w.int(d * axis.rhs) for d in range(depths)]
            return [element_address(w, row, offset, c.rhs.dtype) for offset in offsets]
        rows = []
        for d in range(depths):
            at = add(w, first, w.int(d))
            define(self.matrix, at, number, max(1, c.k // self.depths), self.depths, d)
            rows.append(moved(w, self.matrix, at, ((axis.size, axis.rhs),), c.rhs.dtype))
        return rows

    def _number(self, numbers: Value, row: int, word: int) -> Value:
        """A word of lhs in every lane; of the row behind the last of moved zeros."""
        w, c, lanes = self.w, self.c, self.ring.lanes
        if row == c.m:
            return w.splat(w.int(ZERO_WORD, "i32"), lanes)
        offset = w.int(static_offset(row, c.rows, "lhs") + word * c.depth[0].lhs)
        place = element_address(w, numbers, offset, c.lhs.dtype)
        return w.splat(w.load(place, self.ring.scalar, self.ring.scalar_bytes), lanes)

    def _words(self, rows: list[Place], at: Value, count: int) -> list[list[Value]]:
        """Of some rows of the matrix the vectors of words; of the last ones with zeros, as lhs's
        last word is filled up.
        """
        w, dtype, group = self.w, self.c.rhs.dtype, self.vectors
        raw = [self._codes(row, at, count) for row in rows]
        if self.checks:
            set_flag(w, are_subnormal(w, raw), self.flag)
        made = [held(w, self.ring.target, row, dtype, self.dot.elements[1]) for row in raw]
        made += [w.zero(made[0].type)] * (-len(made) % group)
        groups = range(0, len(made), group)
        return [_turned(w, made[first : first + group]) for first in groups]

    def _codes(self, row: Place, at: Value, count: int) -> Value:
        """A step's elements of a row, from a column of the chunk on."""
        w, dtype, n = self.w, self.c.rhs.dtype, self.c.n
        is_last = count < self.elements
        mask = masked.first_of(count, self.elements) if is_last else None
        index = at
        if not isinstance(row, Value):
            index = w.int(n - count) if is_last else add(w, self.first_column, at)
        run = Run(index, n, is_whole=True)
        return codes_of(w, self.ring, dtype, row, run, self.elements, mask)


def _depths(words: StreamedWords) -> int:
    """Rows of the matrix that sums are read and stored for, which changes no order of additions:
    twice as many for quads, which have twice as many sums, unless these rows lie in so few sets of
    the first cache that they drive each other out, which few rows of lhs do not pay for.
    """
    c, dot, cache = words.contraction, words.ring.dot, words.ring.target.machine.first_cache
    assert dot is not None, "of words"
    most = DEPTHS * dot.group // PAIR
    sets = cache.sets_of(max(1, abs(c.depth[0].rhs) * c.rhs.dtype.item_bytes))
    return most if most <= cache.ways * sets or c.m > WORDS_ROWS else DEPTHS


def _turned(w: Writer, rows: list[Value]) -> list[Value]:
    """Two or four rows' elements as vectors of words, which are all elements of a column: the first
    and the second halves of each 16 bytes of two rows turn by turn (x86's PUNPCKL and PUNPCKH; on
    16 bytes Arm's ZIP1 and ZIP2). Vector v has at place i of 16 bytes column 4 v + i of as many
    columns as an element's bytes have there.
    """
    first, second, *others = rows
    half = WORDS * len(rows) // 2
    if not others:
        return [_joined(w, first, second, half, upper) for upper in range(2)]
    pairs = [
        [_joined(w, a, b, half, upper) for a, b in ((first, second), others)] for upper in range(2)
    ]
    return [_joined(w, a, b, WORDS, upper) for a, b in pairs for upper in range(2)]


def _joined(w: Writer, a: Value, b: Value, half: int, upper: int) -> Value:
    """The lower or upper `half` elements of each 16 bytes of two vectors turn by turn, as elements
    that are twice as long.
    """
    count = a.lanes
    starts = range(upper * half, count, 2 * half)
    order = [k for s in starts for i in range(half) for k in (s + i, count + s + i)]
    bits = 2 * 64 // half
    type = vector_of(f"i{bits}", count // 2)
    return w.cast("bitcast", w.shuffle(a, b, order), type)


def _in_columns(w: Writer, sums: list[Value]) -> list[Value]:
    """Sums of words that `_turned` made, in the order of the columns: 16 bytes of each vector turn
    by turn.
    """
    lanes, width = sums[0].lanes, 1
    parts = sums
    while len(parts) > 1:
        run = width * WORDS
        order = [
            k * parts[0].lanes + s + i
            for s in range(0, parts[0].lanes, run)
            for k in range(2)
            for i in range(run)
        ]
        parts = [w.shuffle(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        width *= 2
    (whole,) = parts
    starts = range(0, whole.lanes, lanes)
    return [w.shuffle(whole, None, range(first, first + lanes)) for first in starts]
