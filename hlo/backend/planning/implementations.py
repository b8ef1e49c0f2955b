"""Implementations: for every instruction that runs, the kernels that compute it or a host call.

    Schedule, Target, makers --implementations--> instruction -> KernelSequence | HostCall

The functions of the instruction's family are asked in order. Where all decline (return None or
raise "unsupported") the instruction is left to the reference's evaluate, called back from the run.
For instructions that are alike but for names the functions are asked once. They hear which operands
are constants, whose rearrangements need not wait for the run, and which the loop around leaves
alone, whose rearrangements need not wait for the iteration (hoisting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.call_budget import MOST_COPIED, copied_size
from hlo.analysis.fingerprint import Fingerprints
from hlo.analysis.fusibility import contraction_of, is_padded
from hlo.analysis.leaves import leaf_count
from hlo.analysis.legality import CONTROL, SOURCES, is_forwarding
from hlo.backend.ir.kernel import (
    NONE_KNOWN,
    Kernel,
    KernelCall,
    KernelSequence,
    KnownLeaves,
    Prepared,
)
from hlo.backend.isa.target import Made, Target
from hlo.backend.loops.expression import waits_in
from hlo.backend.planning.schedule import Schedule, Source
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.progress import tell

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

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        return ()


Implementation = KernelSequence | HostCall
Implementations = Mapping[Instruction, Implementation]
KernelMaker = Callable[[Instruction, Target], Kernel | KernelSequence | None]

KernelMakers = Callable[[Instruction, KnownLeaves], tuple[KernelMaker, ...]]


def implementations(
    schedule: Schedule,
    target: Target,
    makers: KernelMakers,
    knowledge: Callable[[Instruction], KnownLeaves] | None = None,
    told: Callable[[Instruction, KernelSequence], None] | None = None,
    *,
    is_repeated: bool = False,
) -> Implementations:
    """An implementation for every scheduled instruction that needs code of its own.

    knowledge: of which operands something is known; None: what the schedule says. told: hears of
    each instruction that no loop repeats, and its kernels, as soon as they are there. is_repeated:
    whether a run runs all of it again and again, as it does a block. The blocks of a program share
    what was made for any of them.
    """
    found: dict[Instruction, Implementation] = {}
    made = target.made or Made()
    target = replace(target, made=made)
    known: dict[object, Implementation] = made.kernels
    fingerprints: Fingerprints = made.numbers or Fingerprints()
    made.numbers = fingerprints
    of = knowledge or _Knowledge(schedule).of
    total = sum(map(len, schedule.orders.values()))
    for computation, order in schedule.orders.items():
        hears = None if schedule.is_repeated(computation) else told
        once = not is_repeated and schedule.runs_once(computation)
        own = replace(target, runs_once=once)
        for instruction in order:
            tell("kernels", len(found), total)
            opcode = instruction.opcode
            if opcode in SOURCES or opcode in CONTROL or is_forwarding(instruction):
                continue
            leaves = of(instruction)
            tails = _tails(instruction, target)
            key = fingerprints.of(instruction), leaves, target.is_bounded, once, tails
            implementation = known.get(key)
            if implementation is None:
                implementation = implement(instruction, own, makers, leaves)
                known[key] = implementation
            found[instruction] = implementation
            if hears is not None and isinstance(implementation, KernelSequence):
                hears(instruction, implementation)
    return found


def _tails(instruction: Instruction, target: Target) -> tuple[bool, ...]:
    """Of each operand whether it is likely to have subnormal elements."""
    around = instruction.computation
    if around is None or not waits_in(around, target):
        return ()
    from hlo.analysis.tails import tails  # few programs underflow

    found = tails(around)
    return tuple((o, ()) in found for o in instruction.operands) if found else ()


def implement(
    instruction: Instruction,
    target: Target,
    makers: KernelMakers,
    known: KnownLeaves = NONE_KNOWN,
) -> Implementation:
    """The first answer of its makers, else a host call.

    What would hold too many copies of what it calls is a host call too.
    """
    if copied_size(instruction) > MOST_COPIED:
        return HostCall()
    for maker in makers(instruction, known):
        try:
            made = maker(instruction, target)
        except HloError as error:
            if error.code != "unsupported":
                raise
            continue
        if made is not None:
            return as_sequence(instruction, made)
    return HostCall()


def operand_origins(schedule: Schedule, instruction: Instruction) -> list[Source | None]:
    """What defines each operand leaf, seen out of loops."""
    leaves = ((o, leaf) for o in instruction.operands for leaf in range(leaf_count(o.shape)))
    return [schedule.origin(operand, leaf) for operand, leaf in leaves]


class _Knowledge:
    """Which operands of a program's instructions are constants, each looked at once, or kept by the
    loop around."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._subnormal: dict[Literal, bool] = {}

    def of(self, instruction: Instruction) -> KnownLeaves:
        """The known operand leaves of an instruction."""
        found = {
            n: source[0]
            for n, source in enumerate(operand_origins(self.schedule, instruction))
            if source is not None and source[0].opcode == "constant" and source[0].shape.is_array
        }
        leaves = ((o, leaf) for o in instruction.operands for leaf in range(leaf_count(o.shape)))
        is_repeated = self.schedule.is_repeated(instruction.computation)
        kept = frozenset(
            n
            for n, (operand, leaf) in enumerate(leaves)
            if is_repeated and (n in found or self.schedule.is_kept(operand, leaf))
        )
        if not found and not kept:
            return NONE_KNOWN
        subnormal = frozenset(n for n, constant in found.items() if self._is_subnormal(constant))
        finite: frozenset[int] = frozenset()
        contraction = contraction_of(instruction) or instruction
        if contraction.opcode == "convolution" and is_padded(contraction):
            finite = frozenset(n for n, constant in found.items() if _is_finite(constant))
        return KnownLeaves(frozenset(found), subnormal, kept, finite)

    def _is_subnormal(self, constant: Instruction) -> bool:
        """Whether a constant holds subnormal numbers of bf16."""
        literal = constant.attributes["literal"]
        assert isinstance(literal, Literal), "a constant holds a literal"
        if literal.shape.is_tuple or literal.shape.dtype is not dt.BF16 or literal.value is None:
            return False
        if literal not in self._subnormal:
            codes = literal.array.view(np.uint16) & 0x7FFF
            self._subnormal[literal] = bool(((codes > 0) & (codes < 0x80)).any())
        return self._subnormal[literal]


def _is_finite(constant: Instruction) -> bool:
    """Whether a constant holds no infinity and no NaN."""
    literal = constant.attributes["literal"]
    assert isinstance(literal, Literal), "a constant holds a literal"
    if literal.shape.is_tuple or literal.value is None:
        return False
    if not literal.shape.dtype.component.is_float:
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(literal.array).all())


def as_sequence(instruction: Instruction, made: Kernel | KernelSequence) -> KernelSequence:
    """A lone kernel as the sequence of one call on all operand and result leaves."""
    if isinstance(made, KernelSequence):
        return made
    count = sum(leaf_count(o.shape) for o in instruction.operands) + leaf_count(instruction.shape)
    call = KernelCall(made, tuple(range(count)))
    pairs = made.in_place, made.must_alias
    return KernelSequence((call,), (), *pairs, is_bounded=made.is_bounded)
