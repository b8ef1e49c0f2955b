"""Implementations: for every instruction that runs, the kernels that compute it or a host call.

    Schedule, Target --implementations--> instruction -> KernelSequence | HostCall

Asks the family that legality names; one that declines (returns None or raises "unsupported")
leaves the instruction to the reference's evaluate, called back from the run. Instructions that are
alike but for names are asked for once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from msgspec import Struct

from hlo.analysis.call_budget import MOST_COPIED, copied_size
from hlo.analysis.fingerprint import Fingerprints
from hlo.analysis.leaves import leaf_count
from hlo.analysis.legality import CONTROL, SOURCES, is_forwarding, way
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.isa.target import Target
from hlo.backend.planning.schedule import Schedule
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ops.table import Way

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
Family = Callable[[Instruction, Target], Kernel | KernelSequence | None]

# Where each way's family function lives: imported when first needed, so that a program that sorts
# nothing does not load the sorting kernels.
FAMILIES: dict[Way, tuple[tuple[str, str], ...]] = {
    Way.STAGED: (("kernels.fused_loops", "fused_kernel"),),
    Way.JOINED: (("kernels.joined", "joined_kernel"),),
    Way.CONTRACTION: (("kernels.contraction.contraction", "contraction_kernels"),),
    Way.SORT: (("kernels.sorting.sort", "sort_kernel"),),
    Way.SCATTER: (
        ("kernels.scatter.wide", "wide_scatter_kernels"),
        ("kernels.scatter.scatter", "scatter_kernel"),
    ),
    Way.WINDOW: (
        ("kernels.scan", "scan_kernel"),
        ("kernels.scatter.wide", "wide_select_and_scatter_kernels"),
        ("kernels.scatter.select_scatter", "select_and_scatter_kernel"),
        ("kernels.fused_loops", "fused_kernel"),
    ),
    Way.FACTOR: (("kernels.linear_algebra.matrix_calls", "matrix_kernel"),),
    Way.FOURIER: (("kernels.fourier.fourier", "fourier_kernels"),),
    Way.BLOCKED: (("planning.blocks", "blocked_kernel"), ("kernels.fused_loops", "fused_kernel")),
    Way.HOST: (),
}


def implementations(
    schedule: Schedule, target: Target, families: Mapping[Way, tuple[Family, ...]] | None = None
) -> Implementations:
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
                implementation = implement(instruction, target, families)
                known[key] = implementation
            found[instruction] = implementation
    return found


def implement(
    instruction: Instruction,
    target: Target,
    families: Mapping[Way, tuple[Family, ...]] | None = None,
) -> Implementation:
    """The first family's answer, else a host call.

    So is what would hold too many copies of what it calls.
    """
    if copied_size(instruction) > MOST_COPIED:
        return HostCall()
    chosen = way(instruction)
    asked = family_functions(chosen) if families is None else families.get(chosen, ())
    for family in asked:
        try:
            made = family(instruction, target)
        except HloError as error:
            if error.code != "unsupported":
                raise
            continue
        if made is not None:
            return as_sequence(instruction, made)
    return HostCall()


def family_functions(chosen: Way) -> tuple[Family, ...]:
    """The functions of a way's families."""
    return tuple(
        getattr(import_module(f"hlo.backend.{module}"), function)
        for module, function in FAMILIES[chosen]
    )


def as_sequence(instruction: Instruction, made: Kernel | KernelSequence) -> KernelSequence:
    """A lone kernel as the sequence of one call on all operand and result leaves."""
    if isinstance(made, KernelSequence):
        return made
    count = sum(leaf_count(o.shape) for o in instruction.operands) + leaf_count(instruction.shape)
    call = KernelCall(made, tuple(range(count)))
    return KernelSequence((call,), (), made.in_place, made.must_alias)
