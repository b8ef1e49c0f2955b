"""Asynchronous chains: every start has its one done, and nothing else touches what is between."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.verifier.report import Report
from hlo.verifier.transfers import in_entry

# Ops with a start and a done of their own.
DONES = {
    "all-gather-start": "all-gather-done",
    "all-reduce-start": "all-reduce-done",
    "collective-permute-start": "collective-permute-done",
    "copy-start": "copy-done",
}
STARTS = {done: start for start, done in DONES.items()}
CHAIN = frozenset({"async-start", "async-update"})
LINKS = frozenset({"async-update", "async-done"})
# A chain may pass through these on its way (2026 form).
CARRYING = frozenset({
    "tuple", "get-tuple-element", "while", "call", "conditional", "opt-barrier", "domain", "copy",
    "parameter", "custom-call",
})  # fmt: skip
GROUP = "_collectives_group"


def check(module: Module, report: Report) -> None:
    """V10, V46, V50 to V55."""
    called: dict[Computation, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            opcode = instruction.opcode
            if opcode in DONES:
                _check_start(instruction, report)
            elif opcode in STARTS:
                _check_done(instruction, report)
            elif opcode == "async-start":
                _check_chain(instruction, report)
                for callee in instruction.called_computations():
                    called.setdefault(callee, []).append(instruction)
            elif opcode in LINKS:
                _check_link(instruction, report)
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


def _check_start(start: Instruction, report: Report) -> None:
    done = DONES[start.opcode]
    users = list(start.users)
    carried = len(users) == 1 and users[0].opcode in CARRYING
    if (start.is_root and not users and not in_entry(start)) or carried:
        return
    if len(users) != 1 or users[0].opcode != done:
        found = f"used by {', '.join(u.name for u in users) or 'nothing'}"
        report.broken(start, "async", "", found, f"one user, its {done}", "V55")


def _check_done(done: Instruction, report: Report) -> None:
    start = STARTS[done.opcode]
    for operand in done.operands[:1]:
        if operand.opcode != start and operand.opcode not in CARRYING:
            found = f"{operand.name}, {operand.opcode}"
            report.broken(done, "async", "operand 0", found, start, "V55")


def _check_link(link: Instruction, report: Report) -> None:
    for operand in link.operands[:1]:
        if operand.opcode not in CHAIN and operand.opcode not in CARRYING:
            found = f"{operand.name}, {operand.opcode}"
            expected = "an async-start or async-update"
            report.broken(link, "async", "operand 0", found, expected, "V51")


def _check_chain(start: Instruction, report: Report) -> None:
    """V52: from the start on, each link has one follower, up to one done."""
    link = start
    while True:
        users = list(link.users)
        if (link.is_root and not users and not in_entry(link)) or any(
            u.opcode in CARRYING for u in users
        ):
            return
        wrong = [u for u in users if u.opcode not in LINKS]
        if wrong or len(users) != 1:
            found = f"used by {', '.join(u.name for u in users) or 'nothing'}"
            report.broken(link, "async", "", found, "one async-update or async-done", "V52")
            return
        link = users[0]
        if link.opcode == "async-done":
            return


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
