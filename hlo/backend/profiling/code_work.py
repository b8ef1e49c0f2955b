"""The work of a kernel without a plan, counted in its code: what it begins, as often as it runs.

    Kernel, Target --code_work--> Work, for estimates beside measured speeds (ir/work.py), or None

A loop takes the longest of what it begins, each by how many begin in a cycle (hlo/machine.py): its
operations on vectors, shuffles among them, loads, stores, all of them and scalars; of its divisions
(ops/table.py: Cost); and of the chain from a trip's values to the next one's, where a core's window
is too short to look past it. What is around loops without others inside is one more. Bytes are the
kernel's; what a loop reads that one before it has read is counted once more, from the cache that
holds what a run of it reads, and so is what lies in lines between elements that are gathered.

None where nobody knows how often a loop runs (code_trips.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from msgspec import Struct, field

from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.records import (
    Alloca,
    Branch,
    Call,
    CallAddress,
    GetElementPtr,
    Instruction,
    Load,
    Phi,
)
from hlo.backend.ir.values import Value, lanes_of, scalar_of
from hlo.backend.isa.assembly import InlineAssembly
from hlo.backend.isa.target import Target
from hlo.backend.profiling.code_folding import folded
from hlo.backend.profiling.code_trips import Loop, Trips, Uncounted
from hlo.machine import Cycles
from hlo.ops.table import OPS

_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64, "void": 0, "label": 0}
_UNITS = "operations", "shuffles", "loads", "stores", "scalars", "divided", "called"
_SHUFFLES = ("perm", "shuf", "pack", "expand", "compress", "insert", "extract")
_ROOT = "llvm.sqrt."
_NUMBERS = re.compile(r"i\d+ (-?\d+)")  # of a constant vector of integers
_COST_BITS = 16 * 32  # Of the vector that an op's cost is of.


class Begun(Struct):
    """What a processor begins in a piece of code, counted by kind.

    operations: of vectors; shuffles: of them, those that move lanes; scalars: addresses,
    counters, branches. divided, called: cycles of the divider and of called code.
    """

    operations: float = 0.0
    shuffles: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    scalars: float = 0.0
    divided: float = 0.0
    called: float = 0.0

    def add(self, other: Begun, times: float) -> None:
        """So many of another one."""
        for name in _UNITS:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))

    def cycles(self, cycles: Cycles) -> float:
        """The least that they take. A store and a scalar begin beside what the machine counts."""
        every = self.operations + self.loads + self.stores + self.scalars
        return self.called + max(
            self.operations / cycles.operations,
            self.shuffles / cycles.shuffles,
            self.loads / cycles.loads,
            self.stores,
            every / (cycles.operations + cycles.loads + 2),
            self.divided,
        )


def code_work(kernel: Kernel, target: Target) -> Work | None:
    """Of all units together."""
    bodies, waiting = dict[str, Function](), [kernel]
    while waiting:
        one = waiting.pop()
        bodies |= {g.symbol: g for g in one.globals if isinstance(g, Function)}
        bodies |= {symbol(k): k.function for k in one.functions}
        waiting += one.functions
    _, *limits = kernel.function.parameters
    known = {p.text: n for p, n in zip(limits, (0, kernel.units), strict=False)}
    try:
        counted = _Code(target, _Bodies(bodies), kernel.function, known)
    except Uncounted:
        return None
    moved = kernel.bytes_moved
    return Work(
        cycles=counted.cycles,
        moved=moved + counted.between,
        again=counted.again,
        reach=moved,
        is_stream=True,
    )


class _Bodies(Struct):
    """Functions that are called, by symbol; cycles of calls with the same known arguments."""

    functions: dict[str, Function]
    cycles: dict[tuple[str, tuple[tuple[str, int], ...]], float] = field(default_factory=dict)


class _Code:
    """A function whose parts are counted. bodies: of what it calls; calls: how many are around.
    cycles: of one call; again: as Work has it; between: bytes of lines between what is gathered.
    """

    def __init__(
        self,
        target: Target,
        bodies: _Bodies,
        function: Function,
        known: Mapping[str, int],
        calls: int = 0,
    ) -> None:
        if calls > len(bodies.functions):
            raise Uncounted  # it calls itself
        self.target, self.machine = target, target.machine
        self.bodies, self.calls = bodies, calls
        self.trips = Trips(function, known)
        self.free = folded(self.trips.blocks, folds=target.isa.folds)
        self.cycles = self._cycles()
        self.again = tuple(self._again())
        self.between = sum(self._between())

    def _cycles(self) -> float:
        outer = Begun()
        begun = {loop.head: Begun() for loop in self._inner()}
        for number, block in enumerate(self.trips.blocks):
            if times := self.trips.often[number]:
                loop = self.trips.around(number)
                own = outer if loop is None else begun[loop.head]
                for record in block:
                    if record.name not in self.free:
                        own.add(self._begun(record), times)
        inner = sum(self._taken(loop, begun[loop.head]) for loop in self._inner())
        return outer.cycles(self.machine.cycles) + inner

    def _inner(self) -> Iterator[Loop]:
        return (o for o in self.trips.loops.values() if o.is_inner and o.entered)

    def _taken(self, loop: Loop, begun: Begun) -> float:
        """Cycles of all trips."""
        own = begun.cycles(self.machine.cycles)
        if begun.operations <= self.machine.cycles.window * loop.entered:
            return own
        return max(own, loop.entered * loop.trips * self._chain(loop))

    # -- what begins -----------------------------------------------------------------------------

    def _begun(self, record: Instruction) -> Begun:
        """With one instruction."""
        match record:
            case Phi() | Alloca() | GetElementPtr() | Branch() | Instruction(opcode="bitcast"):
                return Begun()  # a branch is one with its comparison, or falls through
            case InlineAssembly(code=code) if not any(":" in line for line in code):
                return Begun(operations=len(code))
            case InlineAssembly() | CallAddress():
                raise Uncounted
            case Call():
                return self._called(record)
            case Load():
                return Begun(loads=self._turns(record.type))
            case Instruction(opcode="store"):
                return Begun(stores=self._turns(record.operands[0].type))
        return self._computed(record)

    def _computed(self, record: Instruction) -> Begun:
        types = [record.type, *(o.type for o in record.operands)]
        if all(map(_is_scalar, types)):
            return Begun(scalars=1)
        turns = max(map(self._turns, types))
        match record.opcode.split()[0]:
            case "fdiv":
                return self._divided("divide", record.type)
            case "mul":
                return Begun(operations=turns * self._product(record.type))
            case "udiv" | "urem" | "sdiv" | "srem":
                return self._quotients(record)
            case "shufflevector" | "insertelement" | "extractelement":
                return Begun(operations=turns, shuffles=turns)
        return Begun(operations=turns)

    def _called(self, call: Call) -> Begun:
        name, types = call.symbol, [call.type, *(o.type for o in call.operands)]
        if (function := self.bodies.functions.get(name)) is not None:
            values = map(self.trips.value, call.operands)
            pairs = zip(function.parameters, values, strict=True)
            known = {p.text: value for p, value in pairs if value is not None}
            key = name, tuple(known.items())
            if key not in self.bodies.cycles:
                code = _Code(self.target, self.bodies, function, known, self.calls + 1)
                self.bodies.cycles[key] = code.cycles
            return Begun(called=self.bodies.cycles[key])
        kind = name.removeprefix("llvm.")
        if kind == name:
            raise Uncounted
        turns = max(map(self._turns, types))
        if name.startswith(_ROOT):
            return self._divided("sqrt", call.type)
        if "gather" in kind or "scatter" in kind:
            return Begun(loads=max(map(lanes_of, types)))
        if kind.startswith(("masked.load", "prefetch")):
            return Begun(loads=turns)
        if kind.startswith("masked.store"):
            return Begun(stores=turns)
        if kind.startswith(("memcpy", "memset", "memmove")):
            size = self.trips.value(call.operands[2])
            if size is None:
                raise Uncounted
            return Begun(stores=size / self.machine.vector_bytes)
        if all(map(_is_scalar, types)):
            return Begun(scalars=1)
        if kind.startswith("vector.reduce") and "i1" not in types[1]:
            halvings = (max(map(lanes_of, types)) - 1).bit_length()
            return Begun(operations=2 * halvings, shuffles=halvings)
        moves = any(word in kind for word in _SHUFFLES)
        return Begun(operations=turns, shuffles=turns * moves)

    def _divided(self, opcode: str, type: str) -> Begun:
        """By the divider, which works beside the other units; a scalar takes as long as the
        shortest vector.
        """
        whole = OPS[opcode].cost.operations / self.machine.cycles.operations
        wide = 2 if scalar_of(type) == "double" else 1
        parts = max(_bits(type), _COST_BITS // 4) / _COST_BITS
        return Begun(operations=self._turns(type), divided=whole * wide * parts)

    def _product(self, type: str) -> float:
        """Operations of a product of integers; of long ones half as many more."""
        products = self.machine.cycles.products
        return products * (1.5 if scalar_of(type) == "i64" else 1)

    def _quotients(self, record: Instruction) -> Begun:
        """Of integers: by a constant two products and what sets them right, else lane by lane."""
        operations = self._turns(record.type) * (4 + 2 * self._product(record.type))
        if record.operands[1].is_constant:
            return Begun(operations=operations)
        return Begun(divided=lanes_of(record.type) * OPS["divide"].cost.latency / 2)

    def _turns(self, type: str) -> int:
        """Operations on whole paths in the time of one on a value of the type."""
        return max(1, -(-_bits(type) // (8 * self.machine.cycles.path_bytes)))

    # -- chains ----------------------------------------------------------------------------------

    def _chain(self, loop: Loop) -> float:
        """Cycles from a value of one trip to the same one of the next: the longest."""
        blocks = self.trips.blocks[loop.head : loop.latch + 1]
        longest = 0.0
        for phi in (r for r in blocks[0] if isinstance(r, Phi)):
            far = {phi.name: 0.0}
            for record in (r for block in blocks for r in block if r.name not in far):
                before = [far[o.text] for o in record.operands if o.text in far]
                if before and record.name:
                    far[record.name] = max(before) + self._latency(record)
            for value, block in zip(phi.operands, phi.blocks, strict=True):
                if self.trips.numbers[block] in loop and value.text != phi.name:
                    longest = max(longest, far.get(value.text, 0.0))
        return longest

    def _latency(self, record: Instruction) -> float:
        """Cycles until the result is there."""
        cycles = self.machine.cycles
        match record:
            case Phi() | GetElementPtr() | Instruction(opcode="bitcast"):
                return 0.0
            case Load():
                return cycles.load_latency
            case Instruction(opcode="fdiv"):
                return OPS["divide"].cost.latency
            case Call(symbol=name) if name.startswith(_ROOT):
                return OPS["sqrt"].cost.latency
            case Instruction(opcode="fadd" | "fsub" | "fmul"):
                return cycles.latency
            case Instruction(opcode="mul") if record.value.lanes > 1:
                return self._product(record.type) * cycles.latency
            case Call() if record.value.scalar_type in ("float", "double"):
                return cycles.latency
        return 0.0 if record.name in self.free else 1.0

    # -- bytes that come again -------------------------------------------------------------------

    def _again(self) -> Iterator[tuple[float, int]]:
        """Bytes of arrays that loops before have touched, in all and by a run of the loop, which is
        what a cache holds; those in half the first one are loads.
        """
        seen: dict[str, float] = {}
        for loop in self._inner():
            for name, size in self._touched(loop).items():
                own = size / loop.entered
                held = max(own, seen.get(name, 0.0))
                if name in seen and 2 * held > self.machine.first_cache.bytes:
                    yield size, round(held)
                seen[name] = held

    def _between(self) -> Iterator[float]:
        """Of elements of rows that lie apart, which come with all that lies between in their lines;
        others of it that are gathered, too, count once more.
        """
        for times, block in zip(self.trips.often, self.trips.blocks, strict=True):
            for record in block if times else ():
                if isinstance(record, Call) and ".gather." in record.symbol:
                    place = self.trips.made.get(record.operands[0].text)
                    if isinstance(place, GetElementPtr) and (step := _step(place.operands[1])):
                        own = _bits(place.element) // 8
                        apart = min(abs(step) * own, self.machine.line_bytes)
                        yield times * record.value.lanes * max(0, apart - own)

    def _touched(self, loop: Loop) -> dict[str, float]:
        """Bytes that all trips read and write, by where an address begins."""
        found: dict[str, float] = {}
        for number in range(loop.head, loop.latch + 1):
            for record in self.trips.blocks[number]:
                match record:
                    case Load(operands=(place,), type=type):
                        pass
                    case Instruction(opcode="store", operands=(stored, place)):
                        type = stored.type
                    case _:
                        continue
                name = place.text
                while isinstance(made := self.trips.made.get(name), GetElementPtr):
                    name = made.operands[0].text
                size = self.trips.often[number] * _bits(type) / 8
                found[name] = found.get(name, 0.0) + size
        return found


def _step(index: Value) -> int | None:
    """From each of a constant's numbers to the next, if that is the same."""
    numbers = [int(number) for number in _NUMBERS.findall(index.text)]
    if not index.is_constant or len(numbers) != index.lanes:
        return None
    steps = {b - a for a, b in pairwise(numbers)}
    return steps.pop() if len(steps) == 1 else None


def _bits(type: str) -> int:
    """Of a value of the type."""
    scalar = scalar_of(type)
    digits = scalar[1:]
    return lanes_of(type) * (int(digits) if digits.isdigit() else _BITS.get(scalar, 0))


def _is_scalar(type: str) -> bool:
    """Whether its values are integers or addresses, or none."""
    return lanes_of(type) == 1 and type not in ("half", "bfloat", "float", "double")
