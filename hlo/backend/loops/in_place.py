"""In place: which operands a kernel may overwrite with its results.

A result may lie over an operand when each of the operand's elements is read for the last time
before the result's element at that place is written: read at the very same position, or by a
reduction over the nest's own rows, made once for a row, before its stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.leaves import leaf_count
from hlo.backend.loops.domain import Domain
from hlo.backend.loops.expression import Expression, Leaf
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.outputs import Output
from hlo.backend.loops.trace import Read
from hlo.indexing.affine import Expr, Variable
from hlo.ir.instruction import Instruction


def in_place_pairs(
    expression: Expression,
    outputs: list[Output],
    schedules: list[NestSchedule],
    operand_leaves: int,
) -> frozenset[tuple[int, int]]:
    """(operand leaf, result leaf) pairs."""
    leaves = expression.leaves.values()
    operands = {leaf.number: leaf for leaf in leaves if 0 <= leaf.number < operand_leaves}
    return frozenset(
        (number, output.leaf)
        for output in outputs
        for number, leaf in operands.items()
        if output.alias is None
        and _same_size(leaf, output.array)
        and all(_is_safe(schedule, output, number) for schedule in schedules)
    )


def with_repeats(
    pairs: frozenset[tuple[int, int]], instruction: Instruction
) -> frozenset[tuple[int, int]]:
    """The pairs, and those of leaves that name an operand again: the kernel reads the first only.

    A fusion's parameters are read each for itself, whatever they are bound to.
    """
    if instruction.opcode == "fusion":
        return pairs
    first: dict[tuple[Instruction, int], int] = {}
    leaves = [(o, n) for o in instruction.operands for n in range(leaf_count(o.shape))]
    named = [first.setdefault(leaf, number) for number, leaf in enumerate(leaves)]
    return frozenset((number, r) for o, r in pairs for number, f in enumerate(named) if f == o)


def _same_size(a: Leaf, b: Leaf) -> bool:
    return a.size == b.size and a.dtype.item_bytes == b.dtype.item_bytes


def _is_safe(schedule: NestSchedule, output: Output, operand: int) -> bool:
    """Whether the nest reads the operand only where, and before, it writes the output."""
    domain = schedule.domain
    reads = [r for r in domain.trace.reads if r.leaf == operand]
    if not reads:
        return True
    if output not in domain.outputs or schedule.tile is not None:
        return False
    place = output.place(domain.own_index)
    return all(_is_own(schedule, read, place) for read in reads)


def read_apart(
    expression: Expression, outputs: Sequence[Output], domains: Sequence[Domain]
) -> frozenset[int]:
    """Leaves over which no result may lie: none has their size, or a domain reads an element
    elsewhere than where it writes.
    """
    leaves = expression.leaves.values()
    found = {k.number for k in leaves if not any(_same_size(k, o.array) for o in outputs)}
    for domain in domains:
        places = [o.place(domain.own_index) for o in domain.outputs]
        reads = (r for r in domain.trace.reads if not r.reduced and r.leaf not in found)
        found.update(r.leaf for r in reads if r.position not in places)
    return frozenset(found)


def _is_own(schedule: NestSchedule, read: Read, place: Expr) -> bool:
    if read.position == place:
        return True
    domain, is_strip = schedule.domain, bool(schedule.inner)
    if not read.reduced or (schedule.block and not is_strip) or domain.outer:
        return False
    fixed = [v for v in domain.variables if read.position.depends_on(v)]
    count = len(fixed)
    loops = len(domain.extents) - (schedule.vector is not None and not is_strip)
    if tuple(fixed) != domain.variables[:count] or not schedule.prefix <= count <= loops:
        return False
    later = domain.variables[count:]
    if any(at.depends_on(v) for at in read.at for v in later):
        return False  # the reduction is made again for each element of a row
    if any(read.position.coefficient(v) != place.coefficient(v) for v in fixed):
        return False
    rest = read.position - _sum_of(place, fixed)
    inner = place - _sum_of(place, fixed)
    return inner.low <= rest.low and rest.high <= inner.high


def _sum_of(place: Expr, variables: list[Variable]) -> Expr:
    """The terms of some variables."""
    return Expr({v: k for v, k in place.terms.items() if v in variables}, 0)
