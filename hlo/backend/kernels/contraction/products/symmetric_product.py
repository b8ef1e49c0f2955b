"""Symmetric product: that of a matrix and its own transpose, of which one half is computed.

    x x^T: sum over k of x[i,k] x[j,k]  =  sum over k of x[j,k] x[i,k]

Both are sums of the same products in the same order, so that the half above the diagonal is the one
below it, bit for bit but for the bits of NaNs. Tiles that lie below it alone are left out; then
squares are turned in registers, from above the diagonal to below.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.analysis.bands import Band
from hlo.backend.ir.arithmetic import add, split_index, strided, times
from hlo.backend.ir.control import each
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.kernels.contraction.problem.axes import Bands, Contraction
from hlo.backend.kernels.contraction.problem.result import Epilogue
from hlo.backend.kernels.contraction.problem.ring import Ring, element_address
from hlo.backend.lanes import masked
from hlo.backend.lanes.transposed import turned_parts
from hlo.backend.lanes.types import storage_scalar
from hlo.backend.loops.schedule import Plan
from hlo.ir.dtype import DType
from hlo.machine import COMMON

UPPER = Bands(Band(low=0), is_rest_made=False)
MIRRORED = Plan(("mirrored: the elements below the diagonal are those above",))
SIDE = 8  # The most rows of a square: of more, LLVM takes as long as for the product.
LEAST = 64  # Rows; of fewer most tiles meet the diagonal.


def upper_half(c: Contraction, ring: Ring, epilogue: Epilogue | None) -> Contraction:
    """The half of the result above the diagonal, where the other one is the same and half of the
    products take longer than to copy it.
    """
    if c.is_diagonal or ring.parts > 1 or not _is_symmetric(c) or c.m < LEAST:
        return c
    if epilogue and (not epilogue.is_uniform or epilogue.further or epilogue.gates > 1):
        return c
    dtype = epilogue.dtype if epilogue else c.out
    if dtype.item_bytes != ring.scalar_bytes or dtype.is_complex:
        return c
    rates = COMMON.rates
    moved = c.batches * c.m * c.n * c.out.item_bytes  # half is read, half is written
    pays = c.flops / 2 / rates.contracted_ops > moved / rates.memory_bytes + rates.share_us
    return replace(c, bands=UPPER) if pays else c


def _is_symmetric(c: Contraction) -> bool:
    if len(c.rows) != 1 or len(c.columns) != 1 or c.lhs != c.rhs:
        return False
    (row,), (column,) = c.rows, c.columns
    if (row.size, row.lhs, column.out) != (column.size, column.rhs, 1):
        return False
    return all(axis.lhs == axis.rhs for axis in (*c.batch, *c.depth))


def mirror_kernel(c: Contraction, ring: Ring, dtype: DType) -> Kernel:
    """buffers: the result, of a type as wide as the ring's. A unit makes the rows of a square, left
    of the diagonal.

    The last square of a row or column of squares ends with the matrix, so that it may reach over
    the diagonal: elements below it alone are written.
    """
    w = Writer()
    (row,), lanes = c.rows, min(ring.lanes, SIDE)
    scalar, size = storage_scalar(dtype), dtype.item_bytes
    squares = -(-c.m // lanes)
    result = w.buffer_address(0)
    type, lane = vector_of(scalar, lanes), counted("i64", lanes)

    def place(square: Value) -> Value:
        return w.intrinsic("llvm.umin", "i64", times(w, square, lanes), w.int(c.m - lanes))

    def at(base: Value, i: Value, j: Value) -> Value:
        index = add(w, add(w, base, times(w, i, row.out)), j)
        return element_address(w, result, index, dtype)

    def turn(base: Value, first: Value, other: Value) -> None:
        """The square from row `first` and column `other` on, of the one above the diagonal."""
        apart = w.binary("sub", first, other)
        above = [w.load(at(base, add(w, other, w.int(r)), first), type, size) for r in range(lanes)]
        for r, line in enumerate(turned_parts(w, above)):
            mask = w.compare("icmp slt", lane, w.splat(add(w, apart, w.int(r)), lanes))
            masked.store(w, line, at(base, add(w, first, w.int(r)), other), size, mask)

    def unit(number: Value) -> None:
        batch, square = split_index(w, number, (c.batches, squares))
        base = strided(w, batch, [(a.size, a.out) for a in c.batch])
        first = place(square)
        behind = add(w, square, w.int(1))
        each(w, w.int(0), behind, lambda n: turn(base, first, place(n)))

    each(w, BEGIN, END, unit)
    moved = c.batches * c.m * c.n * size
    return Kernel(w.kernel_function(), c.batches * squares, *w.beside, bytes_moved=moved)
