"""Polling: long kernels ask, in their loops, whether the run has to stop.

    kernel, the time of what nobody can part --polled--> the kernel with questions in its loops

It works on records, hence for every family alike. A loop's rounds are strip-mined: an inner loop,
in the form that the loop had, of as many rounds as are STRIP_LINES of work, then a question, and
the same again. This begins with the outermost loops and goes inwards until a round is short
(ROUND_US by the kernel's estimate, or STRIP_LINES where all bounds are known). A loop that starts
at %begin has a round for every unit. Where the answer is yes, the function returns: what the kernel
has not computed nobody reads, and its callers ask soon themselves.

Of the loops in our code, those of `Nest.loop` and of contractions count and are tested at their
ends; those of `repeat_while` are tested at their heads; all others are short (mathematics).
Tiles in registers do not outlive a question, so loops that hold some from round to round ask
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.entry import watch_ir
from hlo.backend.entry.process import POLL
from hlo.backend.ir.definitions import renamed, symbol
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import (
    Arithmetic,
    Branch,
    Call,
    Cast,
    GetElementPtr,
    Instruction,
    Label,
    Line,
    Load,
    Phi,
    block,
    branch,
    branch_if,
)
from hlo.backend.ir.values import Value
from hlo.backend.isa.amx import configuration, holds_tiles, released
from hlo.backend.isa.assembly import InlineAssembly
from hlo.backend.planning.program import KernelStep, Program, nested
from hlo.backend.planning.splitting import ENDLESS_US

ROUND_US = 2 * watch_ir.PIECE_US  # Rounds of a loop up to this need no question inside.
STRIP_LINES = 1 << 16  # Lines that run between two questions: 10 to 30 us.
MOST_ROUNDS = 1 << 20  # The most rounds of a strip.
UNKNOWN_ROUNDS = 64  # Rounds that an inner loop is taken to have whose bounds come at run time.
ASSEMBLY_LINES = 64  # Lines that each line of assembly counts as: it loops.
_TESTS = ("icmp sle", "icmp slt", "icmp ule", "icmp ult")


class Work(NamedTuple):
    """What one call of a function does: us: its time, at most; units: that it runs over."""

    us: float
    units: int


NO_WORK = Work(0.0, 1)
Known = dict[tuple[Kernel, Work], Kernel]  # by what they were, and what a call of them does
_COMMON = frozenset({Arithmetic, Cast, GetElementPtr, Instruction, Load, Phi})  # most records


def with_polls(program: Program, known: Known | None = None) -> Program:
    """The program; if it can be stopped, with questions in its long kernels. known: what kernels
    were before it was there.
    """
    if not program.watched:
        return program
    longest: dict[int, Work] = {}
    for step in nested(program.steps):
        if isinstance(step, KernelStep):
            work = work_of(step.units, step.us, step.packing_us)
            longest[step.kernel] = max(work, longest.get(step.kernel, work))
    known = {} if known is None else known
    kernels = [polled(k, longest.get(n, NO_WORK), known) for n, k in enumerate(program.kernels)]
    return replace(program, kernels=tuple(kernels))


def work_of(units: int, us: float, packing_us: float) -> Work:
    """What one call does of units that take so long in all, and pack so long before."""
    size = watch_ir.piece_of(units, us, packing_us)
    return Work(us * size / max(1, units), size)


def polled(kernel: Kernel, work: Work, known: Known) -> Kernel:
    """The kernel, one piece of whose units is that work, with questions in its loops. known: what
    was made of others, and of what they call.
    """
    if kernel.is_open:
        work = Work(ENDLESS_US, work.units)
    if work.us <= ROUND_US:
        return kernel
    if (kernel, work) not in known:
        functions = {symbol(f): f for f in kernel.functions}
        known[kernel, work] = _Polling(functions, known).kernel(kernel, work)
    return known[kernel, work]


def even(rounds: int, strip: int) -> int:
    """The rounds of strips about as long that part a loop evenly; the strip, of a shorter loop."""
    strips = -(-rounds // strip)
    return -(-rounds // strips) if strips > 1 else strip


class _Loop(Struct, eq=False):
    """Records [head, latch] of a function. rounds: None where they are not known; counts: whether
    it has the form of a counting loop; is_units: whether it runs over the units; lines: that one
    entry runs, at least; known: and at most.
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
    def length(self) -> int:
        return self.latch - self.head + 1

    @property
    def is_short(self) -> bool:
        return self.known and self.lines <= STRIP_LINES


def _long(loops: Iterable[_Loop]) -> list[_Loop]:
    return [loop for loop in loops if not loop.is_short]


class _Polling:
    """Questions put into the loops of kernels and of what they call.

    functions: those of one kernel, by name. known: of functions that several kernels call.
    """

    def __init__(self, functions: dict[str, Kernel], known: Known) -> None:
        self.functions = functions
        self.known = known
        self.calls: dict[str, Work] = {}  # functions called: the longest call

    def kernel(self, kernel: Kernel, work: Work) -> Kernel:
        code = self._polled(kernel, work)
        polled: dict[str, Kernel] = {}
        for name, function in reversed(self.functions.items()):  # callers before what they call
            polled[name] = self._function(function, self.calls.get(name, NO_WORK))
        made: list[Kernel] = []
        changed: dict[str, str] = {}
        for name in self.functions:
            made.append(_renamed(polled[name], changed))
            changed[name] = symbol(made[-1])
        return replace(_renamed(code, changed), functions=tuple(made))

    def _function(self, function: Kernel, work: Work) -> Kernel:
        """A function, of which a call does so much: as another kernel has it, if it calls none."""
        if work.us <= ROUND_US:
            return function
        if not self.functions.keys().isdisjoint(function.function.symbols[1:]):
            return self._polled(function, work)
        if (function, work) not in self.known:
            self.known[function, work] = self._polled(function, work)
        return self.known[function, work]

    def _polled(self, kernel: Kernel, work: Work) -> Kernel:
        function = _Function(kernel.function, self, work.units)
        function.place(function.loops, work.us)
        declared = (*kernel.declarations, POLL.declaration)
        return replace(kernel, function=function.changed(), declarations=declared, is_library=False)

    def lines_of(self, call: Call) -> int:
        """How many lines a call runs beside its own."""
        if isinstance(call, InlineAssembly):
            return ASSEMBLY_LINES * len(call.code) - 1
        function = self.functions.get(call.symbol)
        return 0 if function is None else function.length - 1


def _renamed(kernel: Kernel, changed: dict[str, str]) -> Kernel:
    """The kernel, which calls these functions by other names."""
    if changed.keys().isdisjoint(kernel.function.symbols[1:]):
        return kernel
    return replace(
        kernel,
        function=kernel.function.renamed(changed),
        declarations=tuple(renamed(line, changed) for line in kernel.declarations),
    )


class _Counter(NamedTuple):
    """What advances a counting loop's counter, what tests it, and the branch back."""

    add: Instruction
    test: Instruction
    back: Branch

    @property
    def predicate(self) -> str:
        return self.test.opcode.removeprefix("icmp ")

    @property
    def last(self) -> Value:
        """With what the counter is compared."""
        return self.test.operands[1]

    @property
    def step(self) -> int:
        step = self.add.operands[1].integer
        assert step is not None, "a counter's step is known"
        return step


class _Function:
    """A function's records and loops. units: that one call runs over; edits: records that replace
    one, by its number.
    """

    def __init__(self, function: Function, polling: _Polling, units: int) -> None:
        self.units = units
        self.function = function
        self.source = function.records
        self.polling = polling
        self.labels: dict[str, int] = {}
        self.calls: dict[int, Call] = {}
        self.branches: dict[int, Branch] = {}
        for n, record in enumerate(self.source):
            if record.__class__ in _COMMON:
                continue
            if isinstance(record, Label):
                self.labels[record.label] = n
            elif isinstance(record, Call):
                self.calls[n] = record
            elif isinstance(record, Branch):
                self.branches[n] = record
        self.numbers = list(self.calls)
        self.configured = configuration(self.calls.values())
        self.edits: dict[int, list[Line]] = {}
        self.loops = self._loops()

    def changed(self) -> Function:
        """The function with what replaces its records."""
        records = list(self.source)
        for n in sorted(self.edits, reverse=True):
            records[n : n + 1] = self.edits[n]
        return replace(self.function, records=records, ends_line=True)

    # -- loops -----------------------------------------------------------------------------------

    def _loops(self) -> list[_Loop]:
        """The outermost loops, with the others inside them."""
        found: list[_Loop] = []
        for n, back in self.branches.items():
            heads = [self.labels[label] for label in back.labels]
            found += [self._loop(head, n) for head in heads if head < n]
        stack: list[_Loop] = []
        for loop in found:  # by their ends, so inner ones first
            while stack and stack[-1].head > loop.head:
                loop.inner.insert(0, stack.pop())
            called = map(self.polling.lines_of, self._called(loop.head, loop.latch, loop.inner))
            own = loop.length - sum(x.length for x in loop.inner)
            loop.round_lines = own + sum(called) + sum(x.lines for x in loop.inner)
            loop.known = loop.rounds is not None and all(x.known for x in loop.inner)
            stack.append(loop)
        return stack

    def _called(self, first: int, last: int, but: Sequence[_Loop]) -> list[Call]:
        """The calls of records [first, last] that are in none of these loops."""
        begin, end = bisect_left(self.numbers, first), bisect_right(self.numbers, last)
        return [
            self.calls[n]
            for n in self.numbers[begin:end]
            if not any(x.head <= n <= x.latch for x in but)
        ]

    def _loop(self, head: int, latch: int) -> _Loop:
        counter, phis = self._counter(latch), self._phis(head)
        is_units = any(phi.operands[0].text == "%begin" for phi in phis)
        if counter is None:
            return _Loop(head, latch, is_units=is_units)
        own = counter.add.operands[0]
        low = next((phi.operands[0].integer for phi in phis if phi.value == own), None)
        last = counter.last.integer
        if low is None or last is None or low < 0 or last < 0:
            return _Loop(head, latch, counts=True, is_units=is_units)
        last -= counter.predicate in ("slt", "ult")
        return _Loop(head, latch, max(1, (last - low) // counter.step + 1), counts=True)

    def _counter(self, latch: int) -> _Counter | None:
        """Of a counting loop."""
        if latch < 2:
            return None
        add, test, back = self.source[latch - 2 : latch + 1]
        if not (isinstance(add, Arithmetic) and isinstance(test, Arithmetic)):
            return None
        if not isinstance(back, Branch) or len(back.labels) != 2:
            return None
        is_tested = test.opcode in _TESTS and test.operands[0] == add.value
        is_added = add.opcode.startswith("add") and add.type == "i64"
        step = add.operands[-1].integer
        is_counter = is_added and is_tested and step is not None and step >= 0
        return _Counter(add, test, back) if is_counter else None

    def _phis(self, head: int) -> list[Phi]:
        """Those of a block, which its label begins."""
        found = []
        for record in self.source[head + 1 :]:
            if not isinstance(record, Phi):
                break
            found.append(record)
        return found

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
            if not holds_tiles(self._called(loop.head, loop.latch, ())):
                if loop.counts:
                    self._strip(loop, strip)
                elif len(self.source[loop.latch].operands) == 1:  # a branch without a condition
                    self._count(loop, strip)
            self._note_calls(self._called(loop.head, loop.latch, _long(loop.inner)), round_us)
            if round_us > ROUND_US and strip < MOST_ROUNDS:
                self.place(loop.inner, round_us)
        if loops is self.loops:
            self._note_calls(self._called(0, len(self.source), _long(loops)), us)

    def _note_calls(self, called: Iterable[Call], us: float) -> None:
        """Functions that are called take so long."""
        calls = self.polling.calls
        for call in called:
            if call.symbol:
                work = Work(us, max(1, _units(call)))
                calls[call.symbol] = max(work, calls.get(call.symbol, work))

    def _question(self, name: str, back: str) -> list[Line]:
        """Records that go back into the loop, or leave the function."""
        zero = Value("zeroinitializer", self.function.result)
        leave = ("ret void", ()) if self.function.result == "void" else ("ret", (zero,))
        why, goes = Value(f"%{name}.why", "i32"), Value(f"%{name}.goes", "i1")
        return [
            Label(f"{name}.poll"),
            Call(why.text, "i32", "call", (), symbol=POLL.symbol),
            *self.configured,
            Arithmetic(goes.text, "i1", "icmp eq", (why, Value("0", "i32"))),
            branch_if(goes, back, f"{name}.stop"),
            Label(f"{name}.stop"),
            *([released()] if self.configured else []),
            Instruction("", "void", *leave),
        ]

    def _strip(self, loop: _Loop, rounds: int) -> None:
        """A counting loop in strips of so many rounds, with a question after each."""
        counter, phis, label = (
            self._counter(loop.latch),
            self._phis(loop.head),
            self.source[loop.head],
        )
        assert counter is not None, "a counting loop has a counter"
        assert isinstance(label, Label), "a loop begins with a label"
        name, (add, test, back), last = label.label, counter, counter.last
        exit = back.labels[1]
        outer, poll, more = f"{name}.strip", f"{name}.poll", f"{name}.more"
        steps = counter.step * (rounds - (counter.predicate in ("sle", "ule")))
        first: list[Line] = [Label(outer)]
        for n, phi in enumerate(phis, loop.head + 1):
            (start, after), (before, latch) = phi.operands[:2], phi.blocks[:2]
            around = Phi(f"{phi.name}.s", phi.type, "phi", (start, after), blocks=(before, poll))
            first.append(around)
            self.edits[n] = [
                replace(
                    phi, operands=(around.value, after), blocks=(outer, latch), rest="", location=""
                )
            ]
        own = next(phi for phi in phis if phi.value == add.operands[0])
        reach, limit = Value(f"%{name}.reach", "i64"), Value(f"%{name}.limit", "i64")
        less = Value(f"{limit}.less", "i1")
        counted = (Value(f"{own.name}.s", "i64"), Value(str(steps), "i64"))
        first += [
            Arithmetic(reach.text, "i64", "add", counted),
            Arithmetic(less.text, "i1", test.opcode, (reach, last)),
            Instruction(limit.text, "i64", "select", (less, reach, last)),
            branch(name),
        ]
        self._redirect(loop, name, outer)
        self.edits[loop.head] = [*first, label]
        self.edits[loop.latch - 1] = [replace(test, operands=(add.value, limit))]
        left = Value(f"%{name}.left", "i1")
        self.edits[loop.latch] = [
            replace(back, operands=(back.operands[0], block(name), block(more))),
            Label(more),
            Arithmetic(left.text, "i1", test.opcode, (add.value, last)),
            branch_if(left, poll, exit),
            *self._question(name, outer),
        ]
        self._move_phis(self.labels[exit], phis[0].blocks[1], more)

    def _move_phis(self, label: int, old: str, new: str) -> None:
        """What came to a block from another comes from a new one."""
        for n in range(label + 1, label + 1 + len(self._phis(label))):
            told = self.edits.get(n, [self.source[n]])
            self.edits[n] = [_from(record, old, new) for record in told]

    def _redirect(self, loop: _Loop, name: str, outer: str) -> None:
        """The branches from before a loop lead to its first strip."""
        for n, way in self.branches.items():
            if n < loop.head and name in way.labels:
                told = self.edits.get(n, [way])
                self.edits[n] = [_to(x, name, outer) for x in told]

    def _count(self, loop: _Loop, rounds: int) -> None:
        """A loop that is tested at its head: its rounds are counted, with a question at times."""
        label, phis = self.source[loop.head], self._phis(loop.head)
        if not phis:
            return
        assert isinstance(label, Label), "a loop begins with a label"
        name = label.label
        poll, (before, latch) = f"{name}.poll", phis[0].blocks[:2]
        count, following = Value(f"%{name}.rounds", "i64"), Value(f"%{name}.rounds.n", "i64")
        none, is_less = Value("0", "i64"), Value(f"%{name}.rounds.c", "i1")
        ends = (before, latch, poll)
        counted = Phi(count.text, "i64", "phi", (none, following, none), blocks=ends)
        self.edits[loop.head] = [label, counted]
        for n, phi in enumerate(phis, loop.head + 1):
            operands, blocks = phi.operands[:2], phi.blocks[:2]
            operands, blocks = (*operands, operands[1]), (*blocks, poll)
            self.edits[n] = [replace(phi, operands=operands, blocks=blocks, location="")]
        limit = Value(str(rounds), "i64")
        self.edits[loop.latch] = [
            Arithmetic(following.text, "i64", "add", (count, Value("1", "i64"))),
            Arithmetic(is_less.text, "i1", "icmp ult", (following, limit)),
            branch_if(is_less, name, poll),
            *self._question(name, name),
        ]


def _to(record: Line, old: str, new: str) -> Line:
    """A branch that leads to another block."""
    if not isinstance(record, Branch) or old not in record.labels:
        return record
    operands = tuple(block(new) if o == block(old) else o for o in record.operands)
    return replace(record, operands=operands)


def _from(record: Line, old: str, new: str) -> Line:
    """A phi of what comes from another block."""
    if not isinstance(record, Phi):
        return record
    return replace(record, blocks=tuple(new if label == old else label for label in record.blocks))


def _units(record: Call) -> int:
    """Over how many units a call of a kernel runs; 1 of others, and where that is not known."""
    if len(record.operands) < 3:
        return 1
    begin, end = record.operands[-2:]
    first, last = begin.integer, end.integer
    if first is None or last is None or begin.type != "i64" or end.type != "i64":
        return 1
    return last - first
