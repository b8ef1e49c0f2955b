"""Fingerprint: equal for instructions whose kernels are equal, names and metadata aside."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.graph import callees
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

# Attributes that any instruction may carry without a change to its code.
SILENT = frozenset(
    {"metadata", "frontend_attributes", "sharding", "control-predecessors", "statistics", "origin"}
)
# Those that computations of equal contents may differ in.
NOT_CONTENTS = SILENT - {"control-predecessors"}


class Fingerprints:
    """Fingerprints of a program's instructions; what they call is read once, and is a number."""

    def __init__(self, silent: frozenset[str] = SILENT) -> None:
        """silent: attributes that say nothing of what the fingerprints are for."""
        self._silent = silent
        self._numbers: dict[object, int] = {}
        self._known: dict[Computation, int] = {}
        self._by_contents: dict[tuple[int, ...], int] = {}
        self._contents: dict[int, dict[object, object]] = {}

    def of(self, instruction: Instruction) -> object:
        """A hashable key of opcode, shapes, attributes, and of what is called, in depth.

        Operands that are the same value count as such: their kernel may read one of them only.
        """
        operands = instruction.operands
        first: dict[Instruction, int] = {}
        for number, operand in enumerate(operands):
            first.setdefault(operand, number)
        for callee in instruction.called_computations():
            self._number(callee)
        return self._one(instruction, tuple([(o.shape, first[o]) for o in operands]))

    def alone(self, instruction: Instruction) -> object:
        """A hashable key of the same, whatever its operands are but for how many."""
        for callee in instruction.called_computations():
            self._number(callee)
        return self._one(instruction, len(instruction.operands))

    def _number(self, computation: Computation) -> None:
        """Number a computation after all that it calls: calls may be as deep as the module."""
        stack = [computation]
        while stack:
            top = stack[-1]
            waiting = [c for c in callees(top) if c not in self._known]
            if waiting and top not in self._known:
                stack += waiting
                continue
            stack.pop()
            if top not in self._known:
                self._known[top] = self._found(top)

    def _found(self, computation: Computation) -> int:
        """The number of a computation all of whose callees have one. Those that share their
        contents are read once; those that are found to be equal share them from then on.
        """
        called = tuple([self._known[c] for c in callees(computation)])
        number = self._by_contents.get((computation.contents_number, *called))
        if number is None:
            number = self._numbers.setdefault(self._rows(computation), len(self._numbers))
            if self._silent <= NOT_CONTENTS:
                computation.contents = self._contents.setdefault(number, computation.contents)
            self._by_contents[computation.contents_number, *called] = number
        return number

    def _rows(self, computation: Computation) -> object:
        """The rows of a called computation, operands by position."""
        place = {instruction: n for n, instruction in enumerate(computation.instructions)}
        rows = [self._one(i, tuple([place[o] for o in i.operands])) for i in place]
        return tuple(rows), place[computation.root]

    def _one(self, instruction: Instruction, operands: object) -> object:
        attributes = tuple(
            (name, self._value(value))
            for name, value in sorted(instruction.attributes.items())
            if name not in self._silent
        )
        return instruction.opcode, instruction.shape, operands, attributes

    def _value(self, value: object) -> object:
        if isinstance(value, Computation):
            return self._known[value]
        if isinstance(value, Literal):
            return _literal(value)
        if isinstance(value, tuple) and value and isinstance(value[0], Computation):
            return tuple(self._known[v] for v in value)
        if isinstance(value, list | dict):
            return repr(value)
        return value


def _literal(literal: Literal) -> object:
    if isinstance(literal.value, tuple):
        return literal.shape, tuple(_literal(e) for e in literal.value)
    return literal.shape, None if literal.value is None else literal.value.tobytes()
