"""Nest: loops under construction, and code placed at the outermost loop where its inputs are known.

Each open loop has its own records; closing it appends them, framed, to its parent's. Code that
depends on outer loops only is written into those loops' records, hence before the inner loop:
hoisting needs no analysis. What is known (common subexpressions, evaluated elements) is kept per
level and forgotten with it. Does not know HLO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from hlo.backend.ir.records import Arithmetic, Line
from hlo.backend.ir.writer import Known, Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.loops.opened import Made, Record, Step, Stored, opened
from hlo.backend.loops.schedule import Reduction
from hlo.indexing import affine
from hlo.indexing.affine import Atom, DivMod, Expr, Opaque, Variable

Bound = int | Value
Carried = list[Value]


class Level(Struct):
    """One loop body (level 0: the function's entry). own: names of its counter and of what it
    carries, which none of its records define. opened: loops and reductions, where they are kept.
    """

    depth: int
    records: list[Line]
    known: Known
    own: frozenset[str] = frozenset()
    memo: dict[object, object] = field(default_factory=dict)
    opened: list[Step] | None = None


class Nest:
    """The open loops, outermost first, over one writer. outer: loops around what the writer has
    reached.
    """

    def __init__(self, w: Writer, target: Target, outer: Sequence[Level] = ()) -> None:
        self.w = w
        self.target = target
        self.path = [*outer, Level(len(outer), w.records, w.scope())]
        self.record: Record | None = None
        w.restore(self.path[-1].known, [level.known for level in outer] if outer else None)

    @property
    def depth(self) -> int:
        return self.path[-1].depth

    def depth_of(self, value: Value) -> int:
        """The open loop in whose records a value is defined; 0 for constants and arguments."""
        if value.is_constant:
            return 0
        name = value.text
        for level in reversed(self.path):
            if name in level.own or any(r.name == name for r in reversed(level.records)):
                return level.depth
        return 0

    @contextmanager
    def at(self, depth: int) -> Iterator[Level]:
        """Write into the records of the open loop of that depth (0: the entry)."""
        saved = self.path
        if depth < len(saved) - 1:
            self._enter(saved[: depth + 1])
        try:
            yield self.path[-1]
        finally:
            if self.path is not saved:
                self._enter(saved)

    def _enter(self, path: list[Level]) -> None:
        self.path = path
        self.w.records = path[-1].records
        self.w.restore(path[-1].known, [level.known for level in path[:-1]])

    def begin_record(self) -> Record:
        """Keep what is opened from now on."""
        self.record = Record()
        self.path[0].opened = self.record.loops
        return self.record

    def stores(self, leaf: int) -> None:
        """An entry of the table is stored to here."""
        opened = self.path[-1].opened
        if opened is not None and leaf >= 0:
            opened.append(Stored(leaf))

    def tell_loop(self, rounds: int, leaves: Iterable[int]) -> None:
        """A loop of so many rounds, none of the nest's, stored to entries of the table."""
        if (here := self.path[-1].opened) is not None:
            here.append(opened(0, rounds, 1, [Stored(leaf) for leaf in leaves]))

    @contextmanager
    def making(self, reduction: Callable[[], Reduction]) -> Iterator[None]:
        """A reduction is made here, which loops are for."""
        level = self.path[-1]
        if level.opened is None:
            yield
            return
        outer, inner = level.opened, list[Step]()
        level.opened = inner
        try:
            yield
        finally:
            level.opened = outer
        outer.append(Made(reduction(), inner))

    # -- loops -------------------------------------------------------------------------------

    def once(self, body: Callable[[Value], None]) -> None:
        """The only round of a loop over units: what is known in it ends with it, as a loop's."""
        outer = self.path
        level = Level(len(outer), [], dict(outer[-1].known))
        if outer[-1].opened is not None:
            level.opened = []
        self._enter([*outer, level])
        body(self.w.int(0))
        self._enter(outer)
        if outer[-1].opened is not None and level.opened is not None:
            outer[-1].opened.append(opened(None, None, 1, level.opened))
        self.w.records.extend(level.records)

    def loop(
        self,
        low: Bound,
        high: Bound,
        step: int,
        carried: Carried,
        body: Callable[[Value, Carried], Carried],
    ) -> Carried:
        """`for i = low; i + step <= high; i += step`: the carried values after the last round."""
        if isinstance(low, int) and isinstance(high, int) and high - low < step:
            return carried
        w = self.w
        pre, head, latch, done = (w.new_label(p) for p in ("pre", "loop", "next", "done"))
        counter = Value(w.fresh("i"), "i64")
        inner = [Value(w.fresh("acc"), c.type) for c in carried]
        outer = self.path
        own = frozenset([counter.text, *(i.text for i in inner)])
        level = Level(len(outer), [], dict(outer[-1].known), own)
        if outer[-1].opened is not None:
            level.opened = []
        self._enter([*outer, level])
        results = body(counter, inner)
        self._enter(outer)
        if outer[-1].opened is not None and level.opened is not None:
            outer[-1].opened.append(opened(low, high, step, level.opened))
        start = low if isinstance(low, Value) else w.int(low)
        last = self._last(high, step)
        skip = pre
        runs = isinstance(low, int) and isinstance(high, int)
        if not runs:
            w.branch(pre)
            w.label(pre)
            first = w.assign(Arithmetic, "i1", "icmp sle", start, last)
            entry = w.new_label("enter")
            w.branch_if(first, entry, done)
            pre = entry
        else:
            w.branch(pre)
        w.label(pre)
        w.branch(head)
        w.label(head)
        after, more = Value(f"{counter}.n", "i64"), Value(f"{counter}.c", "i1")
        w.phi("i64", (start, pre), (after, latch), name=counter.text)
        for c, i, r in zip(carried, inner, results, strict=True):
            w.phi(c.type, (c, pre), (r, latch), name=i.text)
        w.records.extend(level.records)
        w.branch(latch)
        w.label(latch)
        advanced = (counter, w.int(step))
        w.append(Arithmetic(after.text, "i64", "add nsw", advanced))
        w.append(Arithmetic(more.text, "i1", "icmp sle", (after, last)))
        w.branch_if(more, head, done)
        w.label(done)
        if runs:
            return list(results)
        return [
            w.phi(c.type, (c, skip), (r, latch)).value
            for c, r in zip(carried, results, strict=True)
        ]

    def _last(self, high: Bound, step: int) -> Value:
        """The greatest counter value with which a round still runs."""
        if isinstance(high, int):
            return self.w.int(high - step)
        return high if step == 0 else self.w.binary("sub", high, self.w.int(step))

    def variable(
        self, value: Value, low: int, high: int, lanes: int = 1, mask: Value | None = None
    ) -> Expr:
        """A loop variable of the innermost open loop, as an index."""
        variable = Variable(value.text, low, high, self.depth, lanes, value, mask)
        return affine.of(variable) if lanes == 1 else Expr({variable: 1}, 0)

    # -- index values ------------------------------------------------------------------------

    def scalar(self, e: Expr) -> Value:
        """The i64 value of an index; of lane 0 where a loop variable counts lanes."""
        total: Value | None = None
        path = self.path
        for depth, terms in _by_depth(e):
            self._leave_to(depth, path)
            total = self._sum(terms, total)
            self._back_to(path)
        constant = self.w.int(e.constant)
        if total is None:
            return constant
        if not e.constant:
            return total
        self._leave_to(e.depth, path)
        total = self.w.binary("add nsw", total, constant)
        self._back_to(path)
        return total

    def _leave_to(self, depth: int, path: list[Level]) -> None:
        """Write into an outer loop's lines, as `at`, until `_back_to`: index code is hot."""
        if depth + 1 < len(path):
            self._enter(path[: depth + 1])

    def _back_to(self, path: list[Level]) -> None:
        if self.path is not path:
            self._enter(path)

    def _sum(self, terms: list[tuple[Atom, int]], total: Value | None) -> Value:
        """The terms' sum, after `total`, here."""
        for atom, k in terms:
            term = self._times(self._atom(atom), k)
            total = term if total is None else self.w.binary("add nsw", total, term)
        assert total is not None, "there are terms"
        return total

    def _times(self, value: Value, factor: int) -> Value:
        if factor == 1:
            return value
        return self.w.binary("mul nsw", value, self.w.int(factor, value.type))

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, DivMod):
            return self._part(atom, self.scalar(_shifted(atom)))
        assert isinstance(atom.value, Value), f"{atom} has a value"
        return atom.value

    def _part(self, atom: DivMod, inner: Value) -> Value:
        """Quotient or remainder of the inner value, made non-negative by `_shifted`."""
        divisor = self.w.int(atom.divisor, inner.type)
        if not atom.is_quotient:
            return self.w.binary("urem", inner, divisor)
        quotient = self.w.binary("udiv", inner, divisor)
        less = _shift(atom) // atom.divisor
        return self.w.binary("sub", quotient, self.w.int(less, inner.type)) if less else quotient

    def pointer(self, base: Value, position: Expr, element: str) -> Value:
        """base + position elements; what outer loops fix is added in them, the constant last."""
        w, path, pointer = self.w, self.path, base
        for depth, terms in _by_depth(position):
            self._leave_to(depth, path)
            pointer = w.address(pointer, self._sum(terms, None), element)
            self._back_to(path)
        if position.constant:
            self._leave_to(position.depth, path)
            pointer = w.address(pointer, w.int(position.constant), element)
            self._back_to(path)
        return pointer

    def lane_values(self, e: Expr, lanes: int, scalar: str = "") -> Value:
        """The index in every lane, as a vector of i32 (i64 where 32 bits are too few)."""
        if not scalar:
            scalar = "i32" if fits(e, 31) else "i64"
        type = vector_of(scalar, lanes)
        with self.at(e.depth):
            total = None
            for atom, k in e.terms.items():
                if atom.lanes > 1:
                    term = self._times(self._lane_atom(atom, lanes, scalar), k)
                    total = term if total is None else self.w.binary("add", total, term)
            uniform = Expr({a: k for a, k in e.terms.items() if a.lanes == 1}, e.constant)
            if total is not None and uniform.is_constant and not uniform.constant:
                return total
            base = self.w.splat(self._resized(self.scalar(uniform), scalar), lanes)
            return base if total is None else self.w.binary("add", total, base.of_type(type))

    def _lane_atom(self, atom: Atom, lanes: int, scalar: str) -> Value:
        if isinstance(atom, DivMod):
            wide = "i64" if scalar == "i64" or not fits(_shifted(atom), 31) else "i32"
            inner = self.lane_values(_shifted(atom), lanes, wide)
            return self._resized(self._part(atom, inner), scalar)
        assert isinstance(atom.value, Value), f"{atom} has a value"
        if isinstance(atom, Opaque):
            return self._resized(atom.value, scalar)
        return self.w.counting(self._resized(atom.value, scalar), lanes)

    def _resized(self, value: Value, scalar: str) -> Value:
        """An integer value in another width; indices are signed."""
        if value.scalar_type == scalar:
            return value
        if value.is_constant:
            return value.resized(scalar)
        opcode = "trunc" if scalar == "i32" else "sext"
        return self.w.cast(opcode, value, vector_of(scalar, value.lanes))


def _by_depth(e: Expr) -> list[tuple[int, list[tuple[Atom, int]]]]:
    """An index's terms, by the loop at whose depth each is known, outermost first."""
    groups: dict[int, list[tuple[Atom, int]]] = {}
    for term in e.terms.items():
        groups.setdefault(term[0].depth, []).append(term)
    return sorted(groups.items()) if len(groups) > 1 else list(groups.items())


def fits(e: Expr, bits: int) -> bool:
    """Whether all values of the index and of each of its terms fit in so many bits and a sign."""
    limit = 1 << bits
    sizes = [abs(k) * max(abs(a.low), abs(a.high)) for a, k in e.terms.items()]
    return sum(sizes) + abs(e.constant) < limit


def _shift(atom: DivMod) -> int:
    """A multiple of the divisor that makes the inner index non-negative."""
    if atom.inner.low >= 0:
        return 0
    return -(atom.inner.low // atom.divisor) * atom.divisor


def _shifted(atom: DivMod) -> Expr:
    return atom.inner + _shift(atom)
