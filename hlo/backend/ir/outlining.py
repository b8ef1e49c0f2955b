"""Outlining: loops of long kernels as functions of their own, compiled apart and side by side.

    kernels by name, lines --outline--> kernels that call their loops, and those loops as kernels

LLVM's time follows a function's lines, and one function keeps one processor busy. A loop becomes a
function where a call costs next to nothing beside its work, and so does a part of very many lines
without a branch. What an outlined function uses from outside are its parameters, what is used of it
afterwards is returned. No value changes: our text allows LLVM to combine no two operations that
round.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.definitions import digest_of, only_needed
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import (
    Alloca,
    Branch,
    Call,
    Instruction,
    Label,
    Line,
    Phi,
    block,
    branch,
    is_terminator,
    names_of,
)
from hlo.backend.ir.values import Value, poison

LEAST_LINES = 60  # Lines of a loop that is worth a function: they take about 2 ms.
# Lines that one call has to run to be worth it: a call costs about 30 of them, and what it makes
# LLVM spill. Half as many do where the kernel would take too long to compile otherwise.
LEAST_WORK = 1500
MOST_RUN = 400  # Lines without a branch that stay together: they take about 12 ms.
UNKNOWN_ROUNDS = 4  # Rounds that a loop is taken to have whose bounds come at run time.
# The most vectors and values that a call passes, and values that it returns.
MOST_VECTORS, MOST_VALUES, MOST_RESULTS = 8, 20, 6
_SLACK = 1.15  # A kernel that is longer than wanted by no more than this factor stays whole.
_WHOLE = 0.75  # A loop that is so much of its function is not outlined.


def outline(kernels: dict[str, Kernel], lines: int, longest: int = 0) -> dict[str, Kernel]:
    """The kernels; those of more than `longest` lines as functions of about `lines`, which precede
    them."""
    found: dict[str, Kernel] = {}
    for name, kernel in kernels.items():
        if kernel.length <= longest:
            found[name] = kernel
            continue
        functions: dict[str, Kernel] = {}
        rest = _outline(kernel, lines, functions)
        found |= {**functions, name: rest}
    return found


def _outline(kernel: Kernel, lines: int, functions: dict[str, Kernel]) -> Kernel:
    """The kernel without its largest loops, which are added to the functions, outlined again
    themselves."""
    if kernel.length <= lines * _SLACK:
        return kernel
    function = _Function.read(kernel.function)
    if function is None:
        return kernel
    loops = function.chosen(lines)
    wanted = [function.candidate(x.first, x.end, function.labels[x.last + 1]) for x in loops]
    wanted += [function.candidate(*run) for run in function.runs(loops)]
    chosen = [candidate for candidate in wanted if candidate is not None]
    if not chosen:
        return kernel
    declared: list[str] = []
    for candidate in chosen:
        made = _outline(
            replace(only_needed(kernel, candidate.function), functions=()), lines, functions
        )
        candidate.symbol = f"p_{digest_of(made)}"
        functions[candidate.symbol] = made
        declared.append(candidate.declaration())
    rest = only_needed(kernel, function.without(chosen))
    return replace(rest, declarations=(*rest.declarations, *dict.fromkeys(declared)))


class _Loop(Struct, eq=False):
    """Records [first, last] of a function: from its label `pre` to its latch's branch.

    end: the last of the phis that follow its label `done`. work: lines that one entry runs.
    """

    first: int
    last: int
    end: int
    rounds: int
    inner: list[_Loop] = field(default_factory=list)
    work: int = 0

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class _Candidate(Struct, eq=False):
    """Records [first, end] as a function. symbol: its name, once its text is final.

    done: the label after a loop, whose label `pre` is the first record; "" without branches.
    """

    first: int
    end: int
    done: str
    function: Function
    results: list[Value]
    symbol: str = ""

    def declaration(self) -> str:
        types = ", ".join(p.type for p in self.function.parameters)
        return f"declare {self.function.result} @{self.symbol}({types})"

    def call(self) -> list[Instruction]:
        """The records that call it."""
        result, operands = self.function.result, self.function.parameters
        if len(self.results) <= 1:
            name = self.results[0].text if self.results else ""
            return [Call(name, result, "call", operands, symbol=self.symbol)]
        whole = Value(f"%got.{self.first + 1}", result)
        parts = [
            Instruction(value.text, value.type, "extractvalue", (whole,), f", {n}")
            for n, value in enumerate(self.results)
        ]
        return [Call(whole.text, result, "call", operands, symbol=self.symbol), *parts]


class _Function(Struct, eq=False):
    """A function, its loops, and what each record defines."""

    source: Function
    records: Sequence[Line]
    loops: list[_Loop]
    labels: dict[int, str]  # The labels by the number of their record.
    position: dict[str, int]  # The record that defines each value.
    _first: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(source: Function) -> _Function | None:
        """None where the function is none of those whose loops a nest wrote."""
        if source.attributes or source.linkage:
            return None
        records = source.records
        labels = {n: r.label for n, r in enumerate(records) if isinstance(r, Label)}
        position = {r.name: n for n, r in enumerate(records) if r.name}
        return _Function(source, records, _loops(records, labels), labels, position)

    def _names(self, first: int, end: int) -> set[str]:
        """Those that records [first, end) hold."""
        return {*names_of(self.records[first:end])}

    def _is_outside(self, name: str, first: int, end: int) -> bool:
        """Whether others than [first, end) mention a name."""
        if not self._first:
            self._read_mentions()
        return self._first.get(name, first) < first or self._last.get(name, first) >= end

    def _read_mentions(self) -> None:
        """The first and the last record that has each operand; definitions do not matter."""
        found = [(o.text, n) for n, record in enumerate(self.records) for o in record.operands]
        for n, record in enumerate(self.records):
            if isinstance(record, Phi):
                found += [(f"%{label}", n) for label in record.blocks]
        found.sort(key=itemgetter(1))
        self._last.update(found)
        self._first.update(reversed(found))

    def chosen(self, wanted: int) -> list[_Loop]:
        """The loops to outline, so that about `wanted` lines are left of the function."""
        left, found = self.source.length + 1, []
        outermost = set(map(id, self.loops))
        count = itertools.count()  # Of equal loops the first goes first.
        candidates: list[tuple[int, int, _Loop]] = []

        def add(loops: list[_Loop]) -> None:
            for loop in loops:
                heapq.heappush(candidates, (-loop.size, next(count), loop))

        add(self.loops if len(self.loops) != 1 else self.loops[0].inner)
        while left > wanted * _SLACK and candidates:
            loop = heapq.heappop(candidates)[2]
            if loop.size < LEAST_LINES:
                break
            is_outermost = id(loop) in outermost
            least = LEAST_WORK if left <= MOST_RUN else LEAST_WORK // 2
            if loop.size > _WHOLE * left or not (is_outermost or loop.work >= least):
                add(loop.inner)
            else:
                found.append(loop)
                left -= loop.size
        return found

    def runs(self, chosen: list[_Loop]) -> Iterator[tuple[int, int]]:
        """Lines to outline of those without branches, where very many follow each other."""
        ends = [-1, *self.labels, len(self.records) + 1]
        if max(b - a for a, b in itertools.pairwise(ends)) <= MOST_RUN:
            return
        cut_out = {n for loop in chosen for n in range(loop.first, loop.end + 1)}
        first = 0
        for number, record in enumerate(self.records):
            if not _stays(record) and number not in cut_out:
                continue
            count = -(-(number - first) // MOST_RUN)
            if count > 1:
                cuts = [first, *self._cuts(first, number, count)]
                yield from ((a, b - 1) for a, b in itertools.pairwise(cuts))
            first = number + 1

    def _cuts(self, first: int, end: int, count: int) -> list[int]:
        """Where the lines part in `count` stretches, each where few values are alive near by."""
        inside = self.records[first:end]
        own = {record.name: n for n, record in enumerate(inside) if record.name}
        last = dict.fromkeys(own, 0)
        for n, record in enumerate(inside):
            last |= {name: n for name in names_of((record,)) if name in own}
        for name in own:
            if self._is_outside(name, first, end):
                last[name] = end - first
        changes = [0] * (end - first + 2)
        for name, n in own.items():
            changes[n + 1] += 1
            changes[last[name] + 1] -= 1
        alive = list(itertools.accumulate(changes))
        length = (end - first) // count
        near = length // 6
        ranges = [range(k * length - near, k * length + near) for k in range(1, count)]
        return [first + min(position, key=alive.__getitem__) for position in ranges]

    def candidate(self, first: int, end: int, done: str = "") -> _Candidate | None:
        """Records as a function; None where their values, data or branches do not allow it.

        done: of a loop, the label that follows it.
        """
        body = self.records[first : end + 1]
        own = {block(r.label).text if isinstance(r, Label) else r.name for r in body} - {""}
        used = self._names(first, end + 1) - own
        outside = {name for name in own if self._is_outside(name, first, end + 1)}
        if done:
            outside -= {block(self.labels[first]).text, block(done).text}
        parameters = self._typed(sorted(used, key=lambda name: (self.position.get(name, -1), name)))
        results = self._typed(sorted(outside, key=lambda name: self.position.get(name, -1)))
        if parameters is None or results is None or not _fits(parameters, results):
            return None
        result, leave = _returning(results)
        start: list[Line] = [Label("entry")]
        if done:
            start.append(branch(self.labels[first]))
        function = Function(
            parameters=tuple(parameters), records=[*start, *body, *leave], result=result
        )
        return _Candidate(first, end, done, function, results)

    def _typed(self, names: list[str]) -> list[Value] | None:
        """The values of these names; None where one is a block."""
        types = {p.text: p.type for p in self.source.parameters}
        for name in names:
            record = self.records[self.position[name]] if name in self.position else None
            if isinstance(record, Instruction):
                types[name] = record.type
        if not types.keys() >= {*names}:
            return None
        return [Value(name, types[name]) for name in names]

    def without(self, candidates: list[_Candidate]) -> Function:
        """The function with calls where the candidates were."""
        records: list[Line] = []
        at = 0
        for candidate in sorted(candidates, key=lambda p: p.first):
            records += self.records[at : candidate.first]
            if candidate.done:
                on = branch(candidate.done)
                records += [
                    self.records[candidate.first],
                    *candidate.call(),
                    on,
                    Label(candidate.done),
                ]
            else:
                records += candidate.call()
            at = candidate.end + 1
        return replace(self.source, records=[*records, *self.records[at:]])


def _stays(record: Line) -> bool:
    """Whether a candidate without branches cannot hold it."""
    if isinstance(record, Label | Phi | Alloca):
        return True
    return is_terminator(record) or record.opcode == "insertvalue"


def _returning(results: list[Value]) -> tuple[str, list[Instruction]]:
    """The type that a function of these results has, and the records that return them."""
    if not results:
        return "void", [Instruction("", "void", "ret void", ())]
    if len(results) == 1:
        return results[0].type, [Instruction("", "void", "ret", (results[0],))]
    result = f"{{ {', '.join(value.type for value in results)} }}"
    records, whole = [], poison(result)
    for n, value in enumerate(results):
        made = Instruction(f"%outlined.{n}", result, "insertvalue", (whole, value), f", {n}")
        records.append(made)
        whole = made.value
    return result, [*records, Instruction("", "void", "ret", (whole,))]


def _loops(records: Sequence[Line], labels: dict[int, str]) -> list[_Loop]:
    """The outermost loops that Nest wrote, with the others inside them."""
    pres: list[int] = []
    begun: dict[str, tuple[int, int]] = {}
    stack: list[_Loop] = []
    for number, label in labels.items():
        if label.startswith("pre"):
            pres.append(number)
        elif label.startswith("loop") and pres:
            begun[label] = (pres.pop(), number)
        elif label.startswith("done"):
            back = _latched(records[number - 1])
            if not back:
                continue  # The paths of a branch meet here.
            start = begun.pop(back, None)
            if start is None:
                return []
            first, head = start
            end = number
            while isinstance(records[end + 1], Phi):
                end += 1
            loop = _Loop(first, number - 1, end, _rounds(records, head, number - 1))
            while stack and stack[-1].first > first:
                loop.inner.append(stack.pop())
            own = loop.size - sum(x.size for x in loop.inner)
            loop.work = loop.rounds * (own + sum(x.work for x in loop.inner))
            stack.append(loop)
    return stack


def _latched(record: Line) -> str:
    """The label of the loop to which a latch's branch leads back; "" of what is no latch."""
    if not isinstance(record, Branch) or not record.operands[0].text.endswith(".c"):
        return ""
    back, done = record.labels
    return back if back.startswith("loop") and done.startswith("done") else ""


def _rounds(records: Sequence[Line], head: int, latch: int) -> int:
    """How often a loop runs, by its counter; a guess where its bounds are not constants."""
    phi, add, test = records[head + 1], records[latch - 2], records[latch - 1]
    low, step, last = phi.operands[0].integer, add.operands[-1].integer, test.operands[-1].integer
    if low is None or step is None or last is None:
        return UNKNOWN_ROUNDS
    return (last - low) // step + 1


def _fits(parameters: list[Value], results: list[Value]) -> bool:
    """Whether a call's values are few enough for registers, nearly."""
    vectors = sum(value.lanes > 1 for value in parameters)
    return (
        vectors <= MOST_VECTORS and len(parameters) <= MOST_VALUES and len(results) <= MOST_RESULTS
    )
