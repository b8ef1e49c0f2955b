"""Mnemonics: what a line of assembly does, told from its words."""

from __future__ import annotations

import re

KINDS = ("load", "store", "fma", "vector", "branch", "other")


def kinds(opcode: str, operands: str) -> tuple[str, ...]:
    """What an instruction of x86, in AT&T form, or of 64-bit Arm is of KINDS: one of them, on x86 a
    load besides where an operand is in memory.
    """
    if _is_arm(opcode, operands):
        return (_arm_kind(opcode),)
    touches = "(" in operands and not opcode.startswith(("lea", "nop", "prefetch"))
    loads = ("load",) if touches else ()
    if re.match(r"vfn?m(add|sub)|vdpbf16|tdp", opcode):
        return ("fma", *loads)
    if opcode.startswith(("j", "call", "ret", "b.", "cb")):
        return ("branch", *loads)
    if "mov" in opcode and touches:
        target = operands.rstrip().partition("{")[0].rstrip()
        return ("store",) if target.endswith(")") else ("load",)
    if opcode.startswith("v") and "broadcast" in opcode and touches:
        return ("load",)
    return ("vector" if opcode.startswith("v") else "other", *loads)


def _is_arm(opcode: str, operands: str) -> bool:
    """Whether it is one of Arm's on memory or vectors: x86's registers have a % before them."""
    return "%" not in operands and bool(re.search(r"\[|\b[vqsd]\d", operands))


def _arm_kind(opcode: str) -> str:
    if re.match("fn?m(la|ls|add|sub)|bfdot|bfmmla", opcode):
        return "fma"
    return "load" if opcode.startswith("ld") else "store" if opcode.startswith("st") else "vector"
