"""Value allocations: where values are, where they are wanted, and how they get there."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.analysis.leaves import leaf_count, leaf_sizes
from hlo.analysis.legality import SOURCES, is_forwarding
from hlo.backend.ir.kernel import Preparing
from hlo.backend.planning.allocations import AllocationKind, Move, Node
from hlo.backend.planning.implementations import Implementations
from hlo.backend.planning.moves import in_sequence
from hlo.backend.planning.occupancy import NOTHING, Occupancy, Scope
from hlo.backend.planning.schedule import Schedule, Source
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.machine import Machine

if TYPE_CHECKING:
    from hlo.backend.planning.hoisting import Preheader

FOREVER = math.inf
Steps = Generator["Steps", list[int], list[int]]  # a scope being planned: yields scopes inside it


class Activation(Struct, eq=False):
    """One run of a computation, while it is planned.

    bound: its parameters' allocations. targets: where its root's leaves are wanted. nodes: what
    the plan of it is appended to. settle: move what did not get where it is wanted.
    """

    computation: Computation
    bound: list[int]
    targets: Sequence[int | None]
    nodes: list[Node]
    settle: bool = True


class ValueAllocations:
    """The state of one assignment: allocations so far, which values they hold, the clock; what goes
    before each of the loops that are being planned, the innermost last."""

    def __init__(
        self, schedule: Schedule, implementations: Implementations, machine: Machine
    ) -> None:
        self.schedule = schedule
        self.implementations = implementations
        self.machine = machine
        self.at = Occupancy()
        self.constants: dict[object, int] = {}
        self.uses: dict[Computation, dict[Source, float]] = {}
        self.updated: dict[Instruction, dict[int, Source | None]] = {}
        self.preheaders: list[Preheader] = []
        self.is_part = False  # of a program, which runs often: its arguments lie as they do

    def _want(self, scope: Scope, source: Source, target: int) -> None:
        """Note where a value is wanted in the end; what it is updated from is wanted there too."""
        following: Source | None = source
        while following is not None and following not in scope.wanted:
            scope.wanted[following] = target
            instruction, leaf = following
            if instruction.opcode == "while":
                following = self.schedule.resolve(instruction.operands[0], leaf)
                continue
            following = self._updated(instruction).get(leaf)

    def _updated(self, instruction: Instruction) -> dict[int, Source | None]:
        """What each leaf of a result that has to be an operand's in place is made from."""
        if instruction not in self.updated:
            implementation = self.implementations.get(instruction)
            pairs = sorted(implementation.must_alias, reverse=True) if implementation else []
            sources = self.schedule.operand_sources(instruction) if pairs else []
            self.updated[instruction] = {r: sources[o] for o, r in pairs}
        return self.updated[instruction]

    def _move_all(self, found: list[int], targets: Sequence[int | None], nodes: list[Node]) -> None:
        """Add the copies of allocations to their targets, as if all were made at once."""
        self.at.tick(None)
        wanted = [
            (source, target, self.at.allocations[target].size)
            for source, target in zip(found, targets, strict=True)
            if target is not None and target != source and self.at.allocations[target].size
        ]

        def spare(size: int) -> int:
            return self.at.new(AllocationKind.ARENA, size, None)

        for source, target, size in in_sequence(wanted, spare):
            self.at.touch(source)
            self.at.touch(target)
            nodes.append(Move(source, target, size))
        for allocation in (*found, *(t for t in targets if t is not None)):
            self.at.touch(allocation)

    def _operands(self, scope: Scope, instruction: Instruction) -> list[int]:
        """The allocation of every operand leaf."""
        resolve = self.schedule.resolve
        return [
            self._of(scope, resolve(operand, leaf), size)
            for operand in instruction.operands
            for leaf, size in enumerate(leaf_sizes(operand.shape))
        ]

    def _of(self, scope: Scope, source: Source | None, size: int) -> int:
        """The allocation of a value; constants and undefined values get theirs when first asked
        for."""
        if not size:
            return NOTHING
        if source is None:
            return self.at.new(AllocationKind.ARENA, size, None)
        found = scope.allocations.get(source)
        if found is None:
            found = scope.allocations[source] = self._constant(source, size)
        return found

    def _constant(self, source: Source, size: int, steps: tuple[Preparing, ...] = ()) -> int:
        """The allocation of a constant, or of what some steps make of it."""
        instruction, leaf = source
        assert instruction.opcode in SOURCES, f"{instruction.name} runs before its users"
        key: object = size if instruction.opcode != "constant" else (source, steps)
        found = self.constants.get(key)
        if found is None:
            found = self.at.new(AllocationKind.CONSTANT, size, instruction, index=leaf)
            self.at.allocations[found].prepared = steps
            self.constants[key] = found
        return found

    def _last_uses(self, computation: Computation) -> dict[Source, float]:
        """The position of the last reader of every value; FOREVER for what the root holds."""
        found = self.uses.get(computation)
        if found is None:
            found = self.uses[computation] = {}
            for position, instruction in enumerate(self.schedule.orders[computation]):
                if instruction.opcode in SOURCES or is_forwarding(instruction):
                    continue
                for source in self.schedule.operand_sources(instruction):
                    if source is not None:
                        found[source] = position
            for leaf in range(leaf_count(computation.root.shape)):
                source = self.schedule.resolve(computation.root, leaf)
                if source is not None:
                    found[source] = FOREVER
        return found
