"""Control: the branches and loops of code that is written straight into a Writer.

loop(w, count, carried, body): bottom-tested, so count must be at least 1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.ir.arithmetic import add
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


def void(_: object) -> None:
    """Drop a result, where a callable has to return nothing."""
