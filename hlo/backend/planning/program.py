"""Program: steps in order, and the table of addresses that they work on.

    table slot -> allocation; a step names the slot where its row of addresses begins

The table is memory that belongs to one run (a frame): arena and constant addresses are filled in
when the frame is made, those of arguments and results by every call. So a step costs no address
arithmetic, in loops neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hlo.backend.ir.kernel import Kernel
from hlo.backend.planning.allocations import BufferPlan
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.backend.planning.team import Team
from hlo.ir.instruction import Instruction


class KernelStep(Struct, frozen=True, eq=False):
    """Run all units of a kernel on a row of `width` addresses.

    chunks > 1: split over the threads; stride: slots between the rows of two threads (0: one row).
    region > 0: steps in a row of the same region may run at once. us: the time of one on one core;
    cold_us: the same where all bytes come from memory; packing_us: of packing what units share.
    at_ends: threads claim chunks at both ends, so that each meets its part again in its cache.
    """

    kernel: int
    slot: int
    width: int
    units: int
    chunks: int
    stride: int
    instruction: Instruction
    region: int = 0
    us: float = 0.0
    cold_us: float = 0.0
    packing_us: float = 0.0
    at_ends: bool = False


class CopyStep(Struct, frozen=True):
    """Copy bytes between the allocations in two slots."""

    source: int
    target: int
    size: int
    us: float


class AlignStep(Struct, frozen=True):
    """Put the address in `source` into all slots of an allocation where it begins a line, else
    `spare`'s, and there a copy of the bytes.
    """

    source: int
    spare: int
    allocation: int
    size: int
    us: float
    line_bytes: int


class HostStep(Struct, frozen=True, eq=False):
    """Evaluate an instruction in Python on the arrays of a row: operand leaves, result leaves.

    is_handler: it is a custom call of a handler of XLA's FFI, which native code calls.
    """

    number: int
    slot: int
    instruction: Instruction
    us: float
    is_handler: bool = False


class LoopStep(Struct, frozen=True, eq=False):
    """Run `condition`, leave when the byte in the predicate's slot is 0, run `body`, repeat.

    trip_us: of one trip; us: of all of them, where the text says how many there are, else of one;
    trips: how many, None where it does not say.
    """

    condition: tuple[Step, ...]
    predicate: int
    body: tuple[Step, ...]
    instruction: Instruction
    us: float
    trip_us: float
    trips: int | None


class BranchStep(Struct, frozen=True, eq=False):
    """Run one of the branches; by_predicate: a byte chooses (0: the second), else an s32."""

    selector: int
    by_predicate: bool
    branches: tuple[tuple[Step, ...], ...]
    instruction: Instruction
    us: float


class CallStep(Struct, frozen=True):
    """Run a routine, after putting the address in a slot into all slots of an allocation, for each
    pair.

    may_fail: whether a host call is in it. us: of the call by itself.
    """

    routine: int
    pairs: tuple[tuple[int, int], ...]
    may_fail: bool
    us: float


Step = KernelStep | CopyStep | AlignStep | HostStep | LoopStep | BranchStep | CallStep


class Program(Struct, frozen=True, eq=False):
    """A buffer plan as steps on a table of addresses; each carries its estimate in microseconds.

    table: the allocation of every slot after the header; a negative entry -1-t stands for thread
    t's scratch memory.
    kernels: each distinct one once. hosts: the host steps by number.
    cost_us: a rough estimate of one run.
    team: who runs its loops, by how much parallel work it holds.
    watched: whether a run may be so long that it has to be stoppable.
    routines: the steps that calls run.
    call_us, share_us: what a call and a thread's part in a loop cost (hlo/machine.py).
    """

    plan: BufferPlan
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    table: tuple[int, ...]
    hosts: tuple[HostStep, ...]
    scratch_bytes: int
    threads: int
    cost_us: float
    team: Team
    watched: bool = False
    routines: tuple[tuple[Step, ...], ...] = ()
    call_us: float = 0.0
    share_us: float = 0.0

    @property
    def is_listed(self) -> bool:
        """Whether it is a list of kernels, run one after the other on the caller's thread, and
        nothing else: such a list needs no code of its own.
        """
        if self.watched or self.team is not Team.ALONE or not self.steps:
            return False
        return all(isinstance(step, KernelStep) and step.chunks == 1 for step in self.steps)

    @property
    def working_bytes(self) -> int:
        """Bytes of the scratch memory of all threads that have any: one alone where none split."""
        return max((-number for number in self.table if number < 0), default=0) * self.scratch_bytes

    def __str__(self) -> str:
        head = [
            f"program: {len(self.kernels)} kernels, {len(self.table)} slots, arena "
            f"{self.plan.arena_bytes} bytes, scratch {self.threads} x {self.scratch_bytes} bytes, "
            f"about {self.cost_us:.1f} us, {self.team.value}"
            f"{', can be stopped' if self.watched else ''}"
        ]
        for number, steps in enumerate(self.routines):
            head += [f"routine {number}:", *("  " + row for row in self._rows(steps))]
        if self.routines:
            head.append("steps:")
        return "\n".join([*head, *("  " + row for row in self._rows(self.steps))])

    @property
    def slots(self) -> dict[int, list[int]]:
        """The slots of every allocation."""
        found: dict[int, list[int]] = {}
        for slot, allocation in enumerate(self.table, HEADER_SLOTS):
            found.setdefault(allocation, []).append(slot)
        return found

    def _row(self, slot: int, count: int) -> str:
        allocations = self.table[slot - HEADER_SLOTS : slot - HEADER_SLOTS + count]
        return ", ".join(f"c{c}" if c >= 0 else "scratch" for c in allocations)

    def _rows(self, steps: tuple[Step, ...]) -> Iterator[str]:
        """One line a step, what a loop or a branch holds indented."""
        stack: list[tuple[str, Iterator[Step | str]]] = [("", iter(steps))]
        while stack:
            indent, rest = stack[-1]
            step = next(rest, None)
            match step:
                case None:
                    stack.pop()
                case str():
                    yield indent + step
                case KernelStep(instruction=i):
                    split = f" in {step.chunks} chunks" if step.chunks > 1 else ""
                    split += f", region {step.region}" if step.region else ""
                    yield f"{indent}kernel k{step.kernel} [{step.units} units{split}] // {i.name}"
                case CopyStep():
                    row = f"{self._row(step.target, 1)} <- {self._row(step.source, 1)}"
                    yield f"{indent}copy {row}, {step.size} bytes"
                case AlignStep():
                    yield f"{indent}align c{step.allocation} <- {self._row(step.source, 1)}"
                case HostStep(instruction=i):
                    yield f"{indent}host {i.opcode} // {i.name}"
                case CallStep():
                    given = ", ".join(f"c{c} = {self._row(slot, 1)}" for slot, c in step.pairs)
                    yield f"{indent}call routine {step.routine}({given})"
                case LoopStep():
                    yield f"{indent}while // {step.instruction.name}"
                    test = f"leave unless {self._row(step.predicate, 1)}"
                    inner = iter((*step.condition, test, *step.body))
                    stack.append((indent + "  ", inner))
                case BranchStep():
                    selector = self._row(step.selector, 1)
                    yield f"{indent}conditional {selector} // {step.instruction.name}"
                    parts: list[Step | str] = []
                    for number, branch in enumerate(step.branches):
                        parts += [f"branch {number}:", *branch]
                    stack.append((indent + "  ", iter(parts)))


def nested(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps and all that they hold."""
    stack = list(reversed(steps))
    while stack:
        step = stack.pop()
        yield step
        match step:
            case LoopStep():
                stack += (*reversed(step.body), *reversed(step.condition))
            case BranchStep():
                stack += [s for branch in reversed(step.branches) for s in reversed(branch)]


def kernel_steps(program: Program) -> Iterator[KernelStep]:
    """The program's steps that run kernels, in order, those of loops and branches too."""
    for steps in (program.steps, *program.routines):
        yield from (step for step in nested(steps) if isinstance(step, KernelStep))
