"""Polling: long kernels ask, in their loops, whether the run has to stop.

    kernel, the time of what nobody can part --polled--> the kernel with questions in its loops

Works on the text, so for every family alike. A loop's rounds are strip-mined: an inner loop of as
many as are STRIP_LINES of work, in the form that it had, a question, and the same again. From the
outermost loop inwards, until what a round takes is short (ROUND_US by the kernel's estimate, or
STRIP_LINES where all bounds are known). A loop that starts at %begin has a round for every unit.
Where the answer is yes, the function returns: what the kernel has not computed nobody reads, and
its callers ask soon themselves.

Of the loops in our texts, those of `Nest.loop` and of contractions count and are tested at their
ends; those of `repeat_while` are tested at their heads; all others are short (mathematics).
Tiles in registers do not outlive a question, so loops that hold some from round to round ask
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.entry import watch_ir
from hlo.backend.entry.loop_ir import nested
from hlo.backend.entry.run_ir import POLL
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import Opaque
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa import assembly
from hlo.backend.isa.amx import RELEASE, configuration, holds_tiles
from hlo.backend.planning.program import KernelStep, Program

ROUND_US = 2 * watch_ir.PIECE_US  # of a loop's round that needs no question inside
STRIP_LINES = 1 << 16  # run between two questions: 10 to 30 us
MOST_ROUNDS = 1 << 20  # of a strip
UNKNOWN_ROUNDS = 64  # assumed of a loop inside whose bounds come at run time
ASSEMBLY_LINES = 64  # run for each that is written: it loops
DECLARED = f"declare i32 @{POLL}()"

_HEAD = re.compile(r"define (?:internal )?(?P<result>.+?) @KERNEL\(")
_LABEL = re.compile(r"([\w.$-]+):")
_TARGET = re.compile(r"label %([\w.$-]+)")
_PHI = re.compile(r"  (%\S+) = phi (.+?) \[ (.+?), %([\w.$-]+) \], \[ (.+?), %([\w.$-]+) \](.*)")
_ADD = re.compile(r"  (%\S+) = add (?:n[us]w )*i64 (%\S+), (\d+)\b")
_TEST = re.compile(r"  (%\S+) = icmp (sle|slt|ule|ult) i64 (%[\w.$-]+), ([%\w.$-]+)(.*)")
_BACK = re.compile(r"  br i1 (%\S+), label %(\S+), label %([\w.$-]+)(.*)")
_CALLED = re.compile(r"call .*@([\w.$-]+)\((?:.*, i64 (\d+), i64 (\d+)\)$)?")


class Work(NamedTuple):
    """What one call of a function does: us: its time, at most; units: that it runs over."""

    us: float
    units: int


NO_WORK = Work(0.0, 1)


def with_polls(program: Program) -> Program:
    """The program; if it can be stopped, with questions in its long kernels."""
    if not program.watched:
        return program
    longest: dict[int, Work] = {}
    for step in nested(program.steps):
        if isinstance(step, KernelStep):
            size = watch_ir.piece(step)
            work = Work(step.us * size / max(1, step.units), size)
            longest[step.kernel] = max(work, longest.get(step.kernel, work))
    kernels = [polled(k, longest.get(n, NO_WORK)) for n, k in enumerate(program.kernels)]
    return replace(program, kernels=tuple(kernels))


def polled(kernel: Kernel, work: Work) -> Kernel:
    """The kernel, one piece of whose units is that work, with questions in its loops."""
    if work.us <= ROUND_US:
        return kernel
    return _Polling({symbol(f): f for f in kernel.functions}).kernel(kernel, work)


def even(rounds: int, strip: int) -> int:
    """The rounds of strips about as long that part a loop evenly; the strip, of a shorter loop."""
    strips = -(-rounds // strip)
    return -(-rounds // strips) if strips > 1 else strip


class _Loop(Struct, eq=False):
    """Lines [head, latch] of a function. rounds: None where they are not known; counts: whether it
    has the form of a counting loop; is_units: whether it runs over the units; lines: that one entry
    runs, at least; known: and at most.
    """

    head: int
    latch: int
    rounds: int | None = None
    counts: bool = False
    is_units: bool = False
    inner: list[_Loop] = field(default_factory=list)
    round_lines: int = 0
    known: bool = True

    @property
    def lines(self) -> int:
        return min((self.rounds or UNKNOWN_ROUNDS) * self.round_lines, 1 << 40)

    @property
    def is_short(self) -> bool:
        return self.known and self.lines <= STRIP_LINES


class _Polling:
    """functions: those of one kernel, by name."""

    def __init__(self, functions: dict[str, Kernel]) -> None:
        self.functions = functions
        self.calls: dict[str, Work] = {}  # functions called: the longest call

    def kernel(self, kernel: Kernel, work: Work) -> Kernel:
        text = self._text(kernel.text, work)
        declarations = (*kernel.declarations, DECLARED)
        made: list[Kernel] = []
        for name, function in self.functions.items():
            changed = function
            work = self.calls.get(name, NO_WORK)
            if work.us > ROUND_US:
                longer = self._text(function.text, work)
                changed = replace(
                    function,
                    function=Opaque("KERNEL", longer),
                    declarations=(*function.declarations, DECLARED),
                )
            made.append(changed)
            new = symbol(changed)
            text = re.sub(rf"@{name}\b", f"@{new}", text)
            declarations = tuple(re.sub(rf"@{name}\b", f"@{new}", d) for d in declarations)
        code = Opaque("KERNEL", text)
        return replace(kernel, function=code, declarations=declarations, functions=tuple(made))

    def _text(self, text: str, work: Work) -> str:
        function = _Function(text, self, work.units)
        function.place(function.loops, work.us)
        return function.text()

    def lines_of(self, line: str) -> int:
        """How many lines a line runs."""
        if written := assembly.lines_in(line):
            return ASSEMBLY_LINES * written
        called = _CALLED.search(line)
        if called is None or called[1] not in self.functions:
            return 1
        return self.functions[called[1]].length


class _Function:
    """A function's lines and loops. units: that one call runs over; edits: lines that replace one,
    by its number.
    """

    def __init__(self, text: str, polling: _Polling, units: int) -> None:
        self.units = units
        self.source = text.rstrip("\n").split("\n")
        self.polling = polling
        head = _HEAD.match(self.source[0])
        assert head, "a kernel's text is one function"
        self.result = head["result"]
        self.configured = configuration(text)
        self.labels = {m[1]: n for n, x in enumerate(self.source) if (m := _LABEL.match(x))}
        self.edits: dict[int, list[str]] = {}
        self.loops = self._loops()

    def text(self) -> str:
        lines = [x for n, line in enumerate(self.source) for x in self.edits.get(n, [line])]
        return "\n".join([*lines, ""])

    # -- loops -----------------------------------------------------------------------------------

    def _loops(self) -> list[_Loop]:
        """The outermost loops, with the others inside them."""
        found: list[_Loop] = []
        for n, line in enumerate(self.source):
            if not line.startswith("  br "):
                continue
            heads = [self.labels.get(t, n) for t in _TARGET.findall(line)]
            found += [self._loop(head, n) for head in heads if head < n]
        stack: list[_Loop] = []
        for loop in found:  # by their ends, so inner ones first
            while stack and stack[-1].head > loop.head:
                loop.inner.insert(0, stack.pop())
            own = set(range(loop.head, loop.latch + 1))
            for x in loop.inner:
                own -= set(range(x.head, x.latch + 1))
            loop.round_lines = sum(self.polling.lines_of(self.source[n]) for n in own)
            loop.round_lines += sum(x.lines for x in loop.inner)
            loop.known = loop.rounds is not None and all(x.known for x in loop.inner)
            stack.append(loop)
        return stack

    def _loop(self, head: int, latch: int) -> _Loop:
        add, test = self._counter(latch)
        is_units = any(p[3] == "%begin" for p in self._phis(head))
        if add is None or test is None or add[1] != test[3]:
            return _Loop(head, latch, is_units=is_units)
        low = next((p[3] for p in self._phis(head) if p[1] == add[2]), "")
        if not (low.isdigit() and test[4].isdigit()):
            return _Loop(head, latch, counts=True, is_units=is_units)
        last = int(test[4]) - (test[2] in ("slt", "ult"))
        return _Loop(head, latch, max(1, (last - int(low)) // int(add[3]) + 1), counts=True)

    def _counter(self, latch: int) -> tuple[re.Match[str] | None, re.Match[str] | None]:
        """The lines that advance and test a counting loop's counter, before its branch back."""
        if not _BACK.match(self.source[latch]):
            return None, None
        return _ADD.match(self.source[latch - 2]), _TEST.match(self.source[latch - 1])

    def _phis(self, head: int) -> Iterator[re.Match[str]]:
        for line in self.source[head + 1 :]:
            phi = _PHI.match(line)
            if phi is None:
                return
            yield phi

    # -- questions -------------------------------------------------------------------------------

    def place(self, loops: list[_Loop], us: float) -> None:
        """Questions into loops, of which one entry takes so long."""
        for loop in loops:
            if loop.is_short:
                continue
            rounds = loop.rounds or (self.units if loop.is_units else 1)
            strip = max(1, min(MOST_ROUNDS, STRIP_LINES // max(1, loop.round_lines)))
            strip = even(rounds, strip)
            round_us = us / rounds
            if not self._holds_tiles(loop):
                if loop.counts:
                    self._strip(loop, strip)
                elif self.source[loop.latch].startswith("  br label "):
                    self._count(loop, strip)
            self._note_calls(loop, round_us)
            if round_us > ROUND_US and strip < MOST_ROUNDS:
                self.place(loop.inner, round_us)
        if loops is self.loops:
            self._note_lines(range(len(self.source)), us, loops)

    def _note_calls(self, loop: _Loop, us: float) -> None:
        self._note_lines(range(loop.head, loop.latch), us, loop.inner)

    def _note_lines(self, numbers: range, us: float, but: list[_Loop]) -> None:
        """Functions that these lines call take so long."""
        inside = {n for x in but for n in range(x.head, x.latch + 1) if not x.is_short}
        for n in numbers:
            called = _CALLED.search(self.source[n])
            if n not in inside and called:
                calls = self.polling.calls
                work = Work(us, max(1, int(called[3] or 1) - int(called[2] or 0)))
                calls[called[1]] = max(work, calls.get(called[1], work))

    def _holds_tiles(self, loop: _Loop) -> bool:
        return holds_tiles("\n".join(self.source[loop.head : loop.latch]))

    def _question(self, name: str, back: str) -> list[str]:
        """Lines that go back into the loop, or leave the function."""
        leave = "ret void" if self.result == "void" else f"ret {self.result} zeroinitializer"
        released = [f"  {RELEASE}"] if self.configured else []
        return [
            f"{name}.poll:",
            f"  %{name}.why = call i32 @{POLL}()",
            *self.configured,
            f"  %{name}.goes = icmp eq i32 %{name}.why, 0",
            f"  br i1 %{name}.goes, label %{back}, label %{name}.stop",
            f"{name}.stop:",
            *released,
            f"  {leave}",
        ]

    def _strip(self, loop: _Loop, rounds: int) -> None:
        """A counting loop in strips of so many rounds, with a question after each."""
        name = self.source[loop.head][:-1]
        add, test = self._counter(loop.latch)
        back = _BACK.match(self.source[loop.latch])
        assert add, "a counting loop advances"
        assert test, "a counting loop is tested"
        assert back, "a counting loop goes back"
        after, predicate, last, mark = add[1], test[2], test[4], test[5]
        latch = next(p[6] for p in self._phis(loop.head))
        outer, poll = f"{name}.strip", f"{name}.poll"
        steps = int(add[3]) * (rounds - (predicate in ("sle", "ule")))
        reach, limit = f"%{name}.reach", f"%{name}.limit"
        phis = list(self._phis(loop.head))
        counter = next(p[1] for p in phis if p[1] == add[2])
        first = [f"{outer}:"]
        for n, p in enumerate(phis, loop.head + 1):
            first.append(f"  {p[1]}.s = phi {p[2]} [ {p[3]}, %{p[4]} ], [ {p[5]}, %{poll} ]")
            self.edits[n] = [f"  {p[1]} = phi {p[2]} [ {p[1]}.s, %{outer} ], [ {p[5]}, %{p[6]} ]"]
        first += [
            f"  {reach} = add i64 {counter}.s, {steps}",
            f"  {limit}.less = icmp {predicate} i64 {reach}, {last}",
            f"  {limit} = select i1 {limit}.less, i64 {reach}, i64 {last}",
            f"  br label %{name}",
        ]
        self._redirect(loop, name, outer)
        self.edits[loop.head] = [*first, self.source[loop.head]]
        self.edits[loop.latch - 1] = [f"  {test[1]} = icmp {predicate} i64 {after}, {limit}{mark}"]
        self.edits[loop.latch] = [
            f"  br i1 {back[1]}, label %{name}, label %{name}.more{back[4]}",
            f"{name}.more:",
            f"  %{name}.left = icmp {predicate} i64 {after}, {last}",
            f"  br i1 %{name}.left, label %{poll}, label %{back[3]}",
            *self._question(name, outer),
        ]
        place = self.labels[back[3]] + 1
        while " = phi " in self.source[place]:
            line = self.edits.get(place, [self.source[place]])
            self.edits[place] = [x.replace(f", %{latch} ]", f", %{name}.more ]") for x in line]
            place += 1

    def _redirect(self, loop: _Loop, name: str, outer: str) -> None:
        """The branches from before a loop lead to its first strip."""
        for n, line in enumerate(self.source[: loop.head]):
            if line.startswith("  br ") and name in _TARGET.findall(line):
                told = self.edits.get(n, [line])
                self.edits[n] = [
                    re.sub(rf"label %{name}\b(?!\.)", f"label %{outer}", x) for x in told
                ]

    def _count(self, loop: _Loop, rounds: int) -> None:
        """A loop that is tested at its head: its rounds are counted, with a question at times."""
        name = self.source[loop.head][:-1]
        count, poll = f"%{name}.rounds", f"{name}.poll"
        phis = list(self._phis(loop.head))
        if not phis:
            return
        before, latch = phis[0][4], phis[0][6]
        ends = f"[ 0, %{before} ], [ {count}.n, %{latch} ], [ 0, %{poll} ]"
        self.edits[loop.head] = [self.source[loop.head], f"  {count} = phi i64 {ends}"]
        for n, p in enumerate(phis, loop.head + 1):
            both = f"[ {p[3]}, %{p[4]} ], [ {p[5]}, %{p[6]} ]"
            self.edits[n] = [f"  {p[1]} = phi {p[2]} {both}, [ {p[5]}, %{poll} ]"]
        self.edits[loop.latch] = [
            f"  {count}.n = add i64 {count}, 1",
            f"  {count}.c = icmp ult i64 {count}.n, {rounds}",
            f"  br i1 {count}.c, label %{name}, label %{poll}",
            *self._question(name, name),
        ]
