"""Sends and receives: each has its done, on its own channel."""

from __future__ import annotations

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import compatible, shape_text
from hlo.ops.host import PAIRS, source_target_pairs
from hlo.ops.table import OPS, Trait, has_trait
from hlo.verifier.chains import CARRYING, Callers, callers, check_carried, is_whole
from hlo.verifier.report import Report

DONES = {o: row.done for o, row in OPS.items() if row.done and row.traits & Trait.TRANSFERS}
STARTS = {done: start for start, done in DONES.items()}
PIPELINE = "_xla_send_recv_pipeline"  # streams of their own: no order is asked of them


def check(module: Module, report: Report) -> None:
    """V57, V58."""
    host: dict[object, Instruction] = {}
    known = callers(module)
    started: dict[Instruction, list[Instruction]] = {}
    dones: list[Instruction] = []
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in DONES:
                for done in _check_start(instruction, known, report):
                    started.setdefault(done, []).append(instruction)
                if instruction.attributes.get("is_host_transfer"):
                    _check_host(instruction, host, report)
            elif instruction.opcode in STARTS:
                dones.append(instruction)
        if module.is_scheduled:
            _check_order(computation, report)
    for done in dones:
        _check_done(done, started.get(done, []), report)


def _check_order(computation: Computation, report: Report) -> None:
    """V58: in a schedule, a send between devices is matched before the next exchange starts."""
    pending: Instruction | None = None
    for instruction in computation.instructions:
        given = _frontend(instruction)
        if instruction.opcode in DONES and PAIRS in given and PIPELINE not in given:
            fault = _pairs_fault(source_target_pairs(given) or [])
            if fault:
                at = "frontend_attributes"
                report.broken(instruction, "channel", at, given[PAIRS], fault, "V58")
            if pending is None:
                pending = instruction
                continue
            if pending.opcode == instruction.opcode or _frontend(pending)[PAIRS] != given[PAIRS]:
                found = f"after {pending.name}, which waits for another peer"
                expected = f"the peer of {pending.name}, of equal pairs"
                report.broken(instruction, "channel", "", found, expected, "V58")
            pending = None
        elif pending is not None and has_trait(instruction, Trait.COLLECTIVE):
            found = f"between {pending.name} and its peer"
            report.broken(instruction, "channel", "", found, "a collective before or after", "V58")
    if pending is not None:
        found, expected = "without a peer in the schedule", "a send and a recv of equal pairs"
        report.broken(pending, "channel", "", found, expected, "V58")


def _frontend(instruction: Instruction) -> dict[str, str]:
    return dict(instruction.attributes.get("frontend_attributes", ()))  # type: ignore[call-overload,no-any-return]  # pairs


def _pairs_fault(pairs: list[tuple[int, int]]) -> str:
    """What is expected of a pair list instead; empty where it is one that cannot block."""
    targets = dict(pairs)
    if len(targets) != len(pairs) or len(set(targets.values())) != len(pairs):
        return "each source and each target once"
    for start in targets:
        at: int | None = targets[start]
        while at is not None and at != start:
            at = targets.get(at)
        if at == start:
            return "no cycle"
    return ""


def _check_start(start: Instruction, known: Callers, report: Report) -> list[Instruction]:
    """A channel, and one user that is the done, or a way to it. The dones that it meets."""
    if start.attributes.get("channel_id") is None:
        report.broken(start, "attribute-missing", "", "no channel_id", "it to be given", "V57")
    if is_whole(start, known):
        return []
    users, done = list(start.users), DONES[start.opcode]
    if start.is_root or any(u.opcode in CARRYING for u in users):
        return check_carried(start, frozenset({done}), "V57", known, report)
    if len(users) != 1:
        found = f"used by {', '.join(u.name for u in users) or 'nothing'}"
        report.broken(start, "async", "", found, f"one user, its {done}", "V57")
    return [u for u in users if u.opcode == done]


def _check_done(done: Instruction, starts: list[Instruction], report: Report) -> None:
    """Its operand is, or comes from, a start of its kind; channels and peers agree."""
    for operand in done.operands[:1]:
        carried = operand.opcode in CARRYING and starts
        if operand.opcode != STARTS[done.opcode] and not carried:
            found, expected = f"{operand.name}, {operand.opcode}", STARTS[done.opcode]
            report.broken(done, "async", "operand 0", found, expected, "V57")
    for start in starts:
        for name in ("channel_id", "is_host_transfer"):
            mine, other = done.attributes.get(name), start.attributes.get(name)
            if (mine or None) != (other or None):
                at = name if name in done.attributes else ""
                found, expected = f"{mine or 'not given'}", f"{other}, as {start.name} has"
                report.broken(done, "channel", at, found, expected, "V57")


def _check_host(start: Instruction, seen: dict[object, Instruction], report: Report) -> None:
    """Transfers to the host on one channel are alike but for their operands' values."""
    first = seen.setdefault(start.attributes.get("channel_id"), start)
    if first.opcode != start.opcode:
        expected = f"{first.opcode}, as {first.name} on this channel"
        report.broken(start, "channel", "", start.opcode, expected, "V57")
    elif not compatible(first.shape, start.shape):
        found = shape_text(start.shape, layout=False)
        expected = f"{shape_text(first.shape, layout=False)}, as {first.name} on this channel"
        report.broken(start, "channel", "result", found, expected, "V57")
