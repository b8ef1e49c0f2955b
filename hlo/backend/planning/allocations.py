"""BufferPlan: what runs in which order, and the allocations that it reads and writes.

Nodes name allocations by number. Allocations of the arena have an offset and the interval of plan
time in which they are in use; the plan draws them as a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct, field

from hlo.backend.ir.kernel import Preparing
from hlo.backend.planning.implementations import Implementation
from hlo.backend.planning.schedule import Schedule
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction


class AllocationKind(Enum):
    """Whose memory an allocation is."""

    ARENA = "arena"
    ARGUMENT = "argument"
    RESULT = "result"
    DONATED = "donated"  # an argument that becomes a result
    CONSTANT = "constant"
    ALIGNED = "aligned"  # an argument's memory where it begins a line, else its spare's
    SPARE = "spare"  # room for a copy of an argument that does not begin a line
    PASSED = "passed"  # what a routine reads of its caller's, whose address each call gives
    RETURNED = "returned"  # what a routine writes of its caller's


_READ_ONLY = frozenset(
    {
        AllocationKind.ARGUMENT,
        AllocationKind.CONSTANT,
        AllocationKind.ALIGNED,
        AllocationKind.PASSED,
    }
)


class Allocation(Struct, eq=False):
    """Memory of one value, or of several one after another.

    index: the number of the argument leaf, result leaf or constant leaf that it is.

    start, end: the plan's clock at its first and last use; offset: in the arena.
    result: the result leaf that a donated argument becomes.
    held: the instructions whose values it holds, one after the other or as names of one value.
    prepared: what is done to a constant's bytes when the program is compiled.
    """

    kind: AllocationKind
    size: int
    instruction: Instruction | None = None
    index: int = 0
    start: int = -1
    end: int = -1
    offset: int = 0
    result: int = -1
    held: list[Instruction] = field(default_factory=list)
    prepared: tuple[Preparing, ...] = ()

    def record(self, instruction: Instruction) -> None:
        """A value of the instruction is in the allocation from now on."""
        if not self.held or self.held[-1] is not instruction:
            self.held.append(instruction)

    @property
    def is_writable(self) -> bool:
        return self.kind not in _READ_ONLY

    def __str__(self) -> str:
        place = f"{self.kind.value} {self.index}"
        if self.kind is AllocationKind.ARENA:
            place = f"arena +{self.offset}"
        elif self.kind is AllocationKind.DONATED:
            place += f" = result {self.result}"
        if self.prepared:
            place += " packed"
        owner = "-" if self.instruction is None else self.instruction.name
        return f"{place:<22} {self.size:>12} bytes  live [{self.start}, {self.end}]  {owner}"


class Run(Struct, frozen=True, eq=False):
    """An instruction's kernels: one allocation per operand leaf, result leaf and temporary."""

    instruction: Instruction
    implementation: Implementation
    operands: tuple[int, ...]
    results: tuple[int, ...]
    temporaries: tuple[int, ...] = ()

    @property
    def allocations(self) -> tuple[int, ...]:
        return (*self.operands, *self.results, *self.temporaries)


class Move(Struct, frozen=True):
    """Copy the bytes of one allocation to another."""

    source: int
    target: int
    size: int


class Align(Struct, frozen=True):
    """Let an aligned allocation be the source's memory, or the spare's with a copy of the
    source."""

    source: int
    target: int
    spare: int
    size: int


class Loop(Struct, frozen=True, eq=False):
    """Repeat: run `condition`; end when the predicate's allocation holds false; run `body`.

    iterations: of the HLO loop in one run of `body`; the inner ones end it by a Branch.
    """

    instruction: Instruction
    condition: tuple[Node, ...]
    predicate: int
    body: tuple[Node, ...]
    iterations: int = 1


class Branch(Struct, frozen=True, eq=False):
    """Run the branch that the selector says.

    by_predicate: it is a pred, true is branch 0; else an s32, out of range is the last branch.
    """

    instruction: Instruction
    selector: int
    branches: tuple[tuple[Node, ...], ...]
    by_predicate: bool


class Call(Struct, frozen=True, eq=False):
    """Run a routine. pairs: an allocation that it names, and the one whose memory that is in this
    call."""

    routine: int
    pairs: tuple[tuple[int, int], ...]


Node = Run | Move | Align | Loop | Branch | Call


class Routine(Struct, frozen=True, eq=False):
    """A computation that is planned once for several calls; it calls routines before it only."""

    computation: Computation
    nodes: tuple[Node, ...]


class BufferPlan(Struct, frozen=True, eq=False):
    """The program's nodes, its allocations, and the size of the arena.

    moments: what runs at each time of the plan's clock. spare_bytes: of all spares together.
    routines: what calls run, by number. early: what is to run before the program, on arguments that
    every run of it has; what that writes are further arguments.
    """

    schedule: Schedule
    nodes: tuple[Node, ...]
    allocations: tuple[Allocation, ...]
    arena_bytes: int
    moments: tuple[Instruction | None, ...] = ()
    spare_bytes: int = 0
    routines: tuple[Routine, ...] = ()
    early: tuple[Run, ...] = ()

    def __str__(self) -> str:
        rows = [f"arena: {self.arena_bytes} bytes"]
        rows += [f"  c{n:<5} {allocation}" for n, allocation in enumerate(self.allocations) if n]
        for number, routine in enumerate(self.routines):
            rows.append(f"routine {number}: {routine.computation.name}")
            rows += ["  " + row for row in _rows(routine.nodes)]
        rows += ["steps:", *("  " + row for row in _rows(self.nodes))]
        return "\n".join(rows)


def _rows(nodes: tuple[Node, ...]) -> Iterator[str]:
    """One line a node, what a loop or a branch holds indented."""
    stack: list[tuple[str, Iterator[Node | str]]] = [("", iter(nodes))]
    while stack:
        indent, rest = stack[-1]
        node = next(rest, None)
        match node:
            case None:
                stack.pop()
            case str():
                yield indent + node
            case Run(instruction=i):
                names = ", ".join(f"c{c}" for c in node.operands)
                results = ", ".join(f"c{c}" for c in node.results)
                yield f"{indent}{results} = {i.opcode}({names})  // {i.name}"
            case Move():
                yield f"{indent}c{node.target} = copy(c{node.source})  // {node.size} bytes"
            case Align():
                yield f"{indent}c{node.target} = aligned(c{node.source})  // {node.size} bytes"
            case Call():
                given = ", ".join(f"c{allocation} = c{source}" for allocation, source in node.pairs)
                yield f"{indent}call routine {node.routine}({given})"
            case Loop():
                yield f"{indent}while  // {node.instruction.name}"
                end: tuple[Node | str, ...] = (f"if not c{node.predicate}: end",)
                stack.append((indent + "  ", iter((*node.condition, *end, *node.body))))
            case Branch():
                yield f"{indent}conditional c{node.selector}  // {node.instruction.name}"
                parts: list[Node | str] = []
                for number, branch in enumerate(node.branches):
                    parts += [f"branch {number}:", *branch]
                stack.append((indent + "  ", iter(parts)))
