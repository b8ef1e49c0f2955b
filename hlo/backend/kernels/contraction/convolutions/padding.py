"""Padding: an array copied between zeros, with zeros in the holes of base dilation.

position p of a dimension is element (p - low) / base, or zero where that is none
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.arithmetic import add, advanced, split_index, times
from hlo.backend.ir.control import loop, ranged, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import PaddedDim
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    Ring,
    element_address,
    gathered,
    loaded,
    ring_of,
    stored,
)
from hlo.backend.lanes.masked import below
from hlo.ir.dtype import DType

LEAST_RUN_BYTES = 512  # From here on a row is copied and filled by calls, not by vectors.


def padding_kernel(
    dims: Iterable[PaddedDim], source: DType, result: DType, target: Target
) -> Kernel:
    """buffers: dense source, dense result. A unit is one row of the result."""
    outer, inner = _rows(tuple(dims))
    ring = ring_of(result, target)
    is_called = _is_called(inner, source, result)
    w = Writer()
    memory, to = (w.buffer_address(i) for i in (0, 1))
    units = 1
    for dim in outer:
        units *= dim.size

    def unit(u: Value) -> None:
        index = split_index(w, u, [d.size for d in outer])
        valid: Value | None = None
        row = w.int(0)
        for i, dim in zip(index, outer, strict=True):
            element, inside = _element(w, dim, i)
            row = add(w, times(w, row, dim.source), element)
            if inside is not None:
                valid = inside if valid is None else w.binary("and", valid, inside)
        start = element_address(w, memory, times(w, row, inner.source), source)
        at = element_address(w, to, times(w, u, inner.size), result)
        if is_called:
            _call_copies(w, inner, start, at, result.item_bytes, valid)
        else:
            _copy_row(w, ring, inner, (start, source), (at, result), valid)

    ranged(w, BEGIN, END, unit)
    size = units * inner.size * result.item_bytes
    # Around calls plain code serves, which LLVM makes in a third of the time.
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=2 * size, is_glue=is_called)


def _rows(dims: tuple[PaddedDim, ...]) -> tuple[list[PaddedDim], PaddedDim]:
    """Outer dimensions and the row: plain dimensions join the one before them."""
    joined: list[PaddedDim] = []
    for dim in dims:
        if joined and dim.is_plain and joined[-1].base == 1:
            last = joined.pop()
            n = dim.size
            dim = PaddedDim(last.size * n, last.source * n, last.low * n)
        joined.append(dim)
    return joined[:-1], joined[-1] if joined else PaddedDim(1, 1)


def _element(w: Writer, dim: PaddedDim, position: Value) -> tuple[Value, Value | None]:
    """The element at a position, and whether there is one (None: always)."""
    if dim.is_plain:
        return position, None
    moved = w.binary("sub", position, w.int(dim.low))
    element = w.binary("udiv", moved, w.int(dim.base)) if dim.base > 1 else moved
    # A position before the first element is huge as an unsigned number.
    inside = w.compare(
        "icmp ult", moved, w.int((dim.source - 1) * dim.base + 1 if dim.source else 0)
    )
    if dim.base > 1:
        rest = w.compare("icmp eq", w.binary("urem", moved, w.int(dim.base)), w.int(0))
        inside = w.binary("and", inside, rest)
    return w.select(inside, element, w.int(0)), inside


def _is_called(dim: PaddedDim, source: DType, result: DType) -> bool:
    """Whether a row is one run of equal elements between zeros, and long."""
    is_run = dim.base == 1 and source is result and result.bits >= 8
    return is_run and dim.source > 0 and dim.size * result.item_bytes >= LEAST_RUN_BYTES


def _call_copies(
    w: Writer, dim: PaddedDim, source: Value, to: Value, item_bytes: int, valid: Value | None
) -> None:
    """A row: zeros, as many elements as reach it, zeros; zeros alone where it is not valid."""
    low = min(max(dim.low, 0), dim.size)
    first = max(-dim.low, 0)
    count = max(0, min(dim.source - first, dim.size - low))

    def fill(begin: int, size: int) -> None:
        if size:
            w.fill_bytes(advanced(w, to, begin * item_bytes, "i8"), 0, size * item_bytes)

    def copy() -> None:
        fill(0, low)
        if count:
            begin = advanced(w, source, first * item_bytes, "i8")
            at = advanced(w, to, low * item_bytes, "i8")
            w.copy_bytes(at, begin, w.int(count * item_bytes))
        fill(low + count, dim.size - low - count)

    if valid is None:
        copy()
        return
    when(w, valid, copy)
    when(w, w.binary("xor", valid, w.int(1, "i1")), lambda: fill(0, dim.size))


def _copy_row(
    w: Writer,
    ring: Ring,
    dim: PaddedDim,
    source: tuple[Value, DType],
    result: tuple[Value, DType],
    valid: Value | None,
) -> None:
    lanes = ring.lanes
    vectors = -(-dim.size // lanes)

    def at_vector(v: Value, _: list[Value]) -> list[Value]:
        position = times(w, v, lanes)
        parts = _positions(w, ring, dim, source, position, valid)
        mask = below(w, position, dim.size, lanes) if dim.size % lanes else None
        address = element_address(w, result[0], position, result[1])
        stored(w, ring, result[1], parts, address, mask)
        return []

    if dim.size:
        loop(w, w.int(vectors), [], at_vector)


def _positions(
    w: Writer,
    ring: Ring,
    dim: PaddedDim,
    source: tuple[Value, DType],
    position: Value,
    valid: Value | None,
) -> Parts:
    """One vector of positions of the row."""
    lanes = ring.lanes
    wide = f"<{lanes} x i64>"
    memory, dtype = source
    if dim.source == 0:
        return ring.zero(w, lanes)
    if dim.base == 1:
        moved = w.binary("sub", position, w.int(dim.low))
        inside = below(w, moved, dim.source, lanes)
        if valid is not None:
            inside = w.binary("and", inside, w.splat(valid, lanes))
        return loaded(w, ring, dtype, element_address(w, memory, moved, dtype), lanes, inside)
    index = w.binary("add", w.splat(position, lanes), counted("i64", lanes))
    index = w.binary("sub", index, w.int(dim.low, wide))
    element = w.binary("udiv", index, w.int(dim.base, wide))
    rest = w.binary("urem", index, w.int(dim.base, wide))
    inside = w.compare("icmp ult", element, w.int(dim.source, wide))
    inside = w.binary("and", inside, w.compare("icmp eq", rest, w.int(0, wide)))
    if valid is not None:
        inside = w.binary("and", inside, w.splat(valid, lanes))
    offsets = w.select(inside, element, w.zero(wide))
    parts = gathered(w, ring, dtype, memory, offsets)
    return tuple(w.select(inside, p, w.zero(p.type)) for p in parts)
