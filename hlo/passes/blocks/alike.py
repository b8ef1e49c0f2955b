"""Groups that are alike: the blocks of equal layers are chosen once.

What block is best for a group, and what can be cut by itself, follows from shapes, attributes and
how members read each other; names and places do not count. Models repeat their layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.analysis.blocks.block import Block, Span
from hlo.analysis.blocks.blocking import cuts_needed, needed
from hlo.analysis.blocks.size import best_block
from hlo.analysis.blocks.sums import is_summed, may_be_summed
from hlo.analysis.fingerprint import NOT_CONTENTS, Fingerprints
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.passes.blocks.call import roots_of

Lead = tuple[int, ...]
Predicate = Callable[[Instruction], bool]


class Known:
    """What was found of groups and instructions so far, by what they are like.

    Valid while a pass runs that gives an instruction other operands of the same shapes only.
    """

    def __init__(self) -> None:
        self._fingerprints = Fingerprints(NOT_CONTENTS)  # what waits for others is in no block
        self._numbers: dict[object, int] = {}
        self._kinds: dict[Instruction, int] = {}
        self._cut: dict[tuple[int, Lead], bool] = {}
        self._summed: dict[tuple[int, Lead], bool] = {}
        self._needs: dict[tuple[int, Lead], list[tuple[int, Span]]] = {}
        self._best: dict[object, Block | None] = {}
        self._said: dict[tuple[Predicate, Instruction], bool] = {}

    def says(self, predicate: Predicate, instruction: Instruction) -> bool:
        """What a predicate says of an instruction. Groups that grow from many values ask again:
        without it the pass took 1.2 times as long on layers of attention.
        """
        key = predicate, instruction
        if key not in self._said:
            self._said[key] = predicate(instruction)
        return self._said[key]

    def is_cut(self, instruction: Instruction, block: Block) -> bool:
        """Whether an instruction can be cut by itself."""
        key = self._kind(instruction), block.lead
        if key not in self._cut:
            found = needed([instruction], block.all, block, {instruction})
            self._cut[key] = found is not None
        return self._cut[key]

    def is_summed(self, instruction: Instruction, block: Block) -> bool:
        """Whether an instruction is a sum over blocks."""
        if not may_be_summed(instruction):
            return False
        key = self._kind(instruction), block.lead
        if key not in self._summed:
            self._summed[key] = is_summed(instruction, block)
        return self._summed[key]

    def needs(self, instruction: Instruction, block: Block) -> list[tuple[Instruction, Span]]:
        """The operands that a block of an instruction needs, and how cut."""
        key = self._kind(instruction), block.lead
        if key not in self._needs:
            self._needs[key] = cuts_needed(instruction, block)
        return [(instruction.operands[n], cut) for n, cut in self._needs[key]]

    def best(self, group: Sequence[Instruction], computation: Computation) -> Block | None:
        """The best block of a group in program order; None: none pays."""
        roots = roots_of(group, computation)
        key = self._likeness(group, roots)
        if key not in self._best:
            self._best[key] = best_block(roots, group)
        return self._best[key]

    def _likeness(self, group: Sequence[Instruction], roots: Sequence[Instruction]) -> object:
        """Equal for groups of equal members that read each other alike, of which the same are
        wanted outside, and read once.
        """
        places = {member: place for place, member in enumerate(group)}
        wanted = set(roots)
        return tuple(
            (
                self._kind(member),
                tuple([places.get(operand, -1) for operand in member.operands]),
                member in wanted,
                len(member.users) == 1,
            )
            for member in group
        )

    def _kind(self, instruction: Instruction) -> int:
        if instruction not in self._kinds:
            found: object = self._fingerprints.of(instruction)
            if instruction.opcode == "scatter":  # what it starts from decides as well
                from hlo.analysis.lookups import is_sum_from_zero

                found = (found, is_sum_from_zero(instruction))
            self._kinds[instruction] = self._numbers.setdefault(found, len(self._numbers))
        return self._kinds[instruction]
