"""Branches and open-ended loops inside a nest, for kernels whose course depends on the values.

What is known inside (common subexpressions) is forgotten at the end, as with a nest's loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from hlo.backend.ir.writer import Value
from hlo.backend.lanes.nest import Level, Nest


def when(nest: Nest, condition: Value, body: Callable[[], None]) -> None:
    """Run the body's code if the condition (one i1) holds."""
    w = nest.w
    then, after = w.new_label("then"), w.new_label("after")
    w.branch_if(condition, then, after)
    w.label(then)
    with _inside(nest):
        body()
    w.branch(after)
    w.label(after)


def known_or(nest: Nest, is_known: Value, known: Value, body: Callable[[], Value]) -> Value:
    """A value that is known if the condition (one i1) holds, else what the body's code makes."""
    w = nest.w
    before, made, end, after = (w.new_label(n) for n in ("asked", "made", "end", "known"))
    w.branch(before)
    w.label(before)
    w.branch_if(is_known, after, made)
    w.label(made)
    with _inside(nest):
        other = body()
    w.branch(end)
    w.label(end)
    w.branch(after)
    w.label(after)
    return w.phi(known.type, (known, before), (other, end)).value


def either(
    nest: Nest,
    condition: Value,
    first: Callable[[], list[Value]],
    second: Callable[[], list[Value]],
) -> list[Value]:
    """The values that the first body's code makes if the condition (one i1) holds, else those of
    the second's."""
    w = nest.w
    before, holds, ends, other, last, after = (
        w.new_label(n) for n in ("asked", "holds", "held", "other", "last", "either")
    )
    w.branch(before)
    w.label(before)
    w.branch_if(condition, holds, other)
    made = []
    for label, end, body in ((holds, ends, first), (other, last, second)):
        w.label(label)
        with _inside(nest):
            made.append(body())
        w.branch(end)
        w.label(end)
        w.branch(after)
    w.label(after)
    return [w.phi(a.type, (a, ends), (b, last)).value for a, b in zip(*made, strict=True)]


def repeat_while(
    nest: Nest,
    first: list[Value],
    test: Callable[[list[Value]], Value],
    body: Callable[[list[Value]], list[Value]],
) -> list[Value]:
    """While test(state): state = body(state). The state at the end."""
    w = nest.w
    before, head, inside, latch, done = (
        w.new_label(name) for name in ("before", "while", "do", "again", "done")
    )
    w.branch(before)
    w.label(before)
    w.branch(head)
    w.label(head)
    phis = [w.phi(v.type, (v, before), name=w.fresh("s")) for v in first]
    states = [phi.value for phi in phis]
    w.branch_if(test(states), inside, done)
    w.label(inside)
    with _inside(nest):
        following = body(states)
    w.branch(latch)
    w.label(latch)
    w.branch(head)
    w.label(done)
    for phi, later in zip(phis, following, strict=True):
        phi.add_incoming(later, latch)
    return states


@contextmanager
def _inside(nest: Nest) -> Iterator[None]:
    """Lines of a region that does not dominate what follows. What depends on the loops outside
    alone stands at the region's begin, and is known in the region alone, too.
    """
    outer = nest.path
    last = outer[-1]
    begin = replace(last, known=dict(last.known), memo=dict(last.memo))
    level = Level(len(outer), [], dict(last.known))
    nest._enter([*outer[:-1], begin, level])
    try:
        yield
    finally:
        nest._enter(outer)
        nest.w.records.extend(level.records)
