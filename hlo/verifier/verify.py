"""Verification: a module, and every rule that it breaks.

    module -> structure -> instructions, calls, chains, collectives, shardings, header -> errors

Constraints C1.. are the ops' own (their docstrings); V1.. are those of
docs/control.md 6. O(module), without recursion.
"""

from __future__ import annotations

from hlo.errors import HloErrors
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes
from hlo.verifier import buffers, calls, header, instructions, layouts, structure
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
    _check_devices(module, report)
    header.check(module, report, layout_sensitive=layout_sensitive)


_COLLECTIVES, _TRANSFERS = opcodes(Trait.COLLECTIVE), opcodes(Trait.TRANSFERS)
_ASYNCHRONOUS = ("-start", "-update", "-done")  # how the opcodes of chains end


def _check_devices(module: Module, report: Report) -> None:
    """What several devices, or several threads of a device, do together; most programs have none
    of it, and import nothing for it.
    """
    everything = [i for c in module.computations for i in c.instructions]
    present = {i.opcode for i in everything}
    if any(opcode.endswith(_ASYNCHRONOUS) for opcode in present):
        from hlo.verifier import asynchronous

        asynchronous.check(module, report)
    if any(opcode in _TRANSFERS for opcode in present):
        from hlo.verifier import transfers

        transfers.check(module, report)
    if any(opcode in _COLLECTIVES for opcode in present):
        from hlo.verifier import collectives

        collectives.check(module, report)
    if any("sharding" in i.attributes for i in everything):
        from hlo.verifier import shardings

        shardings.check(module, report)
