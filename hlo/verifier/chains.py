"""Chains: which dones a start reaches, through tuples, barriers, loops, calls and branches.

    start --tuple, get-tuple-element, while, ...--> dones

A value is followed with its path inside of tuples. Loops carry a chain from one turn to the next,
so that one start may meet several dones there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes
from hlo.verifier.report import Report

CARRYING = opcodes(Trait.CARRIES)
Link = tuple[Instruction, tuple[int, ...]]  # a value, and where in it the chain is
Callers = Mapping[Computation, list[Instruction]]


class Ends(Struct):
    """Where a chain ends. wrong: what else takes it; lost: it leaves the module."""

    dones: list[Instruction] = field(default_factory=list)
    wrong: list[Instruction] = field(default_factory=list)
    is_looped: bool = False
    is_lost: bool = False


def callers(module: Module) -> Callers:
    """Who calls a computation."""
    found: dict[Computation, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            for callee in instruction.called_computations():
                found.setdefault(callee, []).append(instruction)
    return found


def ends(start: Instruction, links: frozenset[str], dones: frozenset[str], known: Callers) -> Ends:
    """What the start's chain meets; links: opcodes that hand it on as it is (async-update)."""
    found = Ends()
    stack: list[Link] = [(start, ())]
    seen: set[Link] = set()
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        value, path = place
        if value.is_root:
            stack += _returned(value, path, known, found)
        for user in value.users:
            if user.opcode in dones and not path:
                found.dones.append(user)
            elif user.opcode in links and not path:
                stack.append((user, ()))
            else:
                stack += _carried(value, path, user, found)
    return found


def _carried(
    value: Instruction, path: tuple[int, ...], user: Instruction, found: Ends
) -> Iterator[Link]:
    """Where a user that is no link takes the chain."""
    positions = [k for k, operand in enumerate(user.operands) if operand is value]
    if user.opcode == "tuple":
        yield from ((user, (k, *path)) for k in positions)
    elif user.opcode == "get-tuple-element":
        if not path:
            found.wrong.append(user)
        elif user.attributes.get("index") == path[0]:
            yield user, path[1:]
    elif user.opcode == "while":
        found.is_looped = True
        yield user, path
        yield from ((c.parameters[0], path) for c in user.called_computations() if c.parameters)
    elif user.opcode in ("call", "conditional"):
        yield from _passed(user, positions, path)
    elif user.opcode in CARRYING:
        yield user, path
    else:
        found.wrong.append(user)


def _passed(user: Instruction, positions: list[int], path: tuple[int, ...]) -> Iterator[Link]:
    """The parameters of what is called: of a branch, the only one."""
    callees = user.called_computations()
    for k in positions:
        callee, number = (callees[0], k) if user.opcode == "call" else (callees[k - 1], 0)
        yield from ((p, path) for p in callee.parameters
                    if p.attributes["parameter_number"] == number)  # fmt: skip


def _returned(
    root: Instruction, path: tuple[int, ...], known: Callers, found: Ends
) -> Iterator[Link]:
    """A root's value is its callers'; a body's is the next turn's parameter too."""
    computation = root.computation
    assert computation is not None, "in a computation"
    at = known.get(computation, [])
    if not at:
        found.is_lost = True
    for caller in at:
        if caller.opcode == "while":
            found.is_looped = True
            yield computation.parameters[0], path
        yield caller, path


def in_entry(instruction: Instruction) -> bool:
    """Whether nothing calls what the instruction stands in."""
    computation = instruction.computation
    return (
        computation is not None
        and computation.module is not None
        and (computation.module.entry is computation)
    )


def is_whole(start: Instruction, known: Callers) -> bool:
    """Whether it is all of what runs asynchronously, or of what nobody calls."""
    computation = start.computation
    if computation is None or not start.is_root or start.users or in_entry(start):
        return False
    return all(caller.opcode == "async-start" for caller in known.get(computation, []))


def check_carried(
    start: Instruction, dones: frozenset[str], label: str, known: Callers, report: Report
) -> list[Instruction]:
    """One done at the end of a way through tuples and calls; in loops at least one."""
    links = frozenset({"async-update"}) if start.opcode == "async-start" else frozenset[str]()
    met = ends(start, links, dones, known)
    expected = f"one {' or '.join(sorted(dones))} at the end of its way"
    if met.wrong or met.is_lost:
        found = f"taken by {met.wrong[0].name}" if met.wrong else "a result of the module"
        report.broken(start, "async", "", found, expected, label)
    elif not met.dones or (len(met.dones) > 1 and not met.is_looped):
        found = f"met by {', '.join(d.name for d in met.dones) or 'nothing'}"
        report.broken(start, "async", "", found, expected, label)
    return met.dones
