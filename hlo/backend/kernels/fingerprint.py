"""Fingerprint: equal for instructions whose kernels are equal, names and metadata aside."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

# What any instruction may carry without a change to its code.
SILENT = frozenset(
    {"metadata", "frontend_attributes", "sharding", "control-predecessors", "statistics", "origin"}
)


def fingerprint(instruction: Instruction) -> object:
    """A hashable key of opcode, shapes, attributes, and of what is called, in depth.

    Operands that are the same value count as such: their kernel may read one of them only.
    """
    operands = instruction.operands
    return _one(instruction, tuple((o.shape, operands.index(o)) for o in operands))


def _one(instruction: Instruction, operands: object) -> object:
    attributes = tuple(
        (name, _value(value))
        for name, value in sorted(instruction.attributes.items())
        if name not in SILENT
    )
    return instruction.opcode, instruction.shape, operands, attributes


def _value(value: object) -> object:
    if isinstance(value, Computation):
        return _computation(value)
    if isinstance(value, Literal):
        return _literal(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(_computation(v) for v in value)
    if isinstance(value, list | dict):
        return repr(value)
    return value


def _literal(literal: Literal) -> object:
    if isinstance(literal.value, tuple):
        return literal.shape, tuple(_literal(e) for e in literal.value)
    return literal.shape, None if literal.value is None else literal.value.tobytes()


def _computation(computation: Computation) -> object:
    """The rows of a called computation, operands by position."""
    place = {instruction: n for n, instruction in enumerate(computation.instructions)}
    rows = tuple(_one(i, tuple(place[o] for o in i.operands)) for i in computation.instructions)
    return rows, place[computation.root]
