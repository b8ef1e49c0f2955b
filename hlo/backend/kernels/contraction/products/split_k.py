"""Split K: a long depth in parts, a product for each, as one more batch axis, and then their sum.

    out = sum over s of partial[s],  partial[s] = product over the s-th part of depth

Packed blocks of a part fit the caches, and few rows and columns still make many units. The number
of parts follows from the shapes alone. They are summed in blocks too: parts_sums.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, clipped, divided, times
from hlo.backend.ir.control import loop, ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, Sums
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.axes import Axis, Contraction, reach
from hlo.backend.kernels.contraction.problem.result import Epilogue, Result
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    Ring,
    element_address,
    loaded,
    partial_type,
    ring_of,
)
from hlo.backend.kernels.contraction.vectors.plan import LEAST_UNITS, column_blocks, streams_columns
from hlo.backend.lanes.masked import below

LONG = 4096
PART = 1024  # About how many depths a part has.
MOST_PARTS = 1  # The most that the parts' results may take, as a share of the factors' bytes.
MOST_NUMBER = 4096  # The most parts.
STREAMS = 8  # Parts of a matrix with short rows.
LEAST_STREAM = 256
BLOCK_OF_PARTS = 8  # Parts that are added first, and blocks of them that are added then.
UNIT = 4096  # About how many sums a unit of the last kernel makes.


def split_depth(c: Contraction, ring: Ring, place: int) -> tuple[Contraction, int] | None:
    """The contraction into parts at buffer `place`, and how many; None when depth stays whole."""
    if c.k < LONG or c.is_diagonal:
        return None
    parts = _parts(c, PART)
    return None if parts is None else _split(c, ring, place, parts)


def split_stream(c: Contraction, ring: Ring, place: int) -> tuple[Contraction, int] | None:
    """The same for few rows against a large matrix with short rows, which units read whole."""
    if c.batches * column_blocks(c, ring) >= LEAST_UNITS or not streams_columns(c, ring):
        return None
    parts = _parts(c, max(c.k // STREAMS, LEAST_STREAM))
    return None if parts is None else _split(c, ring, place, parts)


def _split(c: Contraction, ring: Ring, place: int, parts: int) -> tuple[Contraction, int] | None:
    size = c.batches * c.m * c.n
    if parts * size > MOST_PARTS * (reach(c, "lhs") + reach(c, "rhs")):
        return None
    split, depth, left = [], list(c.depth), parts
    while left > 1:
        axis = depth.pop(0)
        number = min(left, axis.size)  # A whole axis, or a divisor of it.
        left //= number
        length = axis.size // number
        split.append(Axis(number, length * axis.lhs, length * axis.rhs, left * size))
        if length > 1:
            depth.insert(0, replace(axis, size=length))
    return (
        replace(
            c,
            batch=(*split, *c.batch),
            depth=tuple(depth) or (Axis(1),),
            out=partial_type(ring),
            out_buffer=place,
        ),
        parts,
    )


def _parts(c: Contraction, length: int) -> int | None:
    """How many parts of about `length` depths: some outermost axes whole, and a divisor of the
    next.
    """
    outer, found = 1, []
    for axis in c.depth:
        divisors = range(1, min(axis.size, MOST_NUMBER // outer) + 1)
        found += [outer * d for d in divisors if axis.size % d == 0]
        outer *= axis.size
        if outer > MOST_NUMBER:
            break
    good = [d for d in found if d > 1 and length // 2 <= c.k // d <= 2 * length]
    return min(good, key=lambda d: abs(c.k // d - length), default=None)


def parts_sums(part: Sums, parts: int) -> Sums:
    """How the sums of parts, made as `part` says, become the whole's."""
    sizes = [*block_sizes_of(parts), 1]
    further = BLOCK_OF_PARTS * (len(sizes) - 1) + -(-parts // sizes[0])
    return Sums(f"parts: {part.plan}", part.chain + further)


def block_sizes_of(parts: int) -> list[int]:
    """Blocks of so many parts, the largest first: each made of some of the next."""
    levels = range(1, parts.bit_length())
    return [BLOCK_OF_PARTS**k for k in levels if BLOCK_OF_PARTS**k < parts][::-1]


def rows_of(c: Contraction) -> tuple[int, int, int]:
    """Results within which lanes stay, how many such rows there are, and how many in a unit."""
    size = c.batches * c.m * c.n
    run = c.n if c.columns and c.columns[-1].out == 1 else size
    return run, size // run, max(1, UNIT // run)


def sum_kernel(c: Contraction, ring: Ring, parts: int, epilogue: Epilogue | None = None) -> Kernel:
    """buffers: the parts, result, what the epilogue reads."""
    w = Writer()
    held = partial_type(ring)
    words = replace(ring_of(held, ring.target), result=ring.result)
    partials = w.buffer_address(0)
    result = Result(w, ring, c.out, 1, epilogue)
    size, lanes = c.batches * c.m * c.n, ring.lanes
    run, rows, rows_per_unit = rows_of(c)
    units = -(-rows // rows_per_unit)

    def at_row(row: Value) -> None:
        start = times(w, row, run)

        def at_vector(v: Value, _: list[Value]) -> list[Value]:
            column = times(w, v, lanes)
            at = add(w, start, column)
            mask = below(w, column, run, lanes) if run % lanes else None

            def at_part(s: Value, total: list[Value]) -> list[Value]:
                index = add(w, times(w, s, size), at)
                address = element_address(w, partials, index, held)
                part = loaded(w, words, held, address, lanes, mask)
                return list(ring.add(w, tuple(total), part))

            def added(first: Value, sizes: list[int], size: int) -> list[Value]:
                """The sum of `size` parts, as far as there are so many."""

                def at_block(number: Value, total: list[Value]) -> list[Value]:
                    at = add(w, first, times(w, number, step))
                    if not sizes:
                        return at_part(at, total)
                    own = added(at, sizes[1:], step)
                    return list(ring.add(w, tuple(total), tuple(own)))

                step = sizes[0] if sizes else 1
                count = clipped(w, first, size, parts)
                if sizes:
                    count = divided(w, add(w, count, w.int(step - 1)), step)
                return loop(w, count, list(ring.zero(w, lanes)), at_block)

            total: Parts = tuple(added(w.int(0), block_sizes_of(parts), parts))
            result.store(total, at, 1, mask)
            return []

        loop(w, w.int(-(-run // lanes)), [], at_vector)

    def unit(u: Value) -> None:
        first = times(w, u, rows_per_unit)
        count = clipped(w, first, rows_per_unit, rows)
        ranged(w, first, add(w, first, count), at_row)

    ranged(w, BEGIN, END, unit)
    moved = (parts + 1) * size * ring.scalar_bytes * ring.parts
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=moved)
