"""Block steps: a block's program as LLVM IR, inside the loop over blocks (blocks.py).

    Program of a block --BlockSteps.write--> calls of its kernels on rows of the table of addresses

Loops and branches of the program are the block's own: their counters and predicates lie in the
thread's scratch memory like what else passes between its kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.blocks.cutting import CutBody, Placed, Total
from hlo.analysis.while_loops.loop_state import counter
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.named import Named
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.program import (
    BranchStep,
    CopyStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
    nested,
)
from hlo.backend.planning.slots import HEADER_SLOTS

TABLE = Value("%table", "ptr")  # of a block's addresses


def are_plain(steps: Sequence[Step]) -> bool:
    """Whether a block can run them: kernels, copies, loops, branches that a byte chooses."""
    for step in nested(steps):
        is_branch = isinstance(step, BranchStep) and step.by_predicate
        if not is_branch and not isinstance(step, KernelStep | CopyStep | LoopStep):
            return False
    return True


def has_open_loops(steps: Sequence[Step]) -> bool:
    """Whether some loop's trips are not known before it runs."""
    loops = (step for step in nested(steps) if isinstance(step, LoopStep))
    return any(counter(loop.instruction) is None for loop in loops)


class BlockSteps:
    """Writes the steps of a block. row: how many blocks add to one sum. bounds: what bounded
    kernels are called with.
    """

    def __init__(
        self,
        w: Writer,
        program: Program,
        body: CutBody,
        row: int,
        bounds: tuple[Value, Value] | None = None,
    ) -> None:
        self.w, self.named = w, Named(w)
        self.bounds = bounds
        self.program, self.body, self.row = program, body, row
        self.names = [symbol(k) for k in program.kernels]
        self._count = 0

    def write(self) -> None:
        """All of them."""
        for step in self.program.steps:
            self._in_turn(step)

    def _number(self) -> int:
        """A number that no other step has."""
        self._count += 1
        return self._count

    def _in_turn(self, step: Step) -> None:
        """A step; what not every block runs, where the block is the last of its row, or is not."""
        in_last = self._turn(step)
        if in_last is None:
            self._steps((step,))
            return
        w, n, number = self.w, self.named, self._number()
        compared = n.compare(
            f"turn{number}", f"icmp {'eq' if in_last else 'ne'}",
            Value("%inner", "i64"), w.int(self.row - 1),
        )  # fmt: skip
        w.branch_if(compared, f"in.turn{number}", f"passed{number}")
        w.label(f"in.turn{number}")
        self._steps((step,))
        w.branch(f"passed{number}")
        w.label(f"passed{number}")

    def _turn(self, step: Step) -> bool | None:
        """Whether the last block of a row runs a step, or all others do; None: all do."""
        if isinstance(step, CopyStep):
            allocation = self._allocation(step.target)
            if allocation is None or allocation.kind is not AllocationKind.DONATED:
                return None
            total = self.body.parameters[allocation.index]
            assert isinstance(total, Total | Placed), "only these lie where their results do"
            return total.in_last if isinstance(total, Total) else None
        if isinstance(step, BranchStep) and step.branches[0]:
            step = step.branches[0][0]
        return self.body.turns.get(step.instruction) if isinstance(step, KernelStep) else None

    def _allocation(self, slot: int) -> Allocation | None:
        """What a slot of the table holds; None: scratch memory."""
        number = self.program.table[slot - HEADER_SLOTS]
        return self.program.plan.allocations[number] if number >= 0 else None

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case LoopStep():
                    self._loop(step)
                case BranchStep():
                    self._branch(step)
                case KernelStep():
                    self._call(step)
                case CopyStep():
                    number = self._number()
                    source = self._held("from", step.source, number)
                    target = self._held("into", step.target, number)
                    self.w.copy_bytes(target, source, self.w.int(step.size))
                case _:
                    raise AssertionError("steps of a block are plain")

    def _loop(self, step: LoopStep) -> None:
        """while (condition) body: tested at its head, with a count, by which it can be asked
        whether to stop (entry/polling.py).
        """
        w, n, number = self.w, self.named, self._number()
        before, head, trip, latch, done = (
            f"{name}{number}" for name in ("before", "while", "trip", "again", "ended")
        )
        following = Value(f"%trips.next{number}", "i64")
        w.branch(before)
        w.label(before)
        w.branch(head)
        w.label(head)
        trips = w.phi("i64", (w.int(0), before), (following, latch), name=f"%trips{number}").value
        self._steps(step.condition)
        w.branch_if(self._is_told(step.predicate, number), trip, done)
        w.label(trip)
        self._steps(step.body)
        w.branch(latch)
        w.label(latch)
        n.binary(following.text[1:], "add", trips, w.int(1))
        w.branch(head)
        w.label(done)

    def _branch(self, step: BranchStep) -> None:
        """if (predicate) first else second."""
        w, number = self.w, self._number()
        first, second, end = (f"{name}{number}" for name in ("holds", "fails", "after"))
        branches = [(first, step.branches[0]), (second, step.branches[1])]
        ways = [label if steps else end for label, steps in branches]
        w.branch_if(self._is_told(step.selector, number), *ways)
        for label, steps in branches:
            if steps:
                w.label(label)
                self._steps(steps)
                w.branch(end)
        w.label(end)

    def _is_told(self, slot: int, number: int) -> Value:
        """Whether the byte at the address in a slot is not zero."""
        told = self.named.load(f"told{number}", "i8", self._held("place", slot, number), 1)
        return self.named.compare(f"is.told{number}", "icmp ne", told, self.w.int(0, "i8"))

    def _held(self, name: str, slot: int, number: int) -> Value:
        """The address that a slot of the table holds."""
        place = self.named.address(f"{name}.slot{number}", TABLE, self.w.int(slot), "ptr")
        return self.named.load(f"{name}.at{number}", "ptr", place)

    def _call(self, step: KernelStep) -> None:
        w, number = self.w, self._number()
        row = self.named.address(f"row{number}", TABLE, w.int(step.slot), "ptr")
        between = w.int(0), w.int(step.units)
        if self.program.kernels[step.kernel].is_bounded:
            assert self.bounds is not None, "a block of what is seen"
            between = self.bounds
        w.call(self.names[step.kernel], row, *between)
