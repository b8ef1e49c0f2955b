"""What rows of zeros give in a product of words whose lhs is moved, and its removal from the sums.

    sum of (l + 128) r = sum of l r + sum of 128 r

The last term is the same for all rows: the product of one row of zeros, moved as lhs is, with rhs.
It is a product like the others, whose lhs is one word that no axis moves; the result has an s32 for
each batch that moves rhs and each column. An epilogue takes it from the sums (modulo 2^32).
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.axes import Axes, Axis, Contraction, extent
from hlo.backend.kernels.contraction.problem.result import Epilogue, Lanes
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, narrowed
from hlo.backend.lanes import masked
from hlo.indexing.affine import row_major_strides
from hlo.ir import dtype as dt

ZERO_CODE = 0x80  # Of a zero whose sign bit is turned over.
WORD_BYTES = 4
ZERO_WORD = int.from_bytes(bytes([ZERO_CODE] * WORD_BYTES), "little") - (1 << 32)


def zero_word_kernel() -> Kernel:
    """buffers: one word of zeros that are moved."""
    w = Writer()
    w.store(w.int(ZERO_WORD, "i32"), w.buffer_address(0), WORD_BYTES)
    return Kernel(w.kernel_function(), 1, *w.beside)


def zeros_contraction(c: Contraction, zero_word: int) -> Contraction:
    """A row of zeros by rhs. c: of words; zero_word: the buffer of the one word of lhs."""
    batch: Axes = tuple(a for a in c.batch if a.rhs)
    free = (*batch, *c.columns)
    strides = row_major_strides([a.size for a in free])
    moved = tuple(Axis(a.size, 0, a.rhs, stride) for a, stride in zip(free, strides, strict=True))
    return replace(
        c,
        batch=moved[: len(batch)],
        rows=(),
        columns=moved[len(batch) :],
        depth=tuple(replace(a, lhs=0) for a in c.depth),
        lhs=replace(c.lhs, buffer=zero_word, offset=0),
        out=dt.S32,
    )


def without_zeros(c: Contraction, ring: Ring, place: int, epilogue: Epilogue | None) -> Epilogue:
    """What takes zeros' sums, which lie at a place, from sums before the epilogue that there is."""
    others = epilogue.others if epilogue else ()

    def apply(w: Writer, sums: Parts, lanes: Lanes) -> Parts:
        zeros, *rest = lanes.others
        (total,) = sums
        base = w.address(zeros, _number(w, c, lanes.index), "i32")
        taken = masked.load(w, total.type, base, WORD_BYTES, lanes.mask)
        parts = (w.binary("sub", total, taken),)
        if epilogue is None:
            return narrowed(w, ring, c.out, parts)
        return epilogue.apply(w, parts, replace(lanes, others=tuple(rest)))

    dtype = epilogue.dtype if epilogue else c.out
    in_place = epilogue.in_place if epilogue else frozenset()
    return Epilogue(dtype, apply, (place, *others), in_place)


def _number(w: Writer, c: Contraction, index: Value) -> Value:
    """Which of zeros' sums belongs to an element of out."""
    columns = Axis(c.n, 0, 1, c.columns[-1].out)
    number, step = w.int(0), 1
    for axis in (columns, *(a for a in reversed(c.batch) if a.rhs)):
        digit = w.binary("udiv", index, w.int(axis.out)) if axis.out > 1 else index
        digit = w.binary("urem", digit, w.int(axis.size))
        number = add(w, number, times(w, digit, step))
        step *= axis.size
    return number


def zeros_bytes(c: Contraction) -> int:
    """Of the sums."""
    return WORD_BYTES * extent(tuple(a for a in c.batch if a.rhs)) * c.n
