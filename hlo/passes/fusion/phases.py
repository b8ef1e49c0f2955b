"""Phases: rows of an array that are taken in turns from several, as pads between them add up.

    add(pad(even, 0_0_1), pad(odd, 1_0_1)):       even[0], odd[0], even[1], odd[1], ...
    select(pad(true, 0_0_1), pad(even, 0_0_1), x): even[0], x[1], even[1], x[3], ...

An associative scan ends in one for each of its levels, which the next level reads twice. What
replaces every second element of an array (`x.at[::2].set(..)`) is made of phases, too.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.attributes.padding import PaddingDim
from hlo.ir.instruction import Instruction
from hlo.passes.fusion.axes import Axes, Group
from hlo.passes.fusion.repeats import ONCE, evaluations

_MOST_SEARCHED = 16


def wasted_phases(group: Group, producer: Instruction, axes: Axes) -> str:
    """How a group would compute phases of a producer that it does not need; "" where it does not.

    A kernel that writes phases is cut where they change, and has loops over each. One that reads
    them for a sum, or at several places, computes what is in all of them, and chooses: each level
    of phases within phases takes twice as long as the one around it.
    """
    if axes and axes[-1][0] in ("r", "s") and _parts_rows(producer):
        return f"a sum of %{group.root.name} would run over few lanes, one for each phase"
    if not is_elementwise(producer) or not any(map(_is_phase, producer.operands)):
        return ""
    if any(kind in ("r", "s") for kind, _ in axes) and _joins_phases(producer):
        return f"a sum of %{group.root.name} would compute all its phases for each element"
    if evaluations(producer, group.counts) > ONCE:
        return f"the kernel of %{group.root.name} would compute all its phases at several places"
    return ""


def _joins_phases(producer: Instruction) -> bool:
    """Whether a producer is made of pads that leave room for each other, two or more, and of
    nothing else."""
    waiting, seen = [producer], 0
    while waiting and seen < _MOST_SEARCHED:
        joined = waiting.pop()
        seen += 1
        if not is_elementwise(joined) or len(joined.operands) < 2:
            return False
        waiting += [o for o in joined.operands if not _is_phase(o)]
    return not waiting


def _parts_rows(producer: Instruction) -> bool:
    """Whether it is a pad between elements that lie side by side: a sum along these is two loops,
    and the inner one, which has the lanes, runs over the phases.
    """
    padding = producer.get("padding") if producer.opcode == "pad" else ()
    assert isinstance(padding, tuple)
    return bool(padding) and padding[-1].interior > 0


def _is_phase(value: Instruction) -> bool:
    padding = value.get("padding") if value.opcode == "pad" else ()
    assert isinstance(padding, tuple)
    return any(isinstance(d, PaddingDim) and d.interior > 0 for d in padding)
