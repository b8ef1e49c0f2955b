"""Counted copies: what is computed of iotas alone, once more for a reader of another order.

    x = f(iota, iota), g(x), h(transpose(x))  --copied-->  g(x), h(transpose(x'))

Distances between rows and columns are read along rows by one bias and along columns by another. A
region of scores (analysis/scores/region.py) has one order for each value, so the second reader gets
a copy: it costs next to nothing, for its elements are made where they are read. What no region came
of is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.fusibility import is_elementwise, moves_elements
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Instruction

MOST_READERS = 32
MOST_MEMBERS = 64  # Of what a value is computed from.


class CountedCopies:
    """The copies that were made, and how to be without them."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._twins: dict[Instruction, Instruction] = {}
        self._before: list[tuple[Instruction, Sequence[Instruction]]] = []

    def copied(self, value: Instruction, reader: Instruction) -> bool:
        """Give a reader a copy of a value, and of all that it is computed from; of one that is not
        counted, what it reads that is. False where there is none to be made. Readers share copies.
        """
        if self._is_given(value, reader):
            return True
        given = [self._is_given(operand, value) for operand in dict.fromkeys(value.operands)]
        return any(given)

    def _is_given(self, value: Instruction, reader: Instruction) -> bool:
        found = _counted(value)
        if not found or len(self._before) >= MOST_READERS:
            return False
        for one in found:
            if one not in self._twins:
                operands = tuple(self._twins.get(o, o) for o in one.operands)
                self._twins[one] = self._computation.adopt(clone_instruction(one, operands))
        self._before.append((reader, reader.operands))
        given = [self._twins[value] if o is value else o for o in reader.operands]
        self._computation.set_operands(reader, given)
        return True

    def undo(self) -> None:
        """Everybody reads what they read before."""
        for reader, operands in reversed(self._before):
            self._computation.set_operands(reader, operands)
        for twin in reversed(self._twins.values()):
            self._computation.remove(twin)


def _counted(value: Instruction) -> list[Instruction]:
    """A value and what it is computed from, operands first, if that is iotas and numbers alone; the
    numbers are not listed. Empty where there is anything else.
    """
    found: set[Instruction] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one in found or (one.opcode == "constant" and not one.shape.dims):
            continue
        found.add(one)
        is_made = one.operands and (is_elementwise(one) or moves_elements(one))
        if len(found) > MOST_MEMBERS or "control-predecessors" in one.attributes:
            return []
        if one.opcode != "iota" and not is_made:
            return []
        waiting += one.operands
    assert value.computation is not None, "in a computation"
    return [one for one in post_order(value.computation) if one in found]
