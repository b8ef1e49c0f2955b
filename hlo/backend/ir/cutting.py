"""Cutting: loops of long kernels as functions of their own, compiled apart and side by side.

    kernels by name, lines --cut--> kernels that call their loops, and those loops as kernels

LLVM's time follows a function's lines, and one function keeps one processor busy. A loop goes where
a call costs next to nothing beside its work, and so does a part of very many lines without a
branch. What a piece uses from outside become parameters, what is used of it afterwards is returned.
No value changes: our text allows LLVM to combine no two operations that round.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.definitions import digest_of, only_needed
from hlo.backend.ir.functions import Opaque
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.text_types import result_type

LEAST_LINES = 60  # of a loop that is worth a function, about 2 ms
# Lines run in one call, which costs about 30, and what it makes LLVM spill; half of it where the
# kernel would take too long otherwise.
LEAST_WORK = 1500
MOST_RUN = 400  # lines without a branch that stay together, about 12 ms
UNKNOWN_ROUNDS = 4  # of a loop whose bounds come at run time
MOST_VECTORS, MOST_VALUES, MOST_RESULTS = 8, 20, 6  # that a call passes, that it gives back
_SLACK = 1.15  # a kernel so much longer than wanted stays whole
_WHOLE = 0.75  # a loop that is so much of its function is not cut from it

_NAME = re.compile(r"%([\w.$-]+)")
_HEAD = re.compile(r"define (?P<result>.+?) @KERNEL\((?P<parameters>.*)\) \{$")
_BREAK = re.compile(r"[^ ]|  (?:br|ret|switch|unreachable)|.* = (?:phi|alloca|insertvalue) ")
_LATCH = re.compile(r"  br i1 %[\w.$-]+\.c, label %(loop\d+), label %done\d+$")
_LINE = re.compile(r"^(?:  %([^ ]+) = .*|([^ \n]+):$|.*)", re.MULTILINE)  # what it defines
_LOW = re.compile(r"  %\S+ = phi i64 \[ (-?\d+), ")
_STEP = re.compile(r" = add nsw i64 %\S+, (\d+)$")
_LAST = re.compile(r" = icmp sle i64 %\S+, (-?\d+)$")


def cut(kernels: dict[str, Kernel], lines: int, longest: int = 0) -> dict[str, Kernel]:
    """The kernels; those of more than `longest` lines in pieces of about `lines`, which precede
    them."""
    found: dict[str, Kernel] = {}
    for name, kernel in kernels.items():
        if kernel.length <= longest:
            found[name] = kernel
            continue
        pieces: dict[str, Kernel] = {}
        rest = _cut(kernel, lines, pieces)
        found |= {**pieces, name: rest}
    return found


def _cut(kernel: Kernel, lines: int, pieces: dict[str, Kernel]) -> Kernel:
    """The kernel without its largest loops, which are added to the pieces, cut again themselves."""
    if kernel.length <= lines * _SLACK:
        return kernel
    function = _Function.read(kernel.text)
    if function is None:
        return kernel
    loops = function.chosen(lines)
    wanted = [function.piece(x.first, x.end, function.defined[x.last + 1]) for x in loops]
    wanted += [function.piece(*run) for run in function.runs(loops)]
    chosen = [piece for piece in wanted if piece is not None]
    if not chosen:
        return kernel
    declared: list[str] = []
    for piece in chosen:
        made = _cut(_part(kernel, piece.text), lines, pieces)
        piece.symbol = f"p_{digest_of(made)}"
        pieces[piece.symbol] = made
        declared.append(piece.declaration())
    rest = only_needed(kernel, Opaque("KERNEL", function.without(chosen)))
    return replace(
        kernel,
        function=rest.function,
        declarations=(*rest.declarations, *dict.fromkeys(declared)),
        globals=rest.globals,
    )


def _part(kernel: Kernel, text: str) -> Kernel:
    """A piece of a kernel, which calls itself what it needs."""
    return replace(only_needed(kernel, Opaque("KERNEL", text)), functions=())


class _Loop(Struct, eq=False):
    """Lines [first, last] of a function: from its label `pre` to its latch's branch.

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


class _Piece(Struct, eq=False):
    """Lines [first, end] as a function's text. symbol: its name, once its text is final.

    done: the label after a loop, whose label `pre` is the first line; "" of lines without branches.
    """

    first: int
    end: int
    done: str
    text: str
    result: str
    parameters: list[tuple[str, str]]
    results: list[tuple[str, str]]
    symbol: str = ""

    def declaration(self) -> str:
        types = ", ".join(type for type, _ in self.parameters)
        return f"declare {self.result} @{self.symbol}({types})"

    def call(self) -> list[str]:
        """The lines that call it."""
        values = ", ".join(f"{type} %{name}" for type, name in self.parameters)
        called = f"call {self.result} @{self.symbol}({values})"
        if not self.results:
            return [f"  {called}"]
        if len(self.results) == 1:
            return [f"  %{self.results[0][1]} = {called}"]
        whole = f"%got.{self.first}"
        parts = [
            f"  %{name} = extractvalue {self.result} {whole}, {n}"
            for n, (_, name) in enumerate(self.results)
        ]
        return [f"  {whole} = {called}", *parts]


class _Function(Struct, eq=False):
    """A function's lines, its loops, and what each line defines."""

    lines: list[str]
    head: re.Match[str]
    loops: list[_Loop]
    defined: list[str]  # by each line, a value or a label; "" by most
    place: dict[str, int]
    _mentions: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def read(text: str) -> _Function | None:
        """None where the function is none of ours."""
        text = text.rstrip("\n")
        lines = text.split("\n")
        head = _HEAD.match(lines[0])
        if head is None:
            return None
        found = _LINE.findall(text)
        loops = _loops(lines, [(n, label) for n, (_, label) in enumerate(found) if label])
        defined = [value or label for value, label in found]
        place = {name: number for number, name in enumerate(defined) if name}
        return _Function(lines, head, loops, defined, place)

    def _names(self, first: int, end: int) -> set[str]:
        """Those that lines [first, end) hold."""
        return set(_NAME.findall("\n".join(self.lines[first:end])))

    def _is_outside(self, name: str, first: int, end: int) -> bool:
        """Whether other lines than [first, end) mention a name. All are read once, at the first."""
        if not self._mentions:
            found = self._mentions
            for number, line in enumerate(self.lines):
                for other in _NAME.findall(line):
                    found.setdefault(other, [number, number])[1] = number
        reach = self._mentions.get(name)
        return reach is not None and (reach[0] < first or reach[1] >= end)

    def chosen(self, wanted: int) -> list[_Loop]:
        """The loops to cut out, so that about `wanted` lines are left of the function."""
        left, found = len(self.lines), []
        outermost = set(map(id, self.loops))
        count = itertools.count()  # of equal ones the first goes first
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
        """Lines to cut out of those without branches, where very many follow each other."""
        labels = [0, *(n for n, x in enumerate(self.lines) if x[-1:] == ":"), len(self.lines)]
        if max(b - a for a, b in itertools.pairwise(labels)) <= MOST_RUN:
            return
        cut_out = {n for loop in chosen for n in range(loop.first, loop.end + 1)}
        first = 1
        for number, line in enumerate(self.lines):
            if not _BREAK.match(line) and number not in cut_out:
                continue
            count = -(-(number - first) // MOST_RUN)
            if count > 1:
                cuts = [first, *self._cuts(first, number, count)]
                yield from ((a, b - 1) for a, b in itertools.pairwise(cuts))
            first = number + 1

    def _cuts(self, first: int, end: int, count: int) -> list[int]:
        """Where the lines part in `count` stretches, each where few values are alive near by."""
        own = {name: n for n, name in enumerate(self.defined[first:end]) if name}
        last = dict.fromkeys(own, 0)
        for n, line in enumerate(self.lines[first:end]):
            last |= {name: n for name in _NAME.findall(line) if name in own}
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
        places = [range(k * length - near, k * length + near) for k in range(1, count)]
        return [first + min(place, key=alive.__getitem__) for place in places]

    def piece(self, first: int, end: int, done: str = "") -> _Piece | None:
        """Lines as a function; None where their values, data or branches do not allow it.

        done: of a loop, the label that follows it.
        """
        own = set(self.defined[first : end + 1])
        used = self._names(first, end + 1) - own
        outside = {name for name in own if self._is_outside(name, first, end + 1)}
        if done:
            outside -= {self.lines[first][:-1], done}
        parameters = self._typed(sorted(used, key=lambda name: (self.place.get(name, 0), name)))
        results = self._typed(sorted(outside, key=self.place.__getitem__))
        if parameters is None or results is None or not _fits(parameters, results):
            return None
        body = self.lines[first : end + 1]
        result, leave = _returning(results)
        heads = ", ".join(f"{type} %{name}" for type, name in parameters)
        start = ["entry:", f"  br label %{body[0][:-1]}"] if done else ["entry:"]
        text = [f"define {result} @KERNEL({heads}) {{", *start, *body, *leave, "}", ""]
        return _Piece(first, end, done, "\n".join(text), result, parameters, results)

    def _typed(self, names: list[str]) -> list[tuple[str, str]] | None:
        """(type, name) of each; None where one is no value or of a type that the text hides."""
        found = []
        for name in names:
            line = self.place.get(name)
            type = self._parameter(name) if line is None else result_type(self.lines[line])
            if not type:
                return None
            found.append((type, name))
        return found

    def _parameter(self, name: str) -> str:
        found = re.search(rf"(?:^|, )([^,]+) %{re.escape(name)}(?:,|$)", self.head["parameters"])
        return found[1] if found else ""

    def without(self, pieces: list[_Piece]) -> str:
        """The function's text with calls where the pieces were."""
        lines: list[str] = []
        at = 0
        for piece in sorted(pieces, key=lambda p: p.first):
            lines += self.lines[at : piece.first]
            if piece.done:
                around = f"  br label %{piece.done}", f"{piece.done}:"
                lines += [self.lines[piece.first], *piece.call(), *around]
            else:
                lines += piece.call()
            at = piece.end + 1
        return "\n".join([*lines, *self.lines[at:], ""])


def _returning(results: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """The type that a function of these results has, and the lines that return them."""
    if not results:
        return "void", ["  ret void"]
    result = ", ".join(type for type, _ in results)
    if len(results) == 1:
        return result, [f"  ret {result} %{results[0][1]}"]
    result, lines, whole = f"{{ {result} }}", [], "poison"
    for n, (type, name) in enumerate(results):
        lines.append(f"  %cut.{n} = insertvalue {result} {whole}, {type} %{name}, {n}")
        whole = f"%cut.{n}"
    return result, [*lines, f"  ret {result} {whole}"]


def _loops(lines: list[str], labels: list[tuple[int, str]]) -> list[_Loop]:
    """The outermost loops that Nest wrote, with the others inside them."""
    pres: list[int] = []
    begun: dict[str, tuple[int, int]] = {}
    stack: list[_Loop] = []
    for number, label in labels:
        if label.startswith("pre"):
            pres.append(number)
        elif label.startswith("loop") and pres:
            begun[label] = (pres.pop(), number)
        elif label.startswith("done"):
            latch = _LATCH.match(lines[number - 1])
            if latch is None:
                continue  # where the ways of a branch meet
            start = begun.pop(latch[1], None)
            if start is None:
                return []
            first, head = start
            end = number
            while lines[end + 1].startswith("  %") and " = phi " in lines[end + 1]:
                end += 1
            loop = _Loop(first, number - 1, end, _rounds(lines, head, number - 1))
            while stack and stack[-1].first > first:
                loop.inner.append(stack.pop())
            own = loop.size - sum(x.size for x in loop.inner)
            loop.work = loop.rounds * (own + sum(x.work for x in loop.inner))
            stack.append(loop)
    return stack


def _rounds(lines: list[str], head: int, latch: int) -> int:
    """How often a loop runs, by its counter; a guess where its bounds are not constants."""
    low = _LOW.match(lines[head + 1])
    step = _STEP.search(lines[latch - 2])
    last = _LAST.search(lines[latch - 1])
    if low is None or step is None or last is None:
        return UNKNOWN_ROUNDS
    return (int(last[1]) - int(low[1])) // int(step[1]) + 1


def _fits(parameters: list[tuple[str, str]], results: list[tuple[str, str]]) -> bool:
    """Whether a call's values are few enough for registers, nearly."""
    vectors = sum(type.startswith("<") for type, _ in parameters)
    return (
        vectors <= MOST_VECTORS and len(parameters) <= MOST_VALUES and len(results) <= MOST_RESULTS
    )
