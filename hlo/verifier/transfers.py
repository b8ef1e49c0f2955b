"""Sends and receives: each has its done, on its own channel."""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import compatible, shape_text
from hlo.verifier.report import Report

DONES = {"send": "send-done", "recv": "recv-done"}
STARTS = {done: start for start, done in DONES.items()}


def check(module: Module, report: Report) -> None:
    """V57."""
    host: dict[tuple[str, object], Instruction] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in DONES:
                _check_start(instruction, report)
                if instruction.attributes.get("is_host_transfer"):
                    _check_host(instruction, host, report)
            elif instruction.opcode in STARTS:
                _check_done(instruction, report)


def _check_start(start: Instruction, report: Report) -> None:
    if start.attributes.get("channel_id") is None:
        report.broken(start, "attribute-missing", "", "no channel_id", "it to be given", "V57")
    if start.is_root and not start.users and not in_entry(start):
        return  # the whole of an asynchronous computation
    if len(start.users) != 1:
        found = f"used by {', '.join(u.name for u in start.users) or 'nothing'}"
        report.broken(start, "async", "", found, f"one user, its {DONES[start.opcode]}", "V57")


def in_entry(instruction: Instruction) -> bool:
    """Whether nothing calls what the instruction stands in."""
    computation = instruction.computation
    return (
        computation is not None
        and computation.module is not None
        and (computation.module.entry is computation)
    )


def _check_done(done: Instruction, report: Report) -> None:
    for start in done.operands[:1]:
        if start.opcode not in DONES:
            continue  # carried by a loop
        if start.opcode != STARTS[done.opcode]:
            found, expected = f"{start.name}, {start.opcode}", STARTS[done.opcode]
            report.broken(done, "async", "operand 0", found, expected, "V57")
        for name in ("channel_id", "is_host_transfer"):
            mine, other = done.attributes.get(name), start.attributes.get(name)
            if (mine or None) != (other or None):
                at = name if name in done.attributes else ""
                found, expected = f"{mine or 'not given'}", f"{other}, as {start.name} has"
                report.broken(done, "channel", at, found, expected, "V57")


def _check_host(
    start: Instruction, seen: dict[tuple[str, object], Instruction], report: Report
) -> None:
    """Transfers to the host on one channel carry one shape."""
    first = seen.setdefault((start.opcode, start.attributes.get("channel_id")), start)
    if not compatible(first.shape, start.shape):
        found = shape_text(start.shape, layout=False)
        expected = f"{shape_text(first.shape, layout=False)}, as {first.name} on this channel"
        report.broken(start, "channel", "result", found, expected, "V57")
