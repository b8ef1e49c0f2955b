"""Rewiring: operands of an instruction that has many of them are replaced when they are looked at.

A tuple of n values, each of which a pass replaces by another, would else be written n times. What
is replaced is noted, O(1), and put in place once, when somebody next asks for the operands.
"""

from __future__ import annotations

from types import MemberDescriptorType

from msgspec import Struct

from hlo.ir.instruction import Instruction

WIDE = 64  # operands: fewer are replaced at once
FEW = 8  # replacements that are made one after the other
Operands = tuple[Instruction, ...]
_SLOT: MemberDescriptorType = Instruction.__dict__["operands"]


def replace_operand(user: Instruction, old: Instruction, new: Instruction) -> None:
    """Let an instruction use another one in an operand's place, wherever it does; users are the
    caller's to keep."""
    if isinstance(user, _Rewired):
        _SLOT.__get__(user).replaced.append((old, new))
    elif len(user.operands) < WIDE:
        user.operands = tuple([new if o is old else o for o in user.operands])
    else:
        _SLOT.__set__(user, _Noted(user.operands, [(old, new)]))
        user.__class__ = _Rewired


def is_wide(instruction: Instruction) -> bool:
    """Whether it has many operands; says so without a look at which."""
    return isinstance(instruction, _Rewired) or len(instruction.operands) >= WIDE


class _Noted(Struct):
    """Operands, and what is to be replaced in them, in this order."""

    operands: Operands
    replaced: list[tuple[Instruction, Instruction]]

    def in_place(self) -> Operands:
        """The operands as they are to be."""
        if len(self.replaced) > FEW:
            return _all_replaced(self.operands, self.replaced)
        operands = self.operands
        for old, new in self.replaced:
            operands = _replaced(operands, old, new)
        return operands


class _Rewired(Instruction):
    """An instruction until somebody looks at its operands."""

    __slots__ = ()

    @property
    def operands(self) -> Operands:
        found = _SLOT.__get__(self)
        if isinstance(found, _Noted):  # another thread may look as well
            found = found.in_place()
            self.operands = found
        return found  # type: ignore[no-any-return]  # the slot's

    @operands.setter
    def operands(self, operands: Operands) -> None:
        _SLOT.__set__(self, operands)
        self.__class__ = Instruction  # type: ignore[assignment]  # the same slots


def _replaced(operands: Operands, old: Instruction, new: Instruction) -> Operands:
    """The operands with one for another; a wide tuple's mostly hold it once."""
    if operands.count(old) != 1:
        return tuple([new if o is old else o for o in operands])
    at = operands.index(old)
    return (*operands[:at], new, *operands[at + 1 :])


def _all_replaced(operands: Operands, replaced: list[tuple[Instruction, Instruction]]) -> Operands:
    """The same for many: each operand's places go to what replaces it. O(n log n): the shorter
    list of places is added to the longer one."""
    positions: dict[Instruction, list[int]] = {}
    for at, operand in enumerate(operands):
        positions.setdefault(operand, []).append(at)
    for old, new in replaced:
        short, long = positions.pop(old, []), positions.get(new, [])
        if len(short) > len(long):
            short, long = long, short
        long += short
        positions[new] = long
    found = list(operands)
    for operand, at_all in positions.items():
        for at in at_all:
            found[at] = operand
    return tuple(found)
