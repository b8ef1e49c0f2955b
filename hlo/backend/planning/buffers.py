"""Buffer assignment: which bytes hold which value.

    Schedule, Implementations --assign--> BufferPlan: what runs, on which allocations; allocations
    in one arena

An allocation is memory for one value at a time. Walking the program in order, a result takes, in
this order of preference: the allocation that its operand must share, the allocation in which it is
finally wanted (a program result, a loop's state), a dying operand's allocation where the kernel
allows it, a new allocation. Values that control flow hands on (loop state, branch results, call
operands) keep their allocation; a copy is inserted only where two values would need one allocation
at a time. Called computations are planned once per call site (control_allocations.py), within the
call budget (routine_allocations.py). An allocation that is not an argument, a result or a constant
is then given a place in the arena (packing.py).
Source: the value semantics and the copy rules of docs/control.md 7. Does not know: LLVM, addresses,
threads.
"""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.leaves import leaf_count, leaf_sizes
from hlo.analysis.legality import CONTROL, SOURCES, is_forwarding
from hlo.backend.planning.allocations import AllocationKind, BufferPlan, Move, Node, Run
from hlo.backend.planning.donation import donated_leaves
from hlo.backend.planning.fitting import check_addressable
from hlo.backend.planning.implementations import Implementation, Implementations, operand_origins
from hlo.backend.planning.occupancy import NOTHING, Scope
from hlo.backend.planning.packing import place_spares
from hlo.backend.planning.routine_allocations import RoutineAllocations
from hlo.backend.planning.schedule import Schedule
from hlo.backend.planning.value_allocations import FOREVER, Activation, Steps
from hlo.ir.instruction import Instruction
from hlo.machine import Machine


def assign(
    schedule: Schedule,
    implementations: Implementations,
    machine: Machine,
    kept: frozenset[int] | None = None,
) -> BufferPlan:
    """Allocations for every value, the copies between them, and the arena.

    kept: of a part of a program that runs often, the arguments that every run has, of which early
    calls run before all of them.
    """
    assigner = _Assigner(schedule, implementations, machine)
    assigner.is_part = kept is not None
    nodes, early = assigner.plan(kept or frozenset())
    check_addressable(assigner.at.allocations)
    arena_bytes = assigner.assign_offsets()
    allocations, moments = tuple(assigner.at.allocations), tuple(assigner.at.moments)
    spare_bytes, routines = place_spares(allocations), tuple(assigner.routines)
    return BufferPlan(
        schedule, nodes, allocations, arena_bytes, moments, spare_bytes, routines, early
    )


class _Placing(Struct, eq=False):
    """The allocations of an instruction that runs, while its results are given theirs.

    readers: the operands that are in each allocation. over: the operands over which each result may
    be written. partners: the operand whose allocation each result has to share.
    """

    instruction: Instruction
    operands: list[int]
    readers: dict[int, list[int]]
    over: dict[int, set[int]]
    partners: dict[int, int]
    results: list[int]
    taken: set[int]

    @classmethod
    def of(
        cls, instruction: Instruction, operands: list[int], implementation: Implementation
    ) -> _Placing:
        readers, over = defaultdict(list), defaultdict(set)
        for number, allocation in enumerate(operands):
            readers[allocation].append(number)
        for operand, result in implementation.pairs:
            over[result].add(operand)
        partners = {r: o for o, r in sorted(implementation.must_alias, reverse=True)}
        return cls(instruction, operands, dict(readers), dict(over), partners, [], set())

    def place(self, allocation: int) -> None:
        """The next result is in the allocation."""
        self.results.append(allocation)
        self.taken.add(allocation)

    def move(self, operand: int, allocation: int) -> None:
        """The operand is in another allocation from now on."""
        self.readers[self.operands[operand]].remove(operand)
        self.readers.setdefault(allocation, []).append(operand)
        self.operands[operand] = allocation


class _Assigner(RoutineAllocations):
    """Plans the program and what runs in it."""

    # -- the program ---------------------------------------------------------------------------

    def plan(self, kept: frozenset[int]) -> tuple[tuple[Node, ...], tuple[Run, ...]]:
        """The program, and what runs before it."""
        entry = self.schedule.module.entry
        donated = donated_leaves(self.schedule.module)
        bound: list[int] = []
        for parameter in entry.parameters:
            for size in leaf_sizes(parameter.shape):
                bound.append(
                    self.at.new(AllocationKind.ARGUMENT, size, parameter, index=len(bound))
                )
        targets: list[int] = []
        for number, size in enumerate(leaf_sizes(entry.root.shape)):
            argument = donated.get(number)
            if argument is not None and size:
                allocation = self.at.allocations[bound[argument]]
                allocation.kind, allocation.result = AllocationKind.DONATED, number
                targets.append(bound[argument])
            else:
                made = self.at.new(AllocationKind.RESULT, size, entry.root, index=number)
                targets.append(made)
        nodes: list[Node] = []
        if not kept:
            _drive(self._computation(Activation(entry, bound, targets, nodes)))
            return tuple(nodes), ()
        from hlo.backend.planning.hoisting import Preheader  # programs without blocks need none

        before = Preheader(frozenset(bound[n] for n in kept), self.at.clock)
        self.preheaders.append(before)
        _drive(self._computation(Activation(entry, bound, targets, nodes)))
        self.preheaders.pop()
        for index, made in enumerate(before.allocations, len(bound)):
            allocation = self.at.allocations[made]
            allocation.kind, allocation.index = AllocationKind.ARGUMENT, index
        return tuple(nodes), tuple(before.runs)

    def _computation(self, activation: Activation) -> Steps:
        """Plan an activation; gives the allocations of its root's leaves."""
        planned = (
            self._routine_call if activation.computation in self.shared else self._planned_here
        )
        return (yield planned(activation))

    def _planned_here(self, activation: Activation) -> Steps:
        """Plan a computation for one call of it."""
        computation, targets = activation.computation, activation.targets
        scope = Scope(self._last_uses(computation), nodes=activation.nodes)
        position = 0
        for parameter in computation.parameters:
            for leaf in range(leaf_count(parameter.shape)):
                self.at.bind(scope, (parameter, leaf), activation.bound[position])
                position += 1
        roots = [self.schedule.resolve(computation.root, n) for n in range(len(targets))]
        for source, target in zip(roots, targets, strict=True):
            if source is not None and target is not None and target != NOTHING:
                self._want(scope, source, target)
        for n, instruction in enumerate(self.schedule.orders[computation]):
            scope.position = n
            opcode = instruction.opcode
            if opcode in SOURCES or is_forwarding(instruction):
                continue
            if opcode in CONTROL:
                yield from self._control(scope, instruction)
            else:
                self._run(scope, instruction)
        sizes = leaf_sizes(computation.root.shape)
        found = [self._of(scope, s, size) for s, size in zip(roots, sizes, strict=True)]
        if activation.settle:
            self._move_all(found, targets, activation.nodes)
        scope.last_use, scope.position = {}, FOREVER
        return found

    def _control(self, scope: Scope, instruction: Instruction) -> Steps:
        match instruction.opcode:
            case "while":
                yield from self._loop(scope, instruction)
            case "conditional":
                yield from self._branch(scope, instruction)
            case _:
                yield from self._call(scope, instruction)
        return []

    # -- one kernel ----------------------------------------------------------------------------

    def _run(self, scope: Scope, instruction: Instruction) -> None:
        """Allocations for the results and temporaries of an instruction that runs."""
        self.at.tick(instruction)
        implementation = self.implementations[instruction]
        placing = _Placing.of(instruction, self._operands(scope, instruction), implementation)
        for number, size in enumerate(leaf_sizes(instruction.shape)):
            if not size:
                placing.place(NOTHING)
            elif number in placing.partners:
                placing.place(self._shared(scope, placing, number))
            else:
                placing.place(self._chosen(scope, placing, number, size))
        operands, results = placing.operands, placing.results
        temporaries = self._temporaries(instruction, implementation)
        for allocation in (*operands, *results, *temporaries):
            self.at.touch(allocation)
        for number, allocation in enumerate(results):
            self.at.define(scope, (instruction, number), allocation)
        allocations = (tuple(operands), tuple(results), tuple(temporaries))
        scope.nodes.append(self._hoisted(Run(instruction, implementation, *allocations)))

    def _hoisted(self, run: Run) -> Run:
        """What of a run is left in the loop around when its early calls have gone before it."""
        if not self.preheaders:
            return run
        from hlo.backend.planning.hoisting import early_part, late_part, preheader_of

        if (parts := early_part(run)) is None:
            return run
        early = parts.early
        kinds = ((n, self.at.allocations[n].kind) for n in early.operands)
        changing = [n for n, kind in kinds if kind is not AllocationKind.CONSTANT]
        preheader = preheader_of(changing, self.preheaders)
        if preheader is None:
            return run
        if (known := preheader.same(early)) is None:
            preheader.runs.append(early)
            for number in early.temporaries:
                self.at.allocations[number].start = preheader.start
            return late_part(run, parts)
        for number in early.temporaries:
            self.at.allocations[number].size = 0
        return late_part(run, replace(parts, early=known))

    def _temporaries(self, instruction: Instruction, implementation: Implementation) -> list[int]:
        """Allocations for the temporaries; prepared ones are constants."""
        prepared = {p.temporary: p for p in implementation.prepared}
        found: list[int] = []
        for number, size in enumerate(implementation.temporaries):
            if (made := prepared.get(number)) is None:
                found.append(self.at.new(AllocationKind.ARENA, size, instruction))
                continue
            source = operand_origins(self.schedule, instruction)[made.leaf]
            assert source is not None, "a known leaf is a constant"
            found.append(self._constant(source, size, made.steps))
        return found

    def _shared(self, scope: Scope, placing: _Placing, number: int) -> int:
        """The operand's allocation, or a copy of it that then stands for the operand as well."""
        partner = placing.partners[number]
        allocation = placing.operands[partner]
        if self._may_write(allocation, placing, placing.over.get(number, set())):
            return allocation
        target = scope.wanted.get((placing.instruction, number))
        if target is None or not self._may_write(target, placing, set()):
            target = self.at.new(
                AllocationKind.ARENA, self.at.allocations[allocation].size, placing.instruction
            )
        scope.nodes.append(Move(allocation, target, self.at.allocations[allocation].size))
        self.at.touch(allocation)
        self.at.touch(target)
        placing.move(partner, target)
        return target

    def _chosen(self, scope: Scope, placing: _Placing, number: int, size: int) -> int:
        """Where it is wanted, else over a dying operand, else a new allocation.

        The oldest operand's first: in a loop that is the state's, which has to be written anyway.
        """
        over = placing.over.get(number, set())
        target = scope.wanted.get((placing.instruction, number))
        if target is not None and self._may_write(target, placing, over):
            return target
        for allocation in sorted(placing.operands[operand] for operand in over):
            if self.at.allocations[allocation].size == size and self._may_write(
                allocation, placing, over
            ):
                return allocation
        return self.at.new(AllocationKind.ARENA, size, placing.instruction)

    def _may_write(self, allocation: int, placing: _Placing, over: set[int]) -> bool:
        """Whether a result may be written to the allocation while operands not in `over` are
        read."""
        if not self.at.is_free(allocation) or allocation in placing.taken:
            return False
        return all(operand in over for operand in placing.readers.get(allocation, ()))


def _drive(start: Steps) -> None:
    """Run nested scopes to their ends without recursion: call chains are deep."""
    stack, value = [start], None
    while stack:
        try:
            inner = stack[-1].send(value)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            stack.pop()
            value = end.value
        else:
            stack.append(inner)
            value = None
