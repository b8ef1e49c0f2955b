"""Trips: how often each block of a function runs, where its text says it.

    Function, known arguments --trips_of--> Trips: blocks, how often each runs, loops;  Uncounted

A loop has a counter, its step and a last value, which are numbers or follow from arguments and
counters around it, as the integers here do that are computed from known ones; in a loop the counter
is that of its middle trip, so that triangles and last blocks count as they do on average. Branches
that depend on data lead each way as often, but to blocks for what is rare.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from hlo.backend.ir.functions import Function
from hlo.backend.ir.records import Branch, Call, Cast, Instruction, Label, Phi
from hlo.backend.ir.values import Value

Integers = Callable[[int, int], int]
_MOST_BITS = 64
RARE = "slow"  # Blocks are called so that numbers of a rare kind are for (math/rare.py).


class Uncounted(Exception):
    """A loop runs as often as data says, or what runs is no code of ours."""


class Loop(Struct):
    """From the block that it begins with to the one that leads back there: how often it is entered,
    and its trips each time. is_inner: whether there is no other one in it.
    """

    head: int
    latch: int
    is_inner: bool = False
    entered: float = 0.0
    trips: int = 0

    def __contains__(self, block: int) -> bool:
        return self.head <= block <= self.latch


class Trips:
    """A function's blocks, its loops, and how often they run.

    blocks: instructions; made: by the names of their results; often: how often each block runs
    in a call; loops: by their first blocks; known: integers, by name.
    """

    def __init__(self, function: Function, known: Mapping[str, int]) -> None:
        self.known = dict(known)
        self.blocks: list[list[Instruction]] = []
        self.numbers: dict[str, int] = {}
        for record in function.records:
            if isinstance(record, Label):
                self.numbers[record.label] = len(self.blocks)
                self.blocks.append([])
            elif not self.blocks:
                self.blocks.append([record])  # the first block may have no label
            else:
                self.blocks[-1].append(record)
        self._rare = {n for label, n in self.numbers.items() if label.startswith(RARE)}
        self.made = {r.name: r for block in self.blocks for r in block if r.name}
        self.often = [1.0, *(0.0 for _ in self.blocks[1:])]
        self.loops = self._found()
        self._exits: set[tuple[int, int]] = set()  # of loops that were left: where to
        for number, block in enumerate(self.blocks):
            if number in self.loops:
                self._enter(self.loops[number])
            if self.often[number]:
                for record in block:
                    self._evaluate(record)
                self._leave(number, block)

    def around(self, block: int) -> Loop | None:
        """The loop without others in it that a block is in."""
        return next((o for o in self.loops.values() if o.is_inner and block in o), None)

    def value(self, value: Value) -> int | None:
        """An integer, if it is known."""
        if value.text in ("true", "false"):
            return int(value.text == "true")
        return value.integer if value.is_constant else self.known.get(value.text)

    def _found(self) -> dict[int, Loop]:
        """The loops: where a branch leads back to."""
        found: dict[int, Loop] = {}
        for number, block in enumerate(self.blocks):
            for target in self._targets(block):
                if target <= number:
                    found[target] = Loop(target, number)
        for loop in found.values():
            loop.is_inner = not any(o is not loop and o.head in loop for o in found.values())
        return found

    def _targets(self, block: Sequence[Instruction]) -> list[int]:
        end = block[-1] if block else None
        return [self.numbers[label] for label in end.labels] if isinstance(end, Branch) else []

    # -- loops -----------------------------------------------------------------------------------

    def _enter(self, loop: Loop) -> None:
        """Its trips, and the middle one's counter."""
        loop.entered = self.often[loop.head]
        if not loop.entered:
            return
        counter, start, step, trips = self._counted(loop)
        loop.trips = max(trips, 1)
        self.often[loop.head] *= loop.trips
        self.known[counter] = start + (loop.trips - 1) // 2 * step

    def _counted(self, loop: Loop) -> tuple[str, int, int, int]:
        """Its counter, where that starts, its step, and how many trips there are."""
        for block in (self.blocks[loop.latch], self.blocks[loop.head]):
            targets, end = self._targets(block), block[-1]
            if len(targets) != 2 or len(end.operands) != 3:
                continue
            stays = [target in loop for target in targets]
            condition = self.made.get(end.operands[0].text)
            if stays[0] is stays[1] or condition is None:
                continue
            for phi in (r for r in self.blocks[loop.head] if isinstance(r, Phi)):
                start, step = self._steps(loop, phi)
                if start is not None and step:
                    trips = self._passed(condition, phi, start, step, is_kept=stays[0])
                    if trips is not None:
                        return phi.name, start, step, trips
        raise Uncounted

    def _steps(self, loop: Loop, phi: Phi) -> tuple[int | None, int | None]:
        """Where a counter starts, and its step."""
        start = step = None
        for value, block in zip(phi.operands, phi.blocks, strict=True):
            if self.numbers[block] < loop.head:
                start = self.value(value)
            elif (after := self.made.get(value.text)) is not None:
                step = _step_from(after, phi.name)
        return start, step

    def _passed(
        self, condition: Instruction, phi: Phi, start: int, step: int, *, is_kept: bool
    ) -> int | None:
        """Trips while a comparison of the counter, before or after its step, holds or does not."""
        counter, limit = condition.operands[0].text, self.value(condition.operands[-1])
        after = self.made.get(counter)
        is_counter = counter == phi.name or (after and _step_from(after, phi.name) is not None)
        if limit is None or not is_counter or not condition.opcode.startswith("icmp "):
            return None
        relation = condition.opcode.split()[-1]
        relation = (relation if is_kept else _OPPOSITE[relation]).lstrip("su")
        if relation in ("le", "ge"):
            return (limit - start) // step + 1
        return -((start - limit) // step) if relation in ("lt", "gt", "ne") else None

    # -- from block to block -----------------------------------------------------------------------

    def _leave(self, number: int, block: Sequence[Instruction]) -> None:
        """How often what follows a block runs for it; of what follows a loop, for the loop."""
        if not block or not isinstance(end := block[-1], Branch):
            return
        ahead = [target for target in self._targets(block) if target > number]
        left = {t: self._left(number, t) for t in ahead}
        inside = [target for target in ahead if left[target] is None]
        for target in ahead:
            if (loop := left[target]) is not None and (loop.head, target) not in self._exits:
                self._exits.add((loop.head, target))
                self.often[target] += loop.entered
        if len(inside) == 2:
            inside = [target for target in inside if target not in self._rare] or inside
        chosen = self.value(end.operands[0]) if len(end.operands) == 3 else None
        for place, target in enumerate(inside):
            share = 1 / len(inside)
            if chosen is not None and len(inside) == 2:
                share = float(place == (not chosen))
            self.often[target] += share * self.often[number]

    def _left(self, number: int, target: int) -> Loop | None:
        """The outermost loop that a branch leaves."""
        found = (o for o in self.loops.values() if number in o and target not in o)
        return min(found, key=lambda loop: loop.head, default=None)

    def _evaluate(self, record: Instruction) -> None:
        """An integer that follows from those that are known."""
        if not record.name or record.name in self.known or record.type[0] != "i":
            return
        values = [self.value(operand) for operand in record.operands]
        found: int | None = None
        match record:
            case Phi(blocks=blocks):
                came = (self.often[self.numbers[block]] for block in blocks)
                met = [value for value, times in zip(values, came, strict=True) if times]
                found = met[-1] if met and None not in met else None
            case Cast():
                (found,) = values
            case Instruction(opcode="select") if values[0] is not None:
                found = values[1] if values[0] else values[2]
            case _ if len(values) == 2 and (rule := _rule(record)) is not None:
                a, b = values
                found = rule(a, b) if a is not None and b is not None else None
        if found is not None:
            self.known[record.name] = found


def _step_from(after: Instruction, counter: str) -> int | None:
    """What is added to a counter."""
    if after.opcode.split()[0] != "add" or after.operands[0].text != counter:
        return None
    return after.operands[1].integer


def _rule(record: Instruction) -> Integers | None:
    if isinstance(record, Call):
        return _RULES.get(record.symbol.removeprefix("llvm.").split(".")[0])
    words = record.opcode.split()
    return _RELATIONS.get(words[-1][-2:]) if words[0] == "icmp" else _RULES.get(words[0])


_OPPOSITE = {"sle": "sgt", "slt": "sge", "ule": "ugt", "ult": "uge", "eq": "ne", "ne": "eq",
             "sge": "slt", "sgt": "sle", "uge": "ult", "ugt": "ule"}  # fmt: skip
_RELATIONS: dict[str, Integers] = {
    "le": operator.le, "lt": operator.lt, "ge": operator.ge, "gt": operator.gt, "eq": operator.eq,
    "ne": operator.ne,
}  # fmt: skip
_RULES: dict[str, Integers] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "smin": min, "umin": min, "smax": max, "umax": max,
    "shl": lambda a, b: a << b if 0 <= b < _MOST_BITS else 0,
    "lshr": lambda a, b: a >> b if 0 <= b < _MOST_BITS else 0,
    "udiv": lambda a, b: a // b if b else 0,
    "sdiv": lambda a, b: a // b if b else 0,  # of sizes and places, which are not negative
    "urem": lambda a, b: a % b if b else 0,
    "srem": lambda a, b: a % b if b else 0,
}  # fmt: skip
