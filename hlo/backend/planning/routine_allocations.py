"""Routines in the buffer plan: computations that are planned once, whoever runs them.

    calls of one computation --shared_computations--> routines; a call gives them addresses

Copies of what is called are faster: their values lie where callers want them. Where copies were too
many (the call budget), a computation reads its caller's memory and writes into it by addresses that
each call puts into the frame's table. No computation runs inside itself, so that one frame holds
all: what a routine keeps for itself is one block of the arena, in use from its first call to its
last one, its callers' later calls counted.
"""

from __future__ import annotations

from msgspec import Struct, field

from hlo.analysis.call_budget import shared_computations
from hlo.analysis.leaves import leaf_sizes
from hlo.analysis.legality import CONTROL
from hlo.backend.planning.allocations import Allocation, AllocationKind, Call, Node, Routine
from hlo.backend.planning.control_allocations import ControlAllocations
from hlo.backend.planning.implementations import Implementations
from hlo.backend.planning.occupancy import NOTHING
from hlo.backend.planning.packing import pack
from hlo.backend.planning.schedule import Schedule
from hlo.backend.planning.value_allocations import Activation, Steps
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first
from hlo.machine import Machine


class PlannedRoutine(Struct, eq=False):
    """A routine under construction. passed, results: its allocations; a result that is one of its
    parameters' leaves has no allocation of its own, and `forwarded` says which leaf it is.

    allocations: the numbers of those made while it was planned, in ranges. called: routines that it
    calls. first, last: the plan's clock at its first call and at its last.
    """

    number: int = -1
    passed: list[int] = field(default_factory=list)
    results: list[int | None] = field(default_factory=list)
    forwarded: dict[int, int] = field(default_factory=dict)
    called: dict[int, None] = field(default_factory=dict)
    allocations: list[range] = field(default_factory=list)
    first: int = 0
    last: int = 0


def shared_in(schedule: Schedule) -> frozenset[Computation]:
    """The computations that run as routines."""
    orders = schedule.orders

    def callees(computation: Computation) -> list[Computation]:
        found = [i for i in orders[computation] if i.opcode in CONTROL]
        return [callee for i in found for callee in i.called_computations()]

    module = schedule.module
    order = [c for c in callees_first(module) if c in orders]
    return shared_computations(order, callees, {module.entry})


class RoutineAllocations(ControlAllocations):
    """Plans routines and calls of them."""

    def __init__(
        self, schedule: Schedule, implementations: Implementations, machine: Machine
    ) -> None:
        super().__init__(schedule, implementations, machine)
        self.shared = shared_in(schedule)
        self.planned: dict[Computation, PlannedRoutine] = {}
        self.routines: list[Routine] = []
        self._planning: list[PlannedRoutine] = []

    def _routine_call(self, activation: Activation) -> Steps:
        """Run a routine on its parameters' allocations; gives the allocations of its root's
        leaves."""
        computation, bound = activation.computation, activation.bound
        routine = self.planned.get(computation)
        if routine is None:
            yield self._routine(computation)
            routine = self.planned[computation]
        self.at.tick(computation.root)
        used = set(bound)
        found: list[int] = []
        pairs = [
            (own, allocation)
            for own, allocation in zip(routine.passed, bound, strict=True)
            if allocation
        ]
        for number, (own, target) in enumerate(
            zip(routine.results, activation.targets, strict=True)
        ):
            if own is None:
                found.append(bound[routine.forwarded[number]])
            elif own == NOTHING:
                found.append(NOTHING)
            else:
                allocation = target
                if allocation is None or allocation in used or not self.at.is_free(allocation):
                    size = self.at.allocations[own].size
                    allocation = self.at.new(AllocationKind.ARENA, size, computation.root)
                used.add(allocation)
                found.append(allocation)
                pairs.append((own, allocation))
        for allocation in (*bound, *found):
            self.at.touch(allocation)
        activation.nodes.append(Call(routine.number, tuple(p for p in pairs if p[0] != NOTHING)))
        routine.last = self.at.clock
        if self._planning:
            self._planning[-1].called[routine.number] = None
        if activation.settle:
            self._move_all(found, activation.targets, activation.nodes)
        return found

    def _routine(self, computation: Computation) -> Steps:
        """Plan a computation on allocations that stand for its callers'."""
        made = PlannedRoutine(first=self.at.clock)
        before = len(self.at.allocations)
        self._planning.append(made)
        leaves = [
            (parameter, leaf, size)
            for parameter in computation.parameters
            for leaf, size in enumerate(leaf_sizes(parameter.shape))
        ]
        at = {(parameter, leaf): n for n, (parameter, leaf, _) in enumerate(leaves)}
        for parameter, _, size in leaves:
            made.passed.append(
                self.at.new(AllocationKind.PASSED, size, parameter) if size else NOTHING
            )
        for number, size in enumerate(leaf_sizes(computation.root.shape)):
            source = self.schedule.resolve(computation.root, number)
            if source in at:
                made.forwarded[number] = at[source]
                made.results.append(None)
            else:
                allocation = (
                    self.at.new(AllocationKind.RETURNED, size, computation.root)
                    if size
                    else NOTHING
                )
                made.results.append(allocation)
        nodes: list[Node] = []
        yield self._planned_here(Activation(computation, made.passed, made.results, nodes))
        self._planning.pop()
        made.number = len(self.routines)
        made.allocations = self._own_allocations(before)
        self.routines.append(Routine(computation, tuple(nodes)))
        self.planned[computation] = made
        return []

    def _own_allocations(self, before: int) -> list[range]:
        """Ranges of the allocations made since, other routines' left out."""
        own: list[range] = []
        taken = sorted(
            (r for p in self.planned.values() for r in p.allocations), key=lambda r: r.start
        )
        for other in (r for r in taken if r.start >= before):
            own.append(range(before, other.start))
            before = other.stop
        own.append(range(before, len(self.at.allocations)))
        return [r for r in own if r]

    def assign_offsets(self) -> int:
        """Set the offsets of all arena allocations; the arena's size in bytes."""
        routines = sorted(self.planned.values(), key=lambda r: -r.number)
        by_number = {r.number: r for r in routines}
        for routine in routines:  # callers first
            for number in routine.called:
                called = by_number[number]
                called.last = max(called.last, routine.last)
        inside = {n for r in routines for part in r.allocations for n in part}
        allocations = self.at.allocations
        blocks = []
        for routine in routines:
            own = [allocations[n] for part in routine.allocations for n in part]
            size = pack(own)
            blocks.append(
                Allocation(AllocationKind.ARENA, size, start=routine.first, end=routine.last)
            )
        total = pack([*(c for n, c in enumerate(allocations) if n not in inside), *blocks])
        for routine, block in zip(routines, blocks, strict=True):
            for allocation in (allocations[n] for part in routine.allocations for n in part):
                allocation.offset += block.offset
        return total
