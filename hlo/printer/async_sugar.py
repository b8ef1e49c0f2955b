"""Asynchronous instructions that print as `X-start`, `X-update`, `X-done` of what they wrap."""

from __future__ import annotations

from collections import Counter

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS
from hlo.printer.options import PrintOptions

SUFFIXES = {"async-start": "-start", "async-update": "-update", "async-done": "-done"}
# The text of X-start cannot say what X needs.
_NOT_SAID = frozenset({"parameter", "constant", *SUFFIXES})
# Copied from the start to the wrapped instruction when the sugar is read.
_SHARED = ("metadata", "origin", "backend_config", "frontend_attributes", "statistics")


def sugared_computations(module: Module, options: PrintOptions) -> set[Computation]:
    """Wrapped computations that are not printed: they show in their starts' opcodes."""
    if not options.syntax_sugar_async_ops:
        return set()
    starts = [i for c in module.computations for i in c.instructions if i.opcode == "async-start"]
    if not starts:
        return set()
    found = {w for s in starts if (w := wrapped(s)) is not None and is_single_instruction(w)}
    if options.reads_back:
        calls = Counter(
            c
            for computation in module.computations
            for i in computation.instructions
            if i.opcode not in ("async-update", "async-done")
            for c in i.called_computations()
        )
        lost = {w for s in starts if (w := wrapped(s)) is not None and not _reads_back(s, w)}
        found -= lost | {c for c, count in calls.items() if count > 1} | {module.entry}
    return found


def wrapped(instruction: Instruction) -> Computation | None:
    """What an asynchronous instruction runs: what its async-start calls."""
    at = instruction
    while at.opcode in ("async-update", "async-done") and at.operands:
        at = at.operands[0]
    called = at.attributes.get("calls") or instruction.attributes.get("calls")
    return called if isinstance(called, Computation) else None


def is_single_instruction(computation: Computation) -> bool:
    """Whether there is nothing but parameters and the root."""
    root = computation.root
    return all(i.opcode == "parameter" or i is root for i in computation.instructions)


def _reads_back(start: Instruction, computation: Computation) -> bool:
    """Whether the sugar of a start, read again, makes an equal computation."""
    root, parts = computation.root, start.shape.elements
    if root.opcode in _NOT_SAID or f"{root.opcode}-done" in OPS:  # X-done is an opcode of its own
        return False
    if root.operands != computation.parameters:
        return False
    if len(root.operands) != len(start.operands) or len(parts) < 2 or parts[1] != root.shape:
        return False
    pairs = zip(root.operands, start.operands, strict=True)
    if any(p.shape != a.shape or p.attributes.keys() != {"parameter_number"} for p, a in pairs):
        return False
    if any(k in root.attributes for k in ("statistics", "sharding", "control-predecessors")):
        return False
    return all(root.attributes.get(key) == start.attributes.get(key) for key in _SHARED)
