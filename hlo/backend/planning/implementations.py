"""Implementations: for every instruction that runs, the kernels that compute it or a host call.

    Schedule, Target, makers --implementations--> instruction -> KernelSequence | HostCall

The functions of the instruction's family are asked in order. Where all decline (return None or
raise "unsupported") the instruction is left to the reference's evaluate, called back from the run.
For instructions that are alike but for names the functions are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from hlo.analysis.call_budget import MOST_COPIED, copied_size
from hlo.analysis.fingerprint import Fingerprints
from hlo.analysis.leaves import leaf_count
from hlo.analysis.legality import CONTROL, SOURCES, is_forwarding
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.planning.schedule import Schedule
from hlo.errors import HloError
from hlo.ir.instruction import Instruction

Pairs = frozenset[tuple[int, int]]
_NO_PAIRS: Pairs = frozenset()


class HostCall(Struct, frozen=True):
    """The reference's evaluate, called back from native code; correct, and slow."""

    temporaries: tuple[int, ...] = ()
    in_place: Pairs = _NO_PAIRS
    must_alias: Pairs = _NO_PAIRS

    @property
    def pairs(self) -> Pairs:
        return _NO_PAIRS


Implementation = KernelSequence | HostCall
Implementations = Mapping[Instruction, Implementation]
KernelMaker = Callable[[Instruction, Target], Kernel | KernelSequence | None]

KernelMakers = Callable[[Instruction], tuple[KernelMaker, ...]]


def implementations(schedule: Schedule, target: Target, makers: KernelMakers) -> Implementations:
    """An implementation for every scheduled instruction that needs code of its own."""
    found: dict[Instruction, Implementation] = {}
    known: dict[object, Implementation] = {}
    fingerprints = Fingerprints()
    for order in schedule.orders.values():
        for instruction in order:
            opcode = instruction.opcode
            if opcode in SOURCES or opcode in CONTROL or is_forwarding(instruction):
                continue
            key = fingerprints.of(instruction)
            implementation = known.get(key)
            if implementation is None:
                implementation = implement(instruction, target, makers)
                known[key] = implementation
            found[instruction] = implementation
    return found


def implement(instruction: Instruction, target: Target, makers: KernelMakers) -> Implementation:
    """The first answer of its makers, else a host call.

    What would hold too many copies of what it calls is a host call too.
    """
    if copied_size(instruction) > MOST_COPIED:
        return HostCall()
    for maker in makers(instruction):
        try:
            made = maker(instruction, target)
        except HloError as error:
            if error.code != "unsupported":
                raise
            continue
        if made is not None:
            return as_sequence(instruction, made)
    return HostCall()


def as_sequence(instruction: Instruction, made: Kernel | KernelSequence) -> KernelSequence:
    """A lone kernel as the sequence of one call on all operand and result leaves."""
    if isinstance(made, KernelSequence):
        return made
    count = sum(leaf_count(o.shape) for o in instruction.operands) + leaf_count(instruction.shape)
    call = KernelCall(made, tuple(range(count)))
    return KernelSequence((call,), (), made.in_place, made.must_alias)
