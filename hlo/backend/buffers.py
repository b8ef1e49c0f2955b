"""Buffer assignment: which bytes hold which value.

    Schedule, Implementations --assign--> BufferPlan: what runs, on which cells; cells in one arena

A cell is memory for one value at a time. Walking the program in order, a result takes, in this
order of preference: the cell that its operand must share, the cell in which it is finally wanted
(a program result, a loop's state), a dying operand's cell where the kernel allows it, a new cell.
Values that control flow hands on (loop state, branch results, call operands) keep their cell; a
copy is inserted only where two values would need one cell at a time. Called computations are
planned once per call site. A cell that is not an argument, a result or a constant is then given a
place in the arena (hlo/backend/packing.py).
Source: the value semantics and the copy rules of OP_SEMANTICS_CONTROL.md section 7.
Does not know: LLVM, addresses, threads.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence

from hlo.backend.cells import Branch, BufferPlan, Loop, Move, Node, Region, Run
from hlo.backend.donation import donated_leaves
from hlo.backend.kernels.build import Implementations
from hlo.backend.leaves import leaf_count, leaf_sizes
from hlo.backend.legality import CONTROL, SOURCES, is_forwarding
from hlo.backend.moves import in_sequence
from hlo.backend.occupancy import NOTHING, Occupancy, Scope
from hlo.backend.packing import pack
from hlo.backend.schedule import Schedule, Source
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction

FOREVER = math.inf
Steps = Generator["Steps", list[int], list[int]]  # a scope being planned: yields scopes inside it


def assign(schedule: Schedule, implementations: Implementations) -> BufferPlan:
    """Cells for every value, the copies between them, and the arena."""
    assigner = _Assigner(schedule, implementations)
    nodes = assigner.plan()
    arena_bytes = pack(assigner.at.cells)
    cells, moments = tuple(assigner.at.cells), tuple(assigner.at.moments)
    return BufferPlan(schedule, nodes, cells, arena_bytes, moments)


class _Assigner:
    """The state of one assignment: cells so far, which values they hold, the clock."""

    def __init__(self, schedule: Schedule, implementations: Implementations) -> None:
        self.schedule = schedule
        self.implementations = implementations
        self.at = Occupancy()
        self.constants: dict[object, int] = {}
        self.uses: dict[Computation, dict[Source, float]] = {}

    # -- the program ---------------------------------------------------------------------------

    def plan(self) -> tuple[Node, ...]:
        entry = self.schedule.module.entry
        donated = donated_leaves(self.schedule.module)
        bound: list[int] = []
        for parameter in entry.parameters:
            for size in leaf_sizes(parameter.shape):
                bound.append(self.at.new(Region.ARGUMENT, size, parameter, index=len(bound)))
        targets: list[int] = []
        for number, size in enumerate(leaf_sizes(entry.root.shape)):
            argument = donated.get(number)
            if argument is not None and size:
                cell = self.at.cells[bound[argument]]
                cell.region, cell.result = Region.DONATED, number
                targets.append(bound[argument])
            else:
                made = self.at.new(Region.RESULT, size, entry.root, index=number)
                targets.append(made)
        nodes: list[Node] = []
        _drive(self._computation(entry, bound, targets, nodes, settle=True))
        return tuple(nodes)

    def _computation(
        self,
        computation: Computation,
        bound: list[int],
        targets: Sequence[int | None],
        nodes: list[Node],
        *,
        settle: bool,
    ) -> Steps:
        """Plan one computation on its parameters' cells; gives the cells of its root's leaves.

        targets: where the root's leaves are wanted. settle: move what did not get there.
        """
        scope = Scope(self._last_uses(computation), nodes=nodes)
        position = 0
        for parameter in computation.parameters:
            for leaf in range(leaf_count(parameter.shape)):
                self.at.bind(scope, (parameter, leaf), bound[position])
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
        if settle:
            self._settle(scope, found, targets)
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
        """Cells for the results and temporaries of an instruction that runs."""
        self.at.tick(instruction)
        implementation = self.implementations[instruction]
        operands = self._operands(scope, instruction)
        results: list[int] = []
        for number, size in enumerate(leaf_sizes(instruction.shape)):
            if not size:
                results.append(NOTHING)
                continue
            partner = next((o for o, r in implementation.must_alias if r == number), None)
            if partner is not None:
                chosen = self._shared(scope, instruction, operands, partner, (number, results))
            else:
                chosen = self._chosen(scope, instruction, operands, (number, results), size)
            results.append(chosen)
        temporaries = [
            self.at.new(Region.ARENA, size, instruction) for size in implementation.temporaries
        ]
        for cell in (*operands, *results, *temporaries):
            self.at.touch(cell)
        for number, cell in enumerate(results):
            self.at.define(scope, (instruction, number), cell)
        cells = (tuple(operands), tuple(results), tuple(temporaries))
        scope.nodes.append(Run(instruction, implementation, *cells))

    def _shared(
        self,
        scope: Scope,
        instruction: Instruction,
        operands: list[int],
        partner: int,
        result: tuple[int, list[int]],
    ) -> int:
        """The operand's cell, or a copy of it that then stands for the operand as well."""
        cell, (number, taken) = operands[partner], result
        pairs = self.implementations[instruction].pairs
        if self._may_write(cell, number, operands, pairs, taken):
            return cell
        target = scope.wanted.get((instruction, number))
        if target is None or not self._may_write(target, number, operands, frozenset(), taken):
            target = self.at.new(Region.ARENA, self.at.cells[cell].size, instruction)
        scope.nodes.append(Move(cell, target, self.at.cells[cell].size))
        self.at.touch(cell)
        self.at.touch(target)
        operands[partner] = target
        return target

    def _chosen(
        self,
        scope: Scope,
        instruction: Instruction,
        operands: list[int],
        result: tuple[int, list[int]],
        size: int,
    ) -> int:
        """Where it is wanted, else over a dying operand, else a new cell."""
        number, taken = result
        pairs = self.implementations[instruction].pairs
        target = scope.wanted.get((instruction, number))
        if target is not None and self._may_write(target, number, operands, pairs, taken):
            return target
        for operand, other in sorted(pairs):
            if other == number and self.at.cells[operands[operand]].size == size:
                cell = operands[operand]
                if self._may_write(cell, number, operands, pairs, taken):
                    return cell
        return self.at.new(Region.ARENA, size, instruction)

    def _may_write(
        self,
        cell: int,
        number: int,
        operands: list[int],
        pairs: frozenset[tuple[int, int]],
        taken: Iterable[int],
    ) -> bool:
        """Whether result `number` may be written to the cell while the operands are being read."""
        if not self.at.is_free(cell) or cell in taken:
            return False
        return all((o, number) in pairs for o, c in enumerate(operands) if c == cell)

    # -- control flow --------------------------------------------------------------------------

    def _call(self, scope: Scope, instruction: Instruction) -> Steps:
        """A call is its callee, in place; async-start holds operands, result, and context."""
        (callee,) = list(instruction.called_computations())[:1]
        operands = self._operands(scope, instruction)
        sizes = leaf_sizes(instruction.shape)
        first = len(operands) if instruction.opcode == "async-start" else 0
        count = leaf_count(callee.root.shape)
        wanted = [scope.wanted.get((instruction, first + n)) for n in range(count)]
        results = yield self._computation(callee, operands, wanted, scope.nodes, settle=False)
        self.at.tick(instruction)
        for number, cell in enumerate((*operands[:first], *results)):
            self.at.touch(cell)
            self.at.bind(scope, (instruction, number), cell)
        for number in range(first + count, len(sizes)):
            cell = self.at.new(Region.ARENA, sizes[number], instruction)
            self.at.touch(cell)
            self.at.bind(scope, (instruction, number), cell)
        return []

    def _loop(self, scope: Scope, instruction: Instruction) -> Steps:
        """One cell per leaf of the state: initial value, parameter, body's root and result."""
        condition, body = instruction.attributes["condition"], instruction.attributes["body"]
        assert isinstance(condition, Computation), "a while has a condition"
        assert isinstance(body, Computation), "a while has a body"
        kept, unread = self.schedule.invariant[body], self.schedule.unread[body]
        state = self._state(scope, instruction, kept, unread)
        pin = (instruction, -1)
        self.at.pin(state, pin)
        first: list[Node] = []
        seen = [NOTHING if n in unread else cell for n, cell in enumerate(state)]
        (predicate,) = yield self._computation(condition, seen, [None], first, settle=False)
        self.at.tick(instruction)
        self.at.touch(predicate)
        self.at.unpin(state, pin)
        targets = [None if n in kept else cell for n, cell in enumerate(state)]
        nodes: list[Node] = []
        yield self._computation(body, seen, targets, nodes, settle=True)
        scope.nodes.append(Loop(instruction, tuple(first), predicate, tuple(nodes)))
        self.at.tick(instruction)
        for number, cell in enumerate(state):
            self.at.touch(cell)
            if number not in kept:
                self.at.define(scope, (instruction, number), cell)
        return []

    def _state(
        self,
        scope: Scope,
        instruction: Instruction,
        kept: frozenset[int],
        unread: frozenset[int],
    ) -> list[int]:
        """The cells of a loop's state, filled: the initial values' own where they die here.

        kept: leaves that no iteration changes; unread: those of them that none looks at.
        """
        self.at.tick(instruction)
        initial = self._operands(scope, instruction)
        lent = {initial[n] for n in kept - unread}
        state: list[int] = []
        for number, cell in enumerate(initial):
            size = self.at.cells[cell].size
            if (
                number in kept
                or not size
                or (self.at.is_free(cell) and cell not in lent and cell not in state)
            ):
                state.append(cell)
            else:
                target = scope.wanted.get((instruction, number))
                if (
                    target is None
                    or not self.at.is_free(target)
                    or target in initial
                    or target in state
                ):
                    target = self.at.new(Region.ARENA, size, instruction)
                scope.nodes.append(Move(cell, target, size))
                self.at.clear(target)
                state.append(target)
        for cell in (*initial, *state):
            self.at.touch(cell)
        return state

    def _branch(self, scope: Scope, instruction: Instruction) -> Steps:
        """Every branch puts its root into the same cells."""
        self.at.tick(instruction)
        selector = self._operands(scope, instruction)[0]
        self.at.touch(selector)
        branches = list(instruction.called_computations())
        results = self._branch_results(scope, instruction, branches, selector)
        planned = []
        for number, branch in enumerate(branches):
            operand = instruction.operands[number + 1]
            bound = [
                self._of(scope, self.schedule.resolve(operand, n), size)
                for n, size in enumerate(leaf_sizes(operand.shape))
            ]
            nodes: list[Node] = []
            for cell in bound:
                self.at.touch(cell)
            yield self._computation(branch, bound, results, nodes, settle=True)
            planned.append(tuple(nodes))
        scope.nodes.append(Branch(instruction, selector, tuple(planned)))
        self.at.tick(instruction)
        for number, cell in enumerate(results):
            self.at.touch(cell)
            self.at.define(scope, (instruction, number), cell)
        return []

    def _branch_results(
        self,
        scope: Scope,
        instruction: Instruction,
        branches: list[Computation],
        selector: int,
    ) -> list[int]:
        """Cells for a conditional's result: where it is wanted, a dying operand's, or new ones."""
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
                    and self.at.cells[c].size == size
                    and self.at.is_free(c)
                ),
                None,
            )
            results.append(
                self.at.new(Region.ARENA, size, instruction) if chosen is None else chosen
            )
        return results

    def _origin(
        self, scope: Scope, root: Instruction, leaf: int, operand: Instruction
    ) -> int | None:
        """The cell of the operand leaf that a branch updates in place into its result, if so."""
        source = self.schedule.resolve(root, leaf)
        while source is not None and source[0].opcode != "parameter":
            source = self._ancestor(source)
        if source is None:
            return None
        outer = self.schedule.resolve(operand, source[1])
        return None if outer is None else scope.cells.get(outer)

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

    # -- values and cells ----------------------------------------------------------------------

    def _want(self, scope: Scope, source: Source, target: int) -> None:
        """Note where a value is wanted in the end; what it is updated from is wanted there too."""
        following: Source | None = source
        while following is not None and following not in scope.wanted:
            scope.wanted[following] = target
            instruction, leaf = following
            if instruction.opcode == "while":
                following = self.schedule.resolve(instruction.operands[0], leaf)
                continue
            implementation = self.implementations.get(instruction)
            pairs = implementation.must_alias if implementation else ()
            partner = next((o for o, r in pairs if r == leaf), None)
            if partner is None:
                return
            following = self.schedule.operand_sources(instruction)[partner]

    def _settle(self, scope: Scope, found: list[int], targets: Sequence[int | None]) -> None:
        """Move the root's leaves to their targets, all at once."""
        self.at.tick(None)
        wanted = [
            (source, target, self.at.cells[target].size)
            for source, target in zip(found, targets, strict=True)
            if target is not None and target != source and self.at.cells[target].size
        ]

        def spare(size: int) -> int:
            return self.at.new(Region.ARENA, size, None)

        for source, target, size in in_sequence(wanted, spare):
            self.at.touch(source)
            self.at.touch(target)
            scope.nodes.append(Move(source, target, size))
        for cell in (*found, *(t for t in targets if t is not None)):
            self.at.touch(cell)

    def _operands(self, scope: Scope, instruction: Instruction) -> list[int]:
        """The cell of every operand leaf."""
        resolve = self.schedule.resolve
        return [
            self._of(scope, resolve(operand, leaf), size)
            for operand in instruction.operands
            for leaf, size in enumerate(leaf_sizes(operand.shape))
        ]

    def _of(self, scope: Scope, source: Source | None, size: int) -> int:
        """The cell of a value; constants and undefined values get theirs when first asked for."""
        if not size:
            return NOTHING
        if source is None:
            return self.at.new(Region.ARENA, size, None)
        found = scope.cells.get(source)
        if found is None:
            found = scope.cells[source] = self._constant(source, size)
        return found

    def _constant(self, source: Source, size: int) -> int:
        instruction, leaf = source
        assert instruction.opcode in SOURCES, f"{instruction.name} runs before its users"
        key: object = size if instruction.opcode != "constant" else source
        found = self.constants.get(key)
        if found is None:
            found = self.at.new(Region.CONSTANT, size, instruction, index=leaf)
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
