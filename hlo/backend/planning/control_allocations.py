"""Control flow in the buffer plan: the allocations that loops, branches and calls hand on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from hlo.analysis.leaves import leaf_count, leaf_sizes
from hlo.analysis.legality import CONTROL
from hlo.backend.planning.allocations import Align, AllocationKind, Branch, Loop, Move, Node
from hlo.backend.planning.occupancy import NOTHING, Scope, Snapshot
from hlo.backend.planning.schedule import Source
from hlo.backend.planning.value_allocations import Activation, Steps, ValueAllocations
from hlo.ir.computation import Computation
from hlo.ir.graph import body_of
from hlo.ir.instruction import Instruction

LEAST_MOVED = 2048  # An iteration that copies so many bytes of state is worth a second body.
MOST_DOUBLED = 256  # The most instructions of a body that is planned twice.


def moved_bytes(nodes: Iterable[Node]) -> int:
    """Bytes that the nodes copy from allocation to allocation, a conditional's first branch
    counted."""
    total = 0
    for node in nodes:
        match node:
            case Move(size=size):
                total += size
            case Branch(branches=(first, *_)):
                total += moved_bytes(first)
    return total


class ControlAllocations(ValueAllocations):
    """Plans what control flow hands on. shared: computations that are planned once."""

    shared: frozenset[Computation]

    @abstractmethod
    def _computation(self, activation: Activation) -> Steps:
        """Plan an activation; gives the allocations of its root's leaves."""

    @abstractmethod
    def _planned_here(self, activation: Activation) -> Steps:
        """The same, as code of this one call."""

    def _call(self, scope: Scope, instruction: Instruction) -> Steps:
        """A call is its callee, in place; async-start holds operands, result, and context."""
        callee = instruction.called_computations()[0]
        operands = self._operands(scope, instruction)
        sizes = leaf_sizes(instruction.shape)
        first = len(operands) if instruction.opcode == "async-start" else 0
        count = leaf_count(callee.root.shape)
        wanted = [scope.wanted.get((instruction, first + n)) for n in range(count)]
        activation = Activation(callee, operands, wanted, scope.nodes, settle=False)
        results = yield self._computation(activation)
        self.at.tick(instruction)
        for number, allocation in enumerate((*operands[:first], *results)):
            self.at.touch(allocation)
            self.at.bind(scope, (instruction, number), allocation)
        for number in range(first + count, len(sizes)):
            allocation = self.at.new(AllocationKind.ARENA, sizes[number], instruction)
            self.at.touch(allocation)
            self.at.bind(scope, (instruction, number), allocation)
        return []

    def _loop(self, scope: Scope, instruction: Instruction) -> Steps:
        """One allocation per leaf of the state: initial value, parameter, body's root and
        result."""
        from hlo.backend.planning.hoisting import Preheader  # programs without loops need none

        body = body_of(instruction)
        kept, unread = self.schedule.invariant[body], self.schedule.unread[body]
        state = self._state(scope, instruction, kept, unread)
        if not self.is_part:
            self._align(scope, instruction, state, kept - unread)
        preheader = Preheader(frozenset(state[n] for n in kept - unread), self.at.clock)
        self.preheaders.append(preheader)
        seen = [NOTHING if n in unread else allocation for n, allocation in enumerate(state)]
        first: list[Node] = []
        (predicate,) = yield from self._test(instruction, seen, first)
        targets = [None if n in kept else allocation for n, allocation in enumerate(state)]
        nodes: list[Node] = []
        snapshot = self.at.snapshot() if self._is_innermost(body) else None
        yield self._computation(Activation(body, seen, targets, nodes))
        iterations = 1
        if snapshot is not None and moved_bytes(nodes) >= LEAST_MOVED:
            self._rewind(snapshot)
            twice: list[Node] = []
            yield from self._twice(instruction, seen, targets, twice)
            iterations = 2
            if moved_bytes(twice) >= 2 * moved_bytes(nodes):
                self._rewind(snapshot)
                twice, iterations = [], 1
                yield self._computation(Activation(body, seen, targets, twice))
            nodes = twice
        loop = Loop(instruction, tuple(first), predicate, tuple(nodes), iterations)
        self.preheaders.pop()
        scope.nodes += [*preheader.runs, loop]
        self.at.tick(instruction)
        for allocation in preheader.allocations:
            self.at.touch(allocation)
        for number, allocation in enumerate(state):
            self.at.touch(allocation)
            if number not in kept:
                self.at.define(scope, (instruction, number), allocation)
        return []

    def _rewind(self, snapshot: Snapshot) -> None:
        """Forget what was planned since, and what was hoisted."""
        self.at.rewind(snapshot)
        for preheader in self.preheaders:
            preheader.forget(len(snapshot.rows))

    def _align(
        self, scope: Scope, loop: Instruction, state: list[int], leaves: frozenset[int]
    ) -> None:
        """Let the loop find arguments aligned, in copies where they are not."""
        from hlo.backend.planning.alignment import is_worth_aligning  # for programs with loops

        for leaf in sorted(leaves):
            allocation = self.at.allocations[state[leaf]]
            if allocation.kind is not AllocationKind.ARGUMENT:
                continue
            if is_worth_aligning(self.schedule, loop, leaf, allocation.size, self.machine):
                source, spare = (
                    state[leaf],
                    self.at.new(AllocationKind.SPARE, allocation.size, loop),
                )
                state[leaf] = self.at.new(
                    AllocationKind.ALIGNED, allocation.size, allocation.instruction
                )
                scope.nodes.append(Align(source, state[leaf], spare, allocation.size))

    def _test(self, instruction: Instruction, state: list[int], nodes: list[Node]) -> Steps:
        """The condition on a state that it may not write; gives the predicate's allocation."""
        pin = (instruction, -1)
        self.at.pin(state, pin)
        condition = instruction.attributes["condition"]
        assert isinstance(condition, Computation), "a while has a condition"
        activation = Activation(condition, state, [None], nodes, settle=False)
        found = yield self._computation(activation)
        self.at.tick(instruction)
        self.at.touch(found[0])
        self.at.unpin(state, pin)
        return found

    def _is_innermost(self, body: Computation) -> bool:
        """Whether a body is small and without loops, so that it may be planned several times."""
        waiting, length = [body], 0
        while waiting:
            computation = waiting.pop()
            if computation in self.shared:
                return False  # allocations of a routine stay when the loop is planned anew
            order = self.schedule.orders[computation]
            length += len(order)
            if length > MOST_DOUBLED or any(i.opcode == "while" for i in order):
                return False
            waiting += [c for i in order if i.opcode in CONTROL for c in i.called_computations()]
        return True

    def _twice(
        self,
        instruction: Instruction,
        state: list[int],
        targets: list[int | None],
        nodes: list[Node],
    ) -> Steps:
        """Two iterations: the first leaves the new state where it is made, the second puts its own
        where the loop expects it. State that swaps buffers, or cannot be written in place, is not
        copied; a loop that ends after the first iteration copies once.
        """
        body = body_of(instruction)
        nowhere: list[int | None] = [None] * len(state)
        found = yield self._computation(Activation(body, state, nowhere, nodes, settle=False))
        between = self._between(state, targets, found, nodes)
        predicate = (yield from self._test(instruction, between, nodes))[0]
        leave: list[Node] = []
        self._move_all(between, targets, leave)
        rest: list[Node] = []
        yield self._computation(Activation(body, between, targets, rest))
        branches = (tuple(rest), tuple(leave))
        nodes.append(Branch(instruction, predicate, branches, by_predicate=True))
        return []

    def _between(
        self,
        state: list[int],
        targets: list[int | None],
        found: list[int],
        nodes: list[Node],
    ) -> list[int]:
        """The allocations of the state after the first of two iterations: where the values are,
        each in an allocation of its own that may be written.
        """
        taken = {
            allocation for allocation, target in zip(state, targets, strict=True) if target is None
        }
        between: list[int] = []
        for allocation, target, own in zip(found, targets, state, strict=True):
            place = own if target is None else allocation
            if target is not None and target != NOTHING:
                if allocation in taken or not self.at.allocations[allocation].is_writable:
                    size = self.at.allocations[target].size
                    place = self.at.new(
                        AllocationKind.ARENA, size, self.at.allocations[target].instruction
                    )
                    nodes.append(Move(allocation, place, size))
                taken.add(place)
            between.append(place)
        return between

    def _state(
        self,
        scope: Scope,
        instruction: Instruction,
        kept: frozenset[int],
        unread: frozenset[int],
    ) -> list[int]:
        """The allocations of a loop's state, filled: the initial values' own where they die here.

        kept: leaves that no iteration changes; unread: those of them that none looks at.
        """
        self.at.tick(instruction)
        initial = self._operands(scope, instruction)
        given, lent = set(initial), {initial[n] for n in kept - unread}
        state: list[int] = []
        taken: set[int] = set()
        for number, allocation in enumerate(initial):
            size = self.at.allocations[allocation].size
            if (
                number in kept
                or not size
                or (
                    self.at.is_free(allocation)
                    and allocation not in lent
                    and allocation not in taken
                )
            ):
                state.append(allocation)
            else:
                target = scope.wanted.get((instruction, number))
                if (
                    target is None
                    or not self.at.is_free(target)
                    or target in given
                    or target in taken
                ):
                    target = self.at.new(AllocationKind.ARENA, size, instruction)
                scope.nodes.append(Move(allocation, target, size))
                self.at.clear(target)
                state.append(target)
            taken.add(state[-1])
        for allocation in (*initial, *state):
            self.at.touch(allocation)
        return state

    def _branch(self, scope: Scope, instruction: Instruction) -> Steps:
        """Every branch puts its root into the same allocations."""
        self.at.tick(instruction)
        selector = self._operands(scope, instruction)[0]
        self.at.touch(selector)
        branches = instruction.called_computations()
        results = self._branch_results(scope, instruction, branches, selector)
        planned = []
        for number, branch in enumerate(branches):
            operand = instruction.operands[number + 1]
            bound = [
                self._of(scope, self.schedule.resolve(operand, n), size)
                for n, size in enumerate(leaf_sizes(operand.shape))
            ]
            nodes: list[Node] = []
            for allocation in bound:
                self.at.touch(allocation)
            yield self._computation(Activation(branch, bound, results, nodes))
            planned.append(tuple(nodes))
        by_predicate = instruction.operands[0].shape.dtype.is_pred
        scope.nodes.append(Branch(instruction, selector, tuple(planned), by_predicate))
        self.at.tick(instruction)
        for number, allocation in enumerate(results):
            self.at.touch(allocation)
            self.at.define(scope, (instruction, number), allocation)
        return []

    def _branch_results(
        self,
        scope: Scope,
        instruction: Instruction,
        branches: list[Computation],
        selector: int,
    ) -> list[int]:
        """Allocations for a conditional's result: where it is wanted, a dying operand's, or new
        ones."""
        results: list[int] = []
        for number, size in enumerate(leaf_sizes(instruction.shape)):
            if not size:
                results.append(NOTHING)
                continue
            candidates = [scope.wanted.get((instruction, number))]
            candidates += [
                self._origin(scope, branch.root, number, instruction.operands[k + 1])
                for k, branch in enumerate(branches)
            ]
            chosen = next(
                (
                    c
                    for c in candidates
                    if c is not None
                    and c != selector
                    and c not in results
                    and self.at.allocations[c].size == size
                    and self.at.is_free(c)
                ),
                None,
            )
            results.append(
                self.at.new(AllocationKind.ARENA, size, instruction) if chosen is None else chosen
            )
        return results

    def _origin(
        self, scope: Scope, root: Instruction, leaf: int, operand: Instruction
    ) -> int | None:
        """The allocation of the operand leaf that a branch updates in place into its result, if
        so."""
        source = self.schedule.resolve(root, leaf)
        while source is not None and source[0].opcode != "parameter":
            source = self._ancestor(source)
        if source is None:
            return None
        outer = self.schedule.resolve(operand, source[1])
        return None if outer is None else scope.allocations.get(outer)

    def _ancestor(self, source: Source) -> Source | None:
        """The value whose memory the source's is likely to be."""
        instruction, leaf = source
        if instruction.opcode == "while":
            return self.schedule.resolve(instruction.operands[0], leaf)
        implementation = self.implementations.get(instruction)
        if implementation is None:
            return None
        pairs = sorted(implementation.must_alias) or sorted(implementation.pairs)
        partner = next((o for o, r in pairs if r == leaf), None)
        return None if partner is None else self.schedule.operand_sources(instruction)[partner]
