"""Externs: custom calls whose targets are functions of whoever links the object.

    Program --externs--> number of the host step -> symbol

A target that this package does not know, or that was registered in this process, is a function of
C, if its name is one:

    int TARGET(const void *const *operands, void *const *results)

It gets the addresses of the operands' and the results' arrays, row-major, tuples flattened, and
gives 0, or a status that ends the call and is its caller's.
"""

from __future__ import annotations

from hlo.analysis.leaves import leaves_of
from hlo.backend.ahead.interface import is_identifier
from hlo.backend.entry.entry_ir import Extern
from hlo.backend.planning.program import Program
from hlo.ir.instruction import Instruction
from hlo.ops.custom_targets import REGISTERED, TARGETS


def externs(program: Program) -> dict[int, Extern]:
    """The host steps that are functions of C."""
    return {
        step.number: Extern(target, _operand_leaves(step.instruction))
        for step in program.hosts
        if (target := _target(step.instruction))
    }


def _target(instruction: Instruction) -> str:
    """The function's name; empty where it is none."""
    target = str(instruction.get("custom_call_target", ""))
    is_known = target in TARGETS and target not in REGISTERED
    if instruction.opcode != "custom-call" or is_known or not is_identifier(target):
        return ""
    return "" if instruction.get("called_computations") else target


def _operand_leaves(instruction: Instruction) -> int:
    return sum(len(leaves_of(o.shape)) for o in instruction.operands)
