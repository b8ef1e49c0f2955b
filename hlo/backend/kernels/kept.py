"""Kept: an element that the first stage that needs it computes and leaves in memory for others."""

from __future__ import annotations

from abc import ABC, abstractmethod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.lanes import access
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.types import Lanes
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction


class Kept(ABC):
    """The memory of one element, and whether a stage has left its lanes there."""

    def __init__(self, row: Memory) -> None:
        self.row = row
        self.begin()

    def begin(self) -> None:
        """Nothing is left yet."""
        self.is_touched = False
        self.is_filled = False
        self.is_partial = False  # asked for under conditions before it was filled

    @abstractmethod
    def place(self, index: Index) -> Expr:
        """Where in the memory the lanes at an index lie."""

    def lanes_at(
        self, elemental: Elemental, instruction: Instruction, indices: list[Index]
    ) -> list[Lanes]:
        """The lanes: read where a stage has left them, else computed and left there."""
        nest = elemental.nest
        places = [self.place(index) for index in indices]
        if self.is_filled:
            return [access.load(nest, self.row, place, None) for place in places]
        results = elemental.computed(instruction, indices, ())
        if elemental.guards:
            # Where these do not hold it may be anything.
            self.is_partial, self.is_touched = True, False
            return results
        # Not before: what it needs may be stages that end meanwhile.
        self.is_touched = not self.is_partial
        for place, lanes in zip(places, results, strict=True):
            access.store(nest, self.row, place, elemental.splat(lanes, place.lanes))
        return results
