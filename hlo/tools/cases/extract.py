"""extract: some instructions of one computation as a module that runs by itself.

    instructions, recorded values --extracted--> module, arguments

What they use from outside becomes parameters, in the order of first use; constants come along.
The root is what nobody among them uses, a tuple where that is more than one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import (
    callees,
    clone_computation,
    clone_instruction,
    control_predecessors,
    post_order,
)
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.tools.cases.case import Case, Recorded
from hlo.tools.cases.inputs import made_up_inputs

KEPT_HEADER = ("replica_count", "num_partitions")  # what collectives depend on


def extracted(chosen: Iterable[Instruction], values: Recorded | None = None) -> Case:
    """A new module of the chosen instructions, and its arguments: the recorded values of what they
    use, made up where there are none. HloError `arguments` unless they stand in one computation.
    """
    wanted = dict.fromkeys(chosen)
    homes = {i.computation for i in wanted}
    home = next(iter(homes), None)
    if len(homes) != 1 or home is None or home.module is None:
        raise HloError(
            "arguments", f"extract: instructions of {len(homes)} computations, expected of one"
        )
    order = list(wanted) if len(wanted) == 1 else [i for i in post_order(home) if i in wanted]
    module, twins = _shell(home.module, order)
    entry = Computation(home.name if home is home.module.entry else f"{home.name}.extracted")
    outside, made = _copied(order, entry, twins)
    used = {o for i in order for o in i.operands}
    results = [made[i] for i in order if i not in used or i is home.root]
    if len(results) == 1:
        entry.root = results[0]
    else:
        entry.root = entry.new("tuple", Shape.tuple(r.shape for r in results), results)
    module.adopt(entry)
    module.entry = entry
    return Case(module, _arguments(module, outside, values or {}))


def sliced(
    starts: Iterable[Instruction] = (), ends: Iterable[Instruction] = ()
) -> list[Instruction]:
    """What depends on `starts` and is needed by `ends`, themselves included; without starts, all
    that the ends are computed from (a backward slice), without ends, all that the starts reach (a
    forward slice). Within a computation: what is called is part of its caller.
    """
    starts, ends = list(starts), list(ends)
    behind = _reached(starts, lambda i: i.users)
    before = _reached(ends, lambda i: (*i.operands, *control_predecessors(i)))
    if starts and ends:
        return [i for i in behind if i in before]
    return list(behind or before)


def _reached(
    start: Iterable[Instruction], following: Callable[[Instruction], Iterable[Instruction]]
) -> dict[Instruction, None]:
    found = dict.fromkeys(start)
    stack = list(found)
    while stack:
        for other in following(stack.pop()):
            if other not in found:
                found[other] = None
                stack.append(other)
    return found


def with_operands(chosen: Iterable[Instruction], depth: int) -> list[Instruction]:
    """The chosen instructions and what they are computed from, so many steps back."""
    found = dict.fromkeys(chosen)
    edge = list(found)
    while edge and depth > 0:
        edge = list(dict.fromkeys(o for i in edge for o in i.operands if o not in found))
        found |= dict.fromkeys(edge)
        depth -= 1
    return list(found)


def _shell(
    module: Module, order: list[Instruction]
) -> tuple[Module, dict[Computation, Computation]]:
    """A module without an entry that holds copies of all that the instructions call."""
    shell = Module(module.name, {k: v for k, v in module.attributes.items() if k in KEPT_HEADER})
    shell.stack_frames, shell.source = module.stack_frames, module.source
    twins: dict[Computation, Computation] = {}
    for computation in _called(order):
        twins[computation] = clone_computation(computation, callees=twins)
        shell.add(twins[computation])
    return shell, twins


def _called(order: list[Instruction]) -> list[Computation]:
    """What the instructions call, directly or not, each behind what it calls itself."""
    found: dict[Computation, None] = {}
    stack = [(c, False) for i in reversed(order) for c in reversed(i.called_computations())]
    while stack:
        computation, is_open = stack.pop()
        if computation in found:
            continue
        if is_open:
            found[computation] = None
            continue
        stack.append((computation, True))
        stack += [(c, False) for c in reversed(callees(computation)) if c not in found]
    return list(found)


def _copied(
    order: list[Instruction], entry: Computation, twins: dict[Computation, Computation]
) -> tuple[list[Instruction], dict[Instruction, Instruction]]:
    """Copies of the instructions in `entry`; what they use from outside, by parameter number."""
    made: dict[Instruction, Instruction] = {}
    outside: list[Instruction] = []
    chosen = set(order)
    for old in order:
        for operand in () if old.opcode == "parameter" else old.operands:
            if operand in made:
                continue
            if operand.opcode == "constant":
                made[operand] = entry.adopt(clone_instruction(operand, ()))
            else:
                assert operand not in chosen, "operands come first"
                made[operand] = _parameter(entry, operand, len(outside))
                outside.append(operand)
        if old.opcode == "parameter":
            made[old] = _parameter(entry, old, len(outside))
            outside.append(old)
            continue
        new = clone_instruction(old, tuple(made[o] for o in old.operands), twins)
        before = tuple(made[p] for p in control_predecessors(old) if p in chosen)
        attributes = {k: v for k, v in new.attributes.items() if k != "control-predecessors"}
        new.attributes = {**attributes, "control-predecessors": before} if before else attributes
        made[old] = entry.adopt(new)
    return outside, made


def _parameter(entry: Computation, stands_for: Instruction, number: int) -> Instruction:
    parameter = Instruction(
        stands_for.name, "parameter", stands_for.shape, (), {"parameter_number": number}
    )
    if stands_for.opcode == "parameter" and "sharding" in stands_for.attributes:
        sharding = stands_for.attributes["sharding"]
        parameter.attributes = {**parameter.attributes, "sharding": sharding}
    return entry.adopt(parameter)


def _arguments(module: Module, outside: list[Instruction], values: Recorded) -> tuple[object, ...]:
    if all(o in values for o in outside):
        return tuple(values[o] for o in outside)
    made = made_up_inputs(module)
    return tuple(values.get(o, made[n]) for n, o in enumerate(outside))
