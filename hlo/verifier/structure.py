"""Structure: computations, edges and calls lead somewhere, and nothing depends on itself."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS
from hlo.verifier.report import Report


def check(module: Module, report: Report) -> None:
    """V1 to V5 and V60."""
    _check_computations(module, report)
    members = set(module.computations)
    for computation in module.computations:
        _check_instructions(computation, members, report)
        _check_parameters(computation, report)
    if not report.errors:
        for computation in module.computations:
            _check_acyclic(computation, report)
        _check_recursion(module, report)


def _check_computations(module: Module, report: Report) -> None:
    if module.entry not in module.computations:
        report.module("structure", "module: no computation is the entry, expected one", "V1")
    if not module.name:
        report.module("structure", "module: its name is empty, expected a name", "V1")
    names: set[str] = set()
    for computation in module.computations:
        if computation.name in names:
            message = f"module: two computations are named {computation.name}, expected one"
            report.module("duplicate-name", message, "V2")
        names.add(computation.name)
        if not computation.instructions:
            message = f"module: computation {computation.name} is empty, expected a root"
            report.module("structure", message, "V4")


def _check_instructions(
    computation: Computation, members: set[Computation], report: Report
) -> None:
    names: set[str] = set()
    known = members if computation.module is not None else set()
    for instruction in computation.instructions:
        if instruction.name in names:
            found = f"the second of the name {instruction.name}"
            report.broken(instruction, "duplicate-name", "", found, "names to differ", "V2")
        names.add(instruction.name)
        if instruction.opcode not in OPS:
            report.broken(instruction, "unknown-opcode", "", "no opcode", "an opcode", "V8")
        if instruction.computation is not computation:
            report.broken(instruction, "structure", "", "listed elsewhere", "its computation", "V3")
        for i, operand in enumerate(instruction.operands):
            _check_edge(instruction, operand, f"operand {i}", report)
            if operand.computation is computation and instruction not in operand.users:
                found = f"{operand.name}, which does not list it as a user"
                report.broken(instruction, "structure", f"operand {i}", found, "that it does", "V3")
        for before in control_predecessors(instruction):
            _check_edge(instruction, before, "control-predecessors", report)
        for callee in instruction.called_computations():
            if callee not in known:
                found = f"{callee.name}, of another module"
                report.broken(instruction, "structure", "", found, "one of this module", "V3")
    if computation.instructions and computation.root.computation is not computation:
        message = f"module: the root of {computation.name} is not in it, expected one of its own"
        report.module("structure", message, "V4")


def _check_edge(instruction: Instruction, other: Instruction, at: str, report: Report) -> None:
    if other.computation is not instruction.computation:
        found = f"{other.name}, of another computation"
        report.broken(instruction, "structure", at, found, "one of the same computation", "V3")


def _check_parameters(computation: Computation, report: Report) -> None:
    parameters = [i for i in computation.instructions if i.opcode == "parameter"]
    numbers = sorted(p.attributes["parameter_number"] for p in parameters)  # type: ignore[type-var]  # ints
    if numbers == list(range(len(numbers))):
        return
    for parameter in parameters:
        number = parameter.attributes["parameter_number"]
        alone = numbers.count(number) == 1
        if not alone or not 0 <= number < len(numbers):  # type: ignore[operator]  # an int
            expected = f"the numbers 0 to {len(numbers) - 1}, each once, in {computation.name}"
            report.broken(parameter, "structure", "", f"number {number}", expected, "V5")


def _check_acyclic(computation: Computation, report: Report) -> None:
    """Every instruction can be ordered after its operands and control predecessors (V3, V60)."""
    waiting = {i: len({*i.operands, *control_predecessors(i)}) for i in computation.instructions}
    followers: dict[Instruction, list[Instruction]] = {}
    for instruction in computation.instructions:
        for before in control_predecessors(instruction):
            if before not in instruction.operands:
                followers.setdefault(before, []).append(instruction)
    ready = [i for i, count in waiting.items() if count == 0]
    done = 0
    while ready:
        instruction = ready.pop()
        done += 1
        for user in (*instruction.users, *followers.get(instruction, ())):
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    if done < len(waiting):
        stuck = next(i for i, count in waiting.items() if count > 0)
        report.broken(stuck, "structure", "", "one of a cycle", "an order of evaluation", "V3")


def _check_recursion(module: Module, report: Report) -> None:
    """No computation calls itself, directly or through others."""
    done: set[Computation] = set()
    for start in module.computations:
        if start in done:
            continue
        stack: list[tuple[Computation, Iterator[Instruction]]] = [(start, _calls(start))]
        active = {start}
        while stack:
            computation, callers = stack[-1]
            caller = next(callers, None)
            if caller is None:
                stack.pop()
                active.discard(computation)
                done.add(computation)
                continue
            for callee in caller.called_computations():
                if callee in active:
                    found = f"a call of {callee.name} from inside of it"
                    report.broken(caller, "recursion", "", found, "no recursion", "V3")
                elif callee not in done:
                    active.add(callee)
                    stack.append((callee, _calls(callee)))


def _calls(computation: Computation) -> Iterator[Instruction]:
    return (i for i in computation.instructions if any(True for _ in i.called_computations()))
