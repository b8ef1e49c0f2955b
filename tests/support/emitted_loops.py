"""The loops of a kernel as its code has them, and as its schedule says: both as trees of counts.

    Kernel --written--> [Counted]      assembly and called functions included
    LoopNest --said--> [Counted]

A count is None where it is known at run time only; what a schedule says of a part of an axis is the
most that there may be. `agree` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import Kernel
from hlo.backend.loops.schedule import Axis, Loop, LoopNest, Node, Reduction, Role

_PHI = re.compile(r"(%\S+) = phi i64 \[ (\S+), %\S+ \], \[ (\S+), %\S+ \]")
_BINARY = re.compile(r"(%\S+) = (\w+)(?: nuw)?(?: nsw)? i64 (\S+), (\S+)")
_COMPARE = re.compile(r"(%\S+) = icmp (\w+) i64 (\S+), (\S+)")
_LEAST = re.compile(r"(%\S+) = call i64 @llvm\.[us]min\.i64\(i64 (\S+), i64 (\S+)\)")
_FLAG = re.compile(r"(%\S+) = zext i1")
_ARM = re.compile(r"(then|else|endif)\d*:")
_BACK = re.compile(r"br i1 (\S+), label %(loop\S+), label")
_CALL = re.compile(r"call \w+ @([\w.$-]+)\((.*)\)")
_ASSEMBLY = re.compile(r'asm sideeffect "(.*?)", "(.*?)"\((.*)\)')


class Counted(Struct):
    """One loop. is_flag: it runs once or not at all; is_part: the count is the most; is_copy: it
    runs instead of a loop before it that is the same.
    """

    count: int | None
    inner: list[Counted] = field(default_factory=list)
    is_flag: bool = False
    is_part: bool = False
    is_copy: bool = False


# -- what the code has ------------------------------------------------------------------------


def written(kernel: Kernel) -> list[Counted]:
    """The loops inside the one over the kernel's units."""
    functions = {symbol(f): f for f in kernel.functions}
    (units,) = _Reader(functions).loops(kernel.text)
    return units.inner


class _Reader:
    """Loops of one function's text. known: (what it is more than, by how much) of each value."""

    def __init__(self, functions: dict[str, Kernel]) -> None:
        self.functions = functions
        self.known: dict[str, tuple[str, int]] = {}
        self.flags: set[str] = set()
        self.tests: dict[str, tuple[str, str, str]] = {}
        self.counters: dict[str, tuple[str, str]] = {}

    def loops(self, text: str) -> list[Counted]:
        open_loops = [Counted(None)]
        arms: list[list[int]] = []  # Of conditionals: how many loops stood before each.
        for line in text.splitlines():
            line = line.strip()
            if found := _ARM.match(line):
                _at_arm(found[1], arms, open_loops[-1].inner)
            elif line.startswith("loop") and line.endswith(":"):
                open_loops.append(Counted(None))
                open_loops[-2].inner.append(open_loops[-1])
            elif found := _BACK.match(line):
                done = open_loops.pop()
                done.count, done.is_flag = self._count(found[1])
            elif found := _ASSEMBLY.search(line):
                open_loops[-1].inner += _assembly(self, *found.groups())
            elif (found := _CALL.search(line)) and found[1] in self.functions:
                open_loops[-1].inner += self._called(found[1], found[2])
            else:
                self._line(line)
        (whole,) = open_loops
        return whole.inner

    def _called(self, name: str, arguments: str) -> list[Counted]:
        """The loops of a function, of whose arguments some are known."""
        text = self.functions[name].text
        inner = _Reader(self.functions)
        parameters = text[text.index("(") + 1 : text.index(")")]
        for parameter, given in zip(parameters.split(", "), arguments.split(", "), strict=True):
            number = self.number(given.split()[-1])
            if number is not None:
                inner.known[parameter.split()[-1]] = ("", number)
        return inner.loops(text)

    def _line(self, line: str) -> None:
        if found := _PHI.match(line):
            self.counters[found[3]] = (found[1], found[2])
        elif found := _BINARY.match(line):
            self._binary(*found.groups())
        elif found := _LEAST.match(line):
            name, x, y = found.groups()
            a, b = self.number(x), self.number(y)
            if a is not None and b is not None:
                self.known[name] = ("", min(a, b))
            elif 1 in (a, b):
                self.flags.add(name)
        elif found := _FLAG.match(line):
            self.flags.add(found[1])
        elif found := _COMPARE.match(line):
            self.tests[found[1]] = found[2], found[3], found[4]

    def value(self, text: str) -> tuple[str, int]:
        try:
            return "", int(text)
        except ValueError:
            return self.known.get(text, (text, 0))

    def number(self, text: str) -> int | None:
        base, more = self.value(text)
        return None if base else more

    def _binary(self, name: str, opcode: str, x: str, y: str) -> None:
        (base, a), (other, b) = self.value(x), self.value(y)
        match opcode:
            case "add" if not (base and other):
                self.known[name] = base or other, a + b
            case "sub" if base == other or not other:
                self.known[name] = "" if base == other else base, a - b
            case "mul" if not other:
                self.known[name] = base and f"{base}*{b}", a * b
            case "udiv" | "sdiv" if not base and not other:
                self.known[name] = "", a // b
            case "urem" if not base and not other:
                self.known[name] = "", a % b

    def _count(self, test: str) -> tuple[int | None, bool]:
        """Of a loop that goes on while the test is true; whether it is once at most."""
        opcode, following, limit = self.tests[test]
        end = self.number(limit)
        if opcode == "ult":
            return end, self.value(limit) in [(flag, 0) for flag in self.flags]
        counter, start = self.counters[following]
        first, (base, step) = self.number(start), self.known[following]
        assert base == counter, "the counter's next value is so much more"
        if end is None or first is None:
            return None, False
        return (end - first) // step + 1, False


def _at_arm(kind: str, arms: list[list[int]], loops: list[Counted]) -> None:
    """One of two arms runs: where both have the same loops, a schedule may say them once."""
    if kind == "then":
        arms.append([])
    arms[-1].append(len(loops))
    if kind == "endif" and (places := arms.pop())[1:-1]:
        first, second, end = places
        if loops[first:second] == loops[second:end]:
            for loop in loops[second:end]:
                loop.is_copy = True


def _assembly(reader: _Reader, text: str, constraints: str, arguments: str) -> Iterator[Counted]:
    """Loops of assembly: labels to which it jumps back, and what counts down before it does."""
    outputs = constraints.count("=&r")
    given = [a.split()[-1] for a in arguments.split(", ")]
    kept = len(given) - outputs
    left = {f"${n}": reader.number(given[kept + n]) for n in range(outputs)}
    lines = text.split("\\0A")
    back = {line.split()[1][:-1] for line in lines if re.fullmatch(r"\S+ \d+b", line)}
    open_loops, blocks, counter = [Counted(None)], "", ""
    starts: dict[str, int | None] = {}
    for line in lines:
        if (label := line.removesuffix(":")) in back and label != line:
            open_loops.append(Counted(None))
            open_loops[-2].inner.append(open_loops[-1])
        elif found := re.fullmatch(r"movq \$\$(\d+), (\$\d+)", line):
            left[found[2]] = int(found[1])
        elif found := re.fullmatch(r"cmovaq (\$\d+), (\$\d+)", line):
            whole, size = left[found[1]], left[found[2]]
            starts[found[2]] = size
            left[found[2]] = None if whole is None or not size or whole % size else size
        elif found := re.fullmatch(r"subq (\$\d+), (\$\d+)", line):
            blocks = found[2]
            size = starts.get(found[1], left[found[1]])
            whole = left[blocks]
            left[blocks] = None if whole is None or not size else -(-whole // size)
        elif found := re.fullmatch(r"(?:decq|testq \$\d+,) (\$\d+)", line):
            counter = found[1]
        elif re.fullmatch(r"\S+ \d+b", line):
            open_loops.pop().count = left[counter]
    yield from open_loops[0].inner


# -- what a schedule says ---------------------------------------------------------------------


def said(nest: LoopNest) -> list[Counted]:
    """The loops inside the one over the nest's units."""
    return _said(nest.body)


def _said(nodes: Sequence[Node]) -> list[Counted]:
    found: list[Counted] = []
    for node in nodes:
        match node:
            case Loop(axis=axis, body=body) if axis.role is Role.UNROLLED and axis.step > 1:
                found += _said(body) * axis.rounds  # each group of elements has loops of its own
            case Loop(axis=axis, body=body) if axis.role in (Role.PARALLEL, Role.UNROLLED):
                found += _said(body)
            case Loop(axis=axis, body=body):
                is_part = axis.of > 0 or axis.is_bounded
                found.append(Counted(_rounds(axis), _said(body), is_part=is_part))
                found += _said(body) if axis.tail_step else []
            case Reduction(axes=axes):
                found += _reduced(axes)
    return found


def _rounds(axis: Axis) -> int:
    """But for a tail that has code of its own."""
    return axis.extent // axis.step if axis.tail_step else axis.rounds


def _reduced(axes: Sequence[Axis]) -> list[Counted]:
    """Blocks, made of smaller ones, of rounds at last."""
    if not axes:
        return []
    axis, *rest = axes
    inner = _reduced(rest)
    if axis.role is Role.UNROLLED:
        return inner
    counts: list[tuple[int, bool]] = []
    size, is_part = axis.extent, axis.of > 0 or axis.is_bounded
    if axis.role is Role.VECTOR:
        size -= size % axis.step
    for block in axis.blocks:
        counts.append((-(-size // block), is_part))
        is_part |= size % block > 0
        size = block
    counts.append((size // axis.step, is_part))
    for count, part in reversed(counts):
        inner = [Counted(count, inner, is_part=part)]
    return inner


# -- whether they are the same ----------------------------------------------------------------


def agree(told: Sequence[Counted], seen: Sequence[Counted]) -> bool:
    """Whether these loops are those; one that runs once is none, and so is one that never does."""
    told, seen = ([x for x in loops if x.count != 0] for loops in (told, seen))
    if seen and seen[0].is_copy and agree(told, seen[1:]):
        return True
    if seen and (seen[0].is_flag or seen[0].count == 1):
        return agree(told, [*seen[0].inner, *seen[1:]])
    if told and told[0].count == 1:
        if agree([*told[0].inner, *told[1:]], seen):
            return True
        if not told[0].is_part:
            return False
    if not told or not seen:
        return not told and not seen
    a, b = told[0], seen[0]
    same = a.is_part if b.count is None else a.count == b.count
    return same and agree(a.inner, b.inner) and agree(told[1:], seen[1:])


def shape(loops: Sequence[Counted]) -> str:
    """A tree in a line."""
    texts = []
    for loop in loops:
        sign = "?" if loop.is_flag else "<=" if loop.is_part else ""
        inner = f"({shape(loop.inner)})" if loop.inner else ""
        texts.append(f"{sign}{loop.count}{inner}")
    return " ".join(texts)
