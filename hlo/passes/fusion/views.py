"""Views: what a kernel reads where it lies in memory, as fast as a copy of it.

    slice(parameter), reshape(parameter)         an address
    dynamic-slice(x, i), a run of x              an address that the run computes

A copy of such takes a kernel, and its readers read no less. Does not know: what is worth computing
again.
"""

from __future__ import annotations

from itertools import islice
from math import prod

from hlo.analysis.fusibility import is_fusible
from hlo.ir.instruction import Instruction
from hlo.machine import COMMON_LANES
from hlo.ops.table import Trait, has_trait, opcodes

_MOST_SEARCHED = 16
_MANY_PARTS = 16
_VIEWS = opcodes(Trait.REGROUPS | Trait.CUTS)  # Ops that compute an address only.


def views_memory(producer: Instruction) -> bool:
    """Whether it is a part of an array that is in memory anyway, to be read where it lies.

    Which of the arrays that fusions make are in memory is what is being planned: none counts, so
    that what is fused already is judged as it was before; but for those of which so many parts are
    taken that to compute each of them again is more than to keep one array.
    """
    top = producer
    for _ in range(_MOST_SEARCHED):
        if top.opcode not in _VIEWS or not is_fusible(top):
            break
        (top,) = top.operands
    maker = top.operands[0] if top.opcode == "get-tuple-element" else top
    is_kept = top.opcode in ("parameter", "constant") or not is_fusible(top) or _is_cut_up(top)
    return top is not producer and is_kept and maker.opcode != "fusion"


def _is_cut_up(value: Instruction) -> bool:
    """Whether many parts of an array are read; of its users the first ones are asked."""
    first = islice(value.users, 2 * _MANY_PARTS)
    return sum(has_trait(user, Trait.CUTS) for user in first) >= _MANY_PARTS


def is_kept_row(producer: Instruction) -> bool:
    """Whether it is a run of an array in memory that nothing changes, as a row that a loop's trip
    takes of noise or data: several kernels read it there. With a copy, a Gibbs sampler of spins and
    a Monte Carlo simulation take 1.5 times as long (Zen 5).
    """
    if producer.opcode != "dynamic-slice" or producer.shape.size < COMMON_LANES:
        return False
    x = producer.operands[0]
    if x.opcode not in ("parameter", "get-tuple-element") or any(map(_changes, x.users)):
        return False
    cut = [own != whole for own, whole in zip(producer.shape.dims, x.shape.dims, strict=True)]
    last = max((d for d, is_cut in enumerate(cut) if is_cut), default=0)
    return prod(producer.shape.dims[:last]) == 1


def _changes(user: Instruction) -> bool:
    """Whether an array's user may do more than read a part of it, or hand it on."""
    return user.opcode not in ("dynamic-slice", "tuple")
