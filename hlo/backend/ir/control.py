"""Control: the branches and loops of code that is written straight into a Writer.

    loop(w, count, carried, body), when(w, condition, body), ..   kernels hand their parts over
    with When(w, condition): ..      with Repeat(..) as (again, done): ..      Join
                                                  functions by hand are read from top to bottom

`loop` is tested at its end, so count must be at least 1. What is written inside of a part is known
(shared) there only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.backend.ir.records import Arithmetic, Label, Phi, is_terminator
from hlo.backend.ir.words import Word
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
    with w.region():
        results = list(body(index, values))
        w.branch(latch)
        w.label(latch)
        following = w.assign(Arithmetic, "i64", "add nuw nsw", index, w.int(1))
        more = w.compare("icmp ult", following, count)
        w.branch_if(more, head, done)
    for phi, last in zip((counter, *phis), (following, *results), strict=True):
        phi.add_incoming(last, latch)
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
    w.branch_if(condition, yes, no if otherwise else done)
    w.label(yes)
    with w.region():
        then()
    w.branch(done)
    if otherwise:
        w.label(no)
        with w.region():
            otherwise()
        w.branch(done)
    w.label(done)


def ranged(w: Writer, begin: Value, end: Value, body: Callable[[Value], None]) -> None:
    """for i in range(begin, end): body(i). The range may be empty."""

    def run(i: Value, _: list[Value]) -> list[Value]:
        body(i)
        return []

    remembering(w, begin, end, [], run)


def each(w: Writer, begin: Value, end: Value, body: Callable[[Value], None]) -> None:
    """for i in range(begin, end): body(i). The range is not empty."""

    from hlo.backend.ir.arithmetic import add

    def run(i: Value, _: list[Value]) -> list[Value]:
        body(add(w, begin, i))
        return []

    loop(w, w.binary("sub", end, begin), [], run)


def remembering(w: Writer, begin: Value, end: Value, carried: Sequence[Value], body: Body) -> None:
    """for i in range(begin, end): carried = body(i, carried). The range may be empty."""
    from hlo.backend.ir.arithmetic import add

    count = w.binary("sub", end, begin)
    some = w.compare("icmp sgt", count, w.int(0))
    when(w, some, lambda: void(loop(w, count, carried, lambda i, c: body(add(w, begin, i), c))))


def repeated(w: Writer, count: Value, carried: Sequence[Value], body: Body) -> list[Value]:
    """for i in range(count): carried = body(i, carried); the last values, which are those it began
    with where there is no round. A count below 0 is none."""
    before, then, after, done = (w.new_label(p) for p in ("before", "then", "after", "done"))
    w.branch(before)
    w.label(before)
    some = w.compare("icmp sgt", count, w.int(0))
    w.branch_if(some, then, done)
    w.label(then)
    with w.region():
        results = loop(w, count, carried, body)
    w.branch(after)
    w.label(after)
    w.branch(done)
    w.label(done)
    pairs = zip(carried, results, strict=True)
    return [w.phi(a.type, (a, before), (b, after)).value for a, b in pairs]


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


class Join:
    """A block that several branches lead to, like a label of C's `goto`, and the values that they
    bring.

    types: of the values; they are words once the block has begun (`here`).
    """

    def __init__(self, w: Writer, types: Sequence[str] = ()) -> None:
        self.w = w
        self.types = types
        self.label = w.new_label()
        self.words: list[Word] = []
        self.is_reached = False
        self._ways: list[tuple[str, Sequence[Value | int]]] = []
        self._phis: list[Phi] = []

    def go(self, *values: Value | int) -> None:
        """goto, with the values; the block ends."""
        self._come(values)
        self.w.branch(self.label)

    def go_if(self, condition: Value, *values: Value | int) -> None:
        """if (condition) goto"""
        self._come(values)
        following = self.w.new_label()
        self.w.branch_if(condition, self.label, following)
        self.w.label(following)

    def go_unless(self, condition: Value, *values: Value | int) -> None:
        """if (!condition) goto"""
        self._come(values)
        following = self.w.new_label()
        self.w.branch_if(condition, following, self.label)
        self.w.label(following)

    def here(self, *values: Value | int) -> list[Word]:
        """The block begins, and what is above leads to it, with these values, if it is no end."""
        if not is_ended(self.w):
            self.go(*values)
        self.w.label(self.label)
        self._phis = [self.w.phi(type) for type in self.types]
        for label, brought in self._ways:
            self._add(label, brought)
        self.words = [Word(phi.name, phi.type, self.w) for phi in self._phis]
        return self.words

    def _come(self, values: Sequence[Value | int]) -> None:
        self.is_reached = True
        if not self.types:
            return
        label = next(r.label for r in reversed(self.w.records) if isinstance(r, Label))
        if self._phis:
            self._add(label, values)
        else:
            self._ways.append((label, values))

    def _add(self, label: str, values: Sequence[Value | int]) -> None:
        for phi, value in zip(self._phis, values, strict=True):
            word = value if isinstance(value, Value) else Value(str(value), phi.type)
            phi.add_incoming(word, label)


class When:
    """with When(w, condition): what is done if it holds, which may leave the function."""

    def __init__(self, w: Writer, condition: Value) -> None:
        self.after = Join(w)
        self.condition = condition

    def __enter__(self) -> None:
        self.after.go_unless(self.condition)

    def __exit__(self, *_: object) -> None:
        self.after.here()


class Repeat:
    """with Repeat(w, types, first) as (again, done): rounds until `done.go..`; `again.go..` begins
    the next one, with new values of `again.words`.
    """

    def __init__(self, w: Writer, types: Sequence[str], first: Sequence[Value | int]) -> None:
        self.again, self.done, self.first = Join(w, types), Join(w), first

    def __enter__(self) -> tuple[Join, Join]:
        self.again.here(*self.first)
        return self.again, self.done

    def __exit__(self, *_: object) -> None:
        assert is_ended(self.again.w), "a round ends by going somewhere"
        if self.done.is_reached:
            self.done.here()


class Count:
    """with Count(w, end) as i: for i in range(end). The range may be empty."""

    def __init__(self, w: Writer, end: Value) -> None:
        self.rounds, self.end = Repeat(w, ("i64",), (0,)), end

    def __enter__(self) -> Word:
        again, done = self.rounds.__enter__()
        (self.index,) = again.words
        done.go_unless(self.index.below(self.end))
        return self.index

    def __exit__(self, *_: object) -> None:
        self.rounds.again.go(self.index + 1)
        self.rounds.__exit__()


def is_ended(w: Writer) -> bool:
    """Whether the block that is written has ended: nothing may follow but a label."""
    return is_terminator(w.records[-1])


def set_flag(w: Writer, found: Value, flag: Value) -> None:
    """A byte becomes 1 where any lane is true; any thread may."""
    ends = " unordered, align 1"
    when(w, w.any_lane(found), lambda: w.emit("store atomic", w.int(1, "i8"), flag, rest=ends))
