"""Verification: a module, and every rule that it breaks.

    module -> structure -> instructions, calls, chains, collectives, shardings, header -> errors

Constraints C1.. are the ops' own (their docstrings); V1.. are those of
docs/control.md 6. O(module), without recursion.
"""

from __future__ import annotations

from hlo.errors import HloErrors
from hlo.ir.module import Module
from hlo.verifier import (
    asynchronous,
    buffers,
    calls,
    collectives,
    header,
    instructions,
    layouts,
    shardings,
    structure,
    transfers,
)
from hlo.verifier.report import Locator, Report, whole_instruction


def verify(
    module: Module,
    layout_sensitive: bool = False,  # noqa: FBT001, FBT002  # the public name's form is fixed
    *,
    place: Locator = whole_instruction,
) -> None:
    """None, or raises HloErrors with every problem found.

    layout_sensitive: layouts must agree too, as after layout assignment. place: finds the span of
    the part of an instruction that a role such as "operand 1" names.
    """
    report = Report(place)
    structure.check(module, report)
    if (
        not report.errors
    ):  # what follows relies on edges that lead somewhere, and on an end of calls
        _check_meaning(module, report, layout_sensitive=layout_sensitive)
    if report.errors:
        raise HloErrors(report.errors)


def _check_meaning(module: Module, report: Report, *, layout_sensitive: bool) -> None:
    signatures = instructions.Signatures()
    for computation in module.computations:
        for instruction in computation.instructions:
            instructions.check(instruction, signatures, report)
            layouts.check(instruction, report)
            if layout_sensitive:
                layouts.check_sensitive(instruction, report)
    calls.check(module, report)
    buffers.check(module, report)
    asynchronous.check(module, report)
    transfers.check(module, report)
    collectives.check(module, report)
    shardings.check(module, report)
    header.check(module, report, layout_sensitive=layout_sensitive)
