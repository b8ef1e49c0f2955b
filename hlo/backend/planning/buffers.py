"""Buffer assignment: which bytes hold which value.

    Schedule, Implementations --assign--> BufferPlan: what runs, on which cells; cells in one arena

A cell is memory for one value at a time. Walking the program in order, a result takes, in this
order of preference: the cell that its operand must share, the cell in which it is finally wanted
(a program result, a loop's state), a dying operand's cell where the kernel allows it, a new cell.
Values that control flow hands on (loop state, branch results, call operands) keep their cell; a
copy is inserted only where two values would need one cell at a time. Called computations are
planned once per call site (control_cells.py), within the call budget (routine_cells.py). A cell
that is not an argument, a result or a constant is then given a place in the arena (packing.py).
Source: the value semantics and the copy rules of OP_SEMANTICS_CONTROL.md section 7.
Does not know: LLVM, addresses, threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hlo.backend.kernels.build import Implementations
from hlo.backend.planning.cells import BufferPlan, Move, Node, Region, Run
from hlo.backend.planning.donation import donated_leaves
from hlo.backend.planning.fitting import check_addressable
from hlo.backend.planning.leaves import leaf_count, leaf_sizes
from hlo.backend.planning.legality import CONTROL, SOURCES, is_forwarding
from hlo.backend.planning.occupancy import NOTHING, Scope
from hlo.backend.planning.packing import place_spares
from hlo.backend.planning.routine_cells import RoutineCells
from hlo.backend.planning.schedule import Schedule
from hlo.backend.planning.value_cells import FOREVER, Steps
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction


def assign(schedule: Schedule, implementations: Implementations) -> BufferPlan:
    """Cells for every value, the copies between them, and the arena."""
    assigner = _Assigner(schedule, implementations)
    nodes = assigner.plan()
    check_addressable(assigner.at.cells)
    arena_bytes = assigner.pack()
    cells, moments = tuple(assigner.at.cells), tuple(assigner.at.moments)
    spare_bytes, routines = place_spares(cells), tuple(assigner.routines)
    return BufferPlan(schedule, nodes, cells, arena_bytes, moments, spare_bytes, routines)


class _Assigner(RoutineCells):
    """Plans the program and what runs in it."""

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
        run = self._routine_call if computation in self.shared else self._planned_here
        return (yield run(computation, bound, targets, nodes, settle=settle))

    def _planned_here(
        self,
        computation: Computation,
        bound: list[int],
        targets: Sequence[int | None],
        nodes: list[Node],
        *,
        settle: bool,
    ) -> Steps:
        """Plan a computation for one call of it."""
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
            self._move_all(found, targets, nodes)
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
        partners = {r: o for o, r in sorted(implementation.must_alias, reverse=True)}
        for number, size in enumerate(leaf_sizes(instruction.shape)):
            if not size:
                results.append(NOTHING)
                continue
            partner = partners.get(number)
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
        """Where it is wanted, else over a dying operand, else a new cell.

        The oldest operand's first: in a loop that is the state's, which has to be written anyway.
        """
        number, taken = result
        pairs = self.implementations[instruction].pairs
        target = scope.wanted.get((instruction, number))
        if target is not None and self._may_write(target, number, operands, pairs, taken):
            return target
        for cell in sorted(operands[operand] for operand, other in pairs if other == number):
            fits = self.at.cells[cell].size == size
            if fits and self._may_write(cell, number, operands, pairs, taken):
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
