"""Index arithmetic, folded where numbers are known: sums, multi-indices, shares of a count.

split_index(w, index, sizes) --> parts, outermost first;  strided(w, index, axes) --> offset
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.ir.writer import Value, Writer


def add(w: Writer, a: Value, b: Value) -> Value:
    """a + b, folded where known."""
    x, y = a.integer, b.integer
    if x == 0:
        return b
    if y == 0:
        return a
    if x is not None and y is not None:
        return w.int(x + y)
    return w.binary("add", a, b)


def times(w: Writer, a: Value, factor: int) -> Value:
    """a * factor, folded where known."""
    x = a.integer
    if factor == 0 or x == 0:
        return w.int(0)
    if x is not None:
        return w.int(x * factor)
    return a if factor == 1 else w.binary("mul", a, w.int(factor))


def divided(w: Writer, a: Value, divisor: int) -> Value:
    """a // divisor, folded where known."""
    if a.integer is not None:
        return w.int(a.integer // divisor)
    return a if divisor == 1 else w.binary("udiv", a, w.int(divisor))


def split_index(w: Writer, index: Value, sizes: Sequence[int]) -> list[Value]:
    """The multi-index of a linear one, outermost first."""
    parts: list[Value] = []
    rest = index
    for size in reversed(sizes[1:]):
        if size == 1 or rest.integer == 0:
            parts.append(w.int(0))
            continue
        parts.append(w.binary("urem", rest, w.int(size)))
        rest = w.binary("udiv", rest, w.int(size))
    return [*([rest] if sizes else []), *reversed(parts)]


def strided(w: Writer, index: Value, axes: Sequence[tuple[int, int]]) -> Value:
    """Offset of a linear index over (size, stride) axes; with one axis it may run past the size."""
    offset = w.int(0)
    if all(stride == 0 for _, stride in axes):
        return offset
    parts = split_index(w, index, [size for size, _ in axes])
    for part, (_, stride) in zip(parts, axes, strict=True):
        offset = add(w, offset, times(w, part, stride))
    return offset


def clipped(w: Writer, first: Value, size: int, total: int) -> Value:
    """min(size, total - first)."""
    if total % size == 0:
        return w.int(size)
    left = w.binary("sub", w.int(total), first)
    return w.intrinsic("llvm.umin", "i64", left, w.int(size))


def shared(w: Writer, block: Value, count: int, blocks: int) -> tuple[Value, Value]:
    """Part [first, last) of `count` things that are shared out evenly to blocks, and to any blocks
    that follow each other: a thread has some of them. With the larger blocks first one of two would
    have 24 of 43 things in 16 blocks.
    """
    if blocks == 1:
        return w.int(0), w.int(count)
    if count == blocks:
        return block, add(w, block, w.int(1))
    if count % blocks == 0:
        size = count // blocks
        return times(w, block, size), times(w, add(w, block, w.int(1)), size)

    def before(index: Value) -> Value:
        return divided(w, times(w, index, count), blocks)

    return before(block), before(add(w, block, w.int(1)))


def advanced(w: Writer, base: Value, offset: Value | int, element: str) -> Value:
    """base + offset elements."""
    index = offset if isinstance(offset, Value) else w.int(offset)
    return base if index.integer == 0 else w.address(base, index, element)
