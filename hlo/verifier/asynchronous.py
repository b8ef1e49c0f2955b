"""Asynchronous chains: every start has its one done, and nothing else touches what is between."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import OPS, Trait
from hlo.verifier.chains import CARRYING, Callers, callers, check_carried, is_whole
from hlo.verifier.report import Report

# Ops with a start and a done of their own.
DONES = {o: row.done for o, row in OPS.items() if row.done and row.traits & Trait.COLLECTIVE}
DONES["copy-start"] = OPS["copy-start"].done
STARTS = {done: start for start, done in DONES.items()}
CHAIN = frozenset({"async-start", "async-update"})
LINKS = frozenset({"async-update", "async-done"})
GROUP = "_collectives_group"


def check(module: Module, report: Report) -> None:
    """V10, V46, V50 to V55."""
    called: dict[Computation, list[Instruction]] = {}
    known = callers(module)
    met: set[Instruction] = set()
    links: list[Instruction] = []
    for computation in module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in DONES:
                met.update(_check_start(instruction, known, report))
            elif opcode in STARTS or opcode in LINKS:
                links.append(instruction)
            elif opcode == "async-start":
                met.update(_check_chain(instruction, known, report))
                for callee in instruction.called_computations():
                    called.setdefault(callee, []).append(instruction)
    for link in links:
        _check_link(link, met, report)
    _check_other_callers(module, called, report)
    for callee, starts in called.items():
        _check_called(callee, starts, report)


def _check_other_callers(
    module: Module, called: dict[Computation, list[Instruction]], report: Report
) -> None:
    """V10: what an async-start calls is called by its chain alone."""
    if not called:
        return
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "async-start" or instruction.opcode in LINKS:
                continue
            for callee in instruction.called_computations():
                if callee in called:
                    found = f"{callee.name}, which {called[callee][0].name} calls too"
                    report.broken(instruction, "async", "", found, "another computation", "V10")


def _check_start(start: Instruction, known: Callers, report: Report) -> list[Instruction]:
    """V55: one user, the done; or a way to it. The dones that it meets."""
    done = DONES[start.opcode]
    users = list(start.users)
    if is_whole(start, known):
        return []
    if start.is_root or any(u.opcode in CARRYING for u in users):
        return check_carried(start, frozenset({done}), "V55", known, report)
    if len(users) != 1 or users[0].opcode != done:
        found = f"used by {', '.join(u.name for u in users) or 'nothing'}"
        report.broken(start, "async", "", found, f"one user, its {done}", "V55")
    return [u for u in users if u.opcode == done]


def _check_link(link: Instruction, met: set[Instruction], report: Report) -> None:
    """V51, V55: its operand is a start or update, or comes from one."""
    for operand in link.operands[:1]:
        expected = STARTS.get(link.opcode, "an async-start or async-update")
        starts = CHAIN if link.opcode in LINKS else {expected}
        carried = operand.opcode in CARRYING and (link in met or link.opcode == "async-update")
        if operand.opcode not in starts and not carried:
            found = f"{operand.name}, {operand.opcode}"
            label = "V51" if link.opcode in LINKS else "V55"
            report.broken(link, "async", "operand 0", found, expected, label)


def _check_chain(start: Instruction, known: Callers, report: Report) -> list[Instruction]:
    """V52: from the start on, each link has one follower, up to one done."""
    link = start
    while True:
        users = list(link.users)
        if is_whole(link, known):
            return []
        if any(u.opcode in CARRYING for u in users):
            return check_carried(start, frozenset({"async-done"}), "V52", known, report)
        wrong = [u for u in users if u.opcode not in LINKS]
        if wrong or len(users) != 1:
            found = f"used by {', '.join(u.name for u in users) or 'nothing'}"
            report.broken(link, "async", "", found, "one async-update or async-done", "V52")
            return []
        link = users[0]
        if link.opcode == "async-done":
            return [link]


def _check_called(callee: Computation, starts: list[Instruction], report: Report) -> None:
    if len(starts) > 1:
        found = f"{callee.name}, which {starts[0].name} calls too"
        report.broken(starts[1], "async", "calls", found, "a computation of its own", "V51")
    for start in starts:
        thread = start.attributes.get("async_execution_thread", "main")
        if thread != callee.execution_thread:
            found = f"{thread} for {callee.name} on thread {callee.execution_thread}"
            at = "async_execution_thread" if "async_execution_thread" in start.attributes else ""
            report.broken(start, "async", at, found, "the same thread", "V46")
    _check_body(callee, starts[0], report)


def _check_body(callee: Computation, start: Instruction, report: Report) -> None:
    """V53: on the main thread one operation, unless it is a group of collectives."""
    given = dict(start.attributes.get("frontend_attributes", ()))  # type: ignore[call-overload]  # pairs
    if callee.execution_thread != "main" or GROUP in given:
        return
    for instruction in callee.instructions:
        if instruction.opcode != "parameter" and not instruction.is_root:
            found = f"{callee.name} with {instruction.name} beside its root"
            report.broken(start, "async", "calls", found, "parameters and a root only", "V53")
            return
