"""Loops and index arithmetic of contraction kernels, written straight into a Writer.

loop(w, count, carried, body): bottom-tested, so count must be at least 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.ir.functions import Function
from hlo.backend.ir.records import Arithmetic
from hlo.backend.ir.writer import Value, Writer

Body = Callable[[Value, list[Value]], Sequence[Value]]


def loop(w: Writer, count: Value, carried: Sequence[Value], body: Body) -> list[Value]:
    """for i in range(count): carried = body(i, carried); the last values. count >= 1."""
    if count.integer == 1:
        return list(body(w.int(0), list(carried)))
    before, head, latch, done = (w.new_label(p) for p in ("before", "loop", "latch", "done"))
    w.branch(before)
    w.label(before)
    w.branch(head)
    w.label(head)
    counter = w.phi("i64", (w.int(0), before), name=w.fresh("i"))
    index = counter.value
    phis = [w.phi(v.type, (v, before), name=w.fresh("c")) for v in carried]
    values = [phi.value for phi in phis]
    known = w.scope()
    results = list(body(index, values))
    w.branch(latch)
    w.label(latch)
    following = w.assign(Arithmetic, "i64", "add nuw nsw", index, w.int(1))
    more = w.compare("icmp ult", following, count)
    w.branch_if(more, head, done)
    for phi, last in zip((counter, *phis), (following, *results), strict=True):
        phi.add_incoming(last, latch)
    w.restore(known)
    w.label(done)
    return results


def when(
    w: Writer,
    condition: Value,
    then: Callable[[], None],
    otherwise: Callable[[], None] | None = None,
) -> None:
    """if condition: then() else: otherwise(). Neither yields a value."""
    yes, no, done = (w.new_label(p) for p in ("then", "else", "endif"))
    known = w.scope()
    w.branch_if(condition, yes, no if otherwise else done)
    w.label(yes)
    then()
    w.branch(done)
    w.restore(dict(known))
    if otherwise:
        w.label(no)
        otherwise()
        w.branch(done)
        w.restore(dict(known))
    w.label(done)


def ranged(w: Writer, begin: Value, end: Value, body: Callable[[Value], None]) -> None:
    """for i in range(begin, end): body(i). The range may be empty."""

    def run(i: Value, _: list[Value]) -> list[Value]:
        body(i)
        return []

    remembering(w, begin, end, [], run)


def each(w: Writer, begin: Value, end: Value, body: Callable[[Value], None]) -> None:
    """for i in range(begin, end): body(i). The range is not empty."""

    def run(i: Value, _: list[Value]) -> list[Value]:
        body(add(w, begin, i))
        return []

    loop(w, w.binary("sub", end, begin), [], run)


def remembering(w: Writer, begin: Value, end: Value, carried: Sequence[Value], body: Body) -> None:
    """for i in range(begin, end): carried = body(i, carried). The range may be empty."""
    count = w.binary("sub", end, begin)
    some = w.compare("icmp sgt", count, w.int(0))
    when(w, some, lambda: void(loop(w, count, carried, lambda i, c: body(add(w, begin, i), c))))


def void(_: object) -> None:
    """Drop a result, where a callable has to return nothing."""


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


def looped(w: Writer, count: Value, body: Callable[[Value], None]) -> None:
    """for i in range(count): body(i). A count that is known may be 0, another has to be tested."""
    if count.integer is None:
        ranged(w, w.int(0), count, body)
    elif count.integer:
        each(w, w.int(0), count, body)


def when_rest(w: Writer, size: Value, step: int, then: Callable[[], None]) -> None:
    """if size % step: then()."""
    if size.integer is None:
        left = w.binary("urem", size, w.int(step))
        when(w, w.compare("icmp ne", left, w.int(0)), then)
    elif size.integer % step:
        then()


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
    """Part [first, last) of `count` things that are shared out evenly to blocks."""
    if blocks == 1:
        return w.int(0), w.int(count)
    if count == blocks:
        return block, w.binary("add", block, w.int(1))
    size = -(-count // blocks)
    less = blocks * size - count  # the last `less` blocks hold one fewer
    whole = blocks - less
    if less == 0:
        return times(w, block, size), times(w, w.binary("add", block, w.int(1)), size)

    def before(index: Value) -> Value:
        beyond = w.intrinsic("llvm.smax", "i64", w.binary("sub", index, w.int(whole)), w.int(0))
        return w.binary("sub", times(w, index, size), beyond)

    return before(block), before(w.binary("add", block, w.int(1)))


def advanced(w: Writer, base: Value, offset: Value | int, element: str) -> Value:
    """base + offset elements."""
    index = offset if isinstance(offset, Value) else w.int(offset)
    return base if index.integer == 0 else w.address(base, index, element)


def copied_bytes(w: Writer, target: Value, source: Value, size: Value) -> None:
    """Copy memory that does not overlap."""
    w.copy_bytes(target, source, size)


def kernel_function(w: Writer) -> Function:
    """The function of which w holds the body."""
    w.ret()
    return w.function(ends_line=True)


def buffer_address(w: Writer, place: int) -> Value:
    """An address from the table; called at the head of the kernel."""
    slot = advanced(w, Value("%buffers", "ptr"), place, "ptr")
    return w.load(slot, "ptr", 8)
