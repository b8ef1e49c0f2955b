"""diff: two modules matched by what they compute; names are free.

    module, module --equal values, then users, then roots--> pairs --> changed, only in A, only in B

Values that are computed alike from the same parameters are paired first; then, from the roots and
the pairs that are there, instructions that stand in the same place. What changed in the same way in
many places (a layer each) is one row. O(instructions), but for tuples of different lengths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from msgspec import Struct

from hlo.hashing import hasher
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.printer.equality import Texts

CHANGED, ONLY_A, ONLY_B = "changed", "only in A", "only in B"
MOST_NAMES = 8  # of a row that are kept


class Row(Struct, frozen=True):
    """Instructions that differ in one way. before, after: their text without names, "" on the side
    that has none. names: of the first few, in A where A has them. count: of all.
    """

    kind: str
    before: str
    after: str
    names: tuple[str, ...]
    count: int


class Difference(Struct, frozen=True):
    """How two modules differ.

    sizes: instructions of both modules; matched: pairs that say the same.
    """

    sizes: tuple[int, int]
    matched: int
    rows: tuple[Row, ...]

    @property
    def is_empty(self) -> bool:
        return not self.rows

    def count(self, kind: str) -> int:
        """Instructions of all rows of one kind."""
        return sum(row.count for row in self.rows if row.kind == kind)


def diff(first: Module, second: Module, *, metadata: bool = False) -> Difference:
    """How two modules differ up to names. metadata: also where only that differs.

    >>> axpy = hlo.read("examples/axpy.hlo")
    >>> hlo.diff(axpy, hlo.clone_module(axpy)).is_empty
    True
    """
    matching = _Matching(first, second, metadata=metadata)
    matching.run()
    rows = tuple(_rows(matching))
    sizes = tuple(sum(len(c) for c in m.computations) for m in (first, second))
    return Difference((sizes[0], sizes[1]), matching.equal, rows)


class _Side(Struct):
    """One module: what each instruction says, and a number for the value that it computes."""

    module: Module
    texts: Texts
    values: dict[Instruction, int]
    bodies: dict[Computation, int]

    def said(self, instruction: Instruction) -> str:
        """Its text without names, a constant's value as a hash."""
        text = self.texts.text(instruction)
        literal = instruction.get("literal")
        return f"{text}({_literal(literal)})" if isinstance(literal, Literal) else text


def _literal(literal: Literal) -> str:
    """The value, or a hash of it where it is long."""
    if isinstance(literal.value, tuple):
        return "..." if literal.is_elided else f"tuple of {len(literal.value)}"
    if literal.value is None:
        return "..."
    if literal.value.size == 1:
        return str(literal.value.reshape(()))
    return f"#{hasher(literal.value.tobytes()).hexdigest()[:8]}"


def _side(module: Module, numbers: dict[object, int], *, metadata: bool) -> _Side:
    """Numbers come from one table for both modules: equal values have equal numbers."""
    side = _Side(module, Texts(module, metadata=metadata), {}, {})
    for computation in callees_first(module):
        for instruction in post_order(computation):
            key = (
                side.said(instruction),
                tuple(side.values[o] for o in instruction.operands),
                tuple(side.bodies[c] for c in instruction.called_computations()),
            )
            side.values[instruction] = numbers.setdefault(key, len(numbers))
        side.bodies[computation] = side.values[computation.root]
    return side


def _by_name(side: _Side, computation: Computation) -> object:
    del side
    return computation.name


def _by_value(side: _Side, computation: Computation) -> object:
    return side.bodies[computation]


class _Matching:
    """The pairs, from A's instruction to B's and back."""

    def __init__(self, first: Module, second: Module, *, metadata: bool) -> None:
        numbers: dict[object, int] = {}
        self.a = _side(first, numbers, metadata=metadata)
        self.b = _side(second, numbers, metadata=metadata)
        self.pairs: dict[Instruction, Instruction] = {}
        self.back: dict[Instruction, Instruction] = {}
        self.homes: dict[Computation, Computation] = {}
        self._waiting: deque[tuple[Computation, Computation]] = deque()
        self._taken: set[Computation] = set()
        self.equal = 0

    def run(self) -> None:
        """Pair computations from the entries on, then those of one name or of one value."""
        self._meet(self.a.module.entry, self.b.module.entry)
        self._drain()
        for key_of in (_by_name, _by_value):
            others: dict[object, Computation] = {}
            for computation in self.b.module.computations:
                if computation not in self._taken:
                    others.setdefault(key_of(self.b, computation), computation)
            for computation in self.a.module.computations:
                other = others.get(key_of(self.a, computation))
                if other is not None:
                    self._meet(computation, other)
            self._drain()
        self.equal = sum(self.says_the_same(x, y) for x, y in self.pairs.items())

    def _meet(self, a: Computation, b: Computation) -> None:
        if a not in self.homes and b not in self._taken:
            self.homes[a] = b
            self._taken.add(b)
            self._waiting.append((a, b))

    def _drain(self) -> None:
        while self._waiting:
            a, b = self._waiting.popleft()
            self._equal_values(a, b)
            self._pair(a.root, b.root)
            self._downwards([(a.root, b.root)])
            self._upwards(a)
            self._leftovers(a, b)

    def _pair(self, x: Instruction, y: Instruction) -> bool:
        if x in self.pairs or y in self.back or x.opcode != y.opcode:
            return False
        self.pairs[x], self.back[y] = y, x
        for callee, other in zip(x.called_computations(), y.called_computations(), strict=False):
            self._meet(callee, other)
        return True

    def _equal_values(self, a: Computation, b: Computation) -> None:
        """Instructions that compute the same, in order; parameters by number whatever they are."""
        waiting: dict[int, deque[Instruction]] = {}
        for y in post_order(b):
            waiting.setdefault(self.b.values[y], deque()).append(y)
        for x in post_order(a):
            same = waiting.get(self.a.values[x])
            if same:
                self._pair(x, same.popleft())
        for x, y in zip(a.parameters, b.parameters, strict=False):
            self._pair(x, y)

    def _downwards(self, starts: Iterable[tuple[Instruction, Instruction]]) -> None:
        """From pairs to their operands; over an instruction that one side has more."""
        stack = list(starts)
        seen: set[tuple[Instruction, Instruction]] = set()
        while stack:
            pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            for x, y in self._aligned(pair[0].operands, pair[1].operands):
                if self._pair(x, y) or self.pairs.get(x) is y:
                    stack.append((x, y))
                    continue
                stack += self._over(x, y)

    def _aligned(
        self, left: tuple[Instruction, ...], right: tuple[Instruction, ...]
    ) -> Iterator[tuple[Instruction, Instruction]]:
        if len(left) == len(right):
            yield from zip(left, right, strict=True)
            return
        said = [self.a.said(x) for x in left], [self.b.said(y) for y in right]
        for block in SequenceMatcher(None, *said, autojunk=False).get_matching_blocks():
            for n in range(block.size):
                yield left[block.a + n], right[block.b + n]

    def _over(self, x: Instruction, y: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
        """Pairs of one instruction and an operand of the other, where only one side has it."""
        if x not in self.pairs:
            for operand in x.operands:
                if operand.opcode == y.opcode and self._pair(operand, y):
                    yield operand, y
                    return
        if y not in self.back:
            for operand in y.operands:
                if operand.opcode == x.opcode and self._pair(x, operand):
                    yield x, operand
                    return

    def _upwards(self, a: Computation) -> None:
        """From pairs to users that say the same, operands first."""
        for x in post_order(a):
            if x in self.pairs or not x.operands:
                continue
            partners = [self.pairs[o] for o in x.operands if o in self.pairs]
            said = self.a.said(x)
            for y in (u for p in partners[:1] for u in p.users):
                if y not in self.back and self.b.said(y) == said and self._pair(x, y):
                    self._downwards([(x, y)])
                    break

    def _leftovers(self, a: Computation, b: Computation) -> None:
        """What is left, by name, if it says the same or is the same operation on the same type."""
        named = {y.name: y for y in b.instructions if y not in self.back}
        for x in post_order(a):
            y = named.get(x.name)
            if x not in self.pairs and y is not None and x.opcode == y.opcode:
                self._pair(x, y)

    def says_the_same(self, x: Instruction, y: Instruction) -> bool:
        """Whether a pair has one text and uses pairs, what only one side has aside."""
        return self.a.said(x) == self.b.said(y) and not self.is_rewired(x, y)

    def is_rewired(self, x: Instruction, y: Instruction) -> bool:
        """Whether a pair uses values that are there on both sides and are no pair."""
        if len(x.operands) != len(y.operands):
            return False  # what is more or less stands in a row of its own
        return any(
            o in self.pairs and p in self.back and self.pairs[o] is not p
            and self.a.values[o] != self.b.values[p]
            for o, p in zip(x.operands, y.operands, strict=True)
        )  # fmt: skip


def _rows(matching: _Matching) -> Iterator[Row]:
    """The rows by kind, the most frequent ones first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for computation in matching.a.module.computations:
        for x in post_order(computation):
            y = matching.pairs.get(x)
            before = matching.a.said(x)
            if y is None:
                found.setdefault((ONLY_A, before, ""), []).append(x.name)
            elif not matching.says_the_same(x, y):
                after = matching.b.said(y)
                if after == before:
                    before, after = (f"{before} of {_used(i)}" for i in (x, y))
                found.setdefault((CHANGED, before, after), []).append(x.name)
    for computation in matching.b.module.computations:
        for y in post_order(computation):
            if y not in matching.back:
                found.setdefault((ONLY_B, "", matching.b.said(y)), []).append(y.name)
    order = (CHANGED, ONLY_A, ONLY_B)
    for (kind, before, after), names in sorted(
        found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]))
    ):
        yield Row(kind, before, after, tuple(names[:MOST_NAMES]), len(names))


def _used(instruction: Instruction) -> str:
    return ", ".join(f"%{o.name}" for o in instruction.operands)


def matched(first: Module, second: Module) -> dict[Instruction, Instruction]:
    """The instructions of the first module with those of the second that stand in their place."""
    matching = _Matching(first, second, metadata=False)
    matching.run()
    return matching.pairs
