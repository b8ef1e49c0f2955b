"""dce: drop instructions without users or effects, and computations that nobody calls."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.ir.computation import Computation
from hlo.ir.graph import reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.liveness import awaited, is_removable


def dce(module: Module) -> bool:
    """Drop unused instructions and computations.

    Backwards from what has no user, with a worklist. O(edges).
    """
    changed = False
    for computation in module.computations:
        changed |= drop_dead_instructions(computation)
    reachable = reachable_computations(module)
    unreached = [c for c in module.computations if c not in reachable]
    module.remove_all(unreached)
    return changed or bool(unreached)


def remove_unread(computation: Computation, ordered: Sequence[Instruction]) -> None:
    """Remove those of some instructions, operands first, that nothing reads, the last one first."""
    for instruction in reversed(ordered):
        if not instruction.users and instruction is not computation.root:
            computation.remove(instruction)


def drop_unread(value: Instruction) -> None:
    """Remove a value if it is there and nobody reads it, and then what only it read."""
    if value.computation is not None and not value.users:
        _drop(value.computation, [value])


def drop_dead_instructions(computation: Computation) -> bool:
    """Remove what nothing uses, and what only that used; whether there was any."""
    return _drop(computation, list(computation.fact(_unused)))


def _drop(computation: Computation, unread: list[Instruction]) -> bool:
    """Remove unread instructions, and what only they read; whether there was any to be removed."""
    kept = awaited(computation)
    changed = False
    while unread:
        instruction = unread.pop()
        if instruction.computation is None or instruction in kept:
            continue
        if is_removable(instruction):
            operands = dict.fromkeys(instruction.operands)
            computation.remove(instruction)
            changed = True
            unread += [o for o in operands if not o.users]
    return changed


def _unused(computation: Computation) -> tuple[Instruction, ...]:
    unused = [i for i in computation.instructions if not i.users]
    return tuple(i for i in unused if i.opcode != "parameter" and not i.is_root)
