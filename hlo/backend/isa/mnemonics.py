"""Mnemonics: what a line of assembly does, told from its words."""

from __future__ import annotations

import re

KINDS = ("load", "store", "fma", "vector", "branch", "other")


def kinds(opcode: str, operands: str) -> tuple[str, ...]:
    """What an x86 instruction in AT&T form is of KINDS: one of them, a load besides where an
    operand is in memory. For other machines only branches are told from others.
    """
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
