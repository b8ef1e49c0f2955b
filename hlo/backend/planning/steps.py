"""Steps: the buffer plan's nodes as steps on a table of addresses.

    BufferPlan --program_of--> Program

Rows of the table are shared by steps that work on the same allocations, kernels by steps with the
same text. Which kernels are split over threads is decided for the whole program at once
(splitting.py). Does not know: LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.backend.ir.functions import PARAMETERS, Function
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.ir.named import Named
from hlo.backend.ir.writer import Writer
from hlo.backend.planning.allocations import Align, Branch, BufferPlan, Call, Loop, Move, Node, Run
from hlo.backend.planning.implementations import HostCall
from hlo.backend.planning.program import (
    AlignStep,
    BranchStep,
    CallStep,
    CopyStep,
    HostStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
)
from hlo.backend.planning.regions import ParallelRegion
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.backend.planning.splitting import (
    CHUNK,
    CHUNKS_PER_THREAD,
    Hot,
    chunks_of,
    copy_us,
    hot_loop,
    is_met_again,
    is_split,
    is_split_copy,
    iterations,
    kernel_us,
    packing_us,
    team_of,
    together,
    weights,
    worked_on,
)
from hlo.backend.planning.team import Team
from hlo.ir.instruction import Instruction
from hlo.machine import Machine, aligned
from hlo.ops.custom_targets import is_handled

# Runs that are estimated to take so long, or have no known length, can be stopped.
WATCH_US = 500.0
# Copies from this size on have units on one thread too, to be stoppable between.
LONG_COPY_BYTES = 1 << 25
COPY_UNIT_BYTES = 1 << 16


def program_of(plan: BufferPlan, threads: int, machine: Machine) -> Program:
    """The program, for at most `threads` threads of a machine."""
    return _Steps(plan, threads, machine).program()


def copy_kernel(size: int) -> Kernel:
    """A copy of `size` bytes in units of COPY_UNIT_BYTES."""
    w, (buffers, begin, end) = Writer(), PARAMETERS
    n, unit = Named(w), w.int(COPY_UNIT_BYTES)
    source = n.load("source", "ptr", buffers)
    target = n.load("target", "ptr", n.address("second", buffers, w.int(1), "ptr"))
    first = n.binary("first", "mul", begin, unit)
    reach = n.binary("reach", "mul", end, unit)
    last = n.call("last", "i64", "llvm.umin.i64", reach, w.int(size))
    moved = n.binary("bytes", "sub", last, first)
    at = n.address("from", source, first, "i8")
    w.copy_bytes(n.address("to", target, first, "i8"), at, moved)
    w.ret()
    declared = (
        "declare i64 @llvm.umin.i64(i64, i64)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    )
    units = -(-size // COPY_UNIT_BYTES)
    return Kernel(Function(records=w.records), units, declarations=declared, bytes_moved=2 * size)


def is_unbounded(plan: BufferPlan) -> bool:
    """Whether a loop runs as often as its values say, in a kernel or around them, or calls are not
    counted one by one."""
    if plan.routines:
        return True
    stack: list[Node] = list(plan.nodes)
    while stack:
        match stack.pop():
            case Loop(instruction=loop, condition=condition, body=body):
                from hlo.analysis.while_loops.loop_state import counter

                if counter(loop) is None:
                    return True
                stack += (*condition, *body)
            case Branch(branches=branches):
                stack += [n for branch in branches for n in branch]
            case Run(implementation=KernelSequence(calls=calls)):
                if any(call.kernel.is_open for call in calls):
                    return True
    return False


class _Steps:
    """A program under construction: table rows and kernels so far."""

    def __init__(self, plan: BufferPlan, threads: int, machine: Machine) -> None:
        self.plan = plan
        self.threads = threads
        self.machine = machine
        self.rates = machine.rates
        found = weights(plan, machine)
        self.cost_us = sum(us for us, _ in found)  # The time of a run on one core.
        parallel_us, shared = 0.0, list[ParallelRegion]()
        if threads > 1 and team_of(self.cost_us, self.rates) is not Team.ALONE:
            shared = together(plan, machine)
            parallel_us = sum(us for us, splits in found if splits)
            parallel_us += sum(region.us for region in shared)
        self.team = team_of(parallel_us, self.rates)
        self.splits = self.team is not Team.ALONE
        self.regions = {node: n for n, r in enumerate(shared, 1) for node in r.nodes}
        self.table: list[int] = []
        self.rows: dict[tuple[int, ...], int] = {}
        self.kernels: dict[Kernel, int] = {}
        self.hosts: list[HostStep] = []
        self.routines: list[tuple[Step, ...]] = []
        self.failing: set[int] = set()  # routines that a host call is in
        self.may_fail = False
        self.scratch_bytes = 0
        self.hot: Hot | None = None
        self.is_near = False  # Whether a loop's bytes stay in the threads' caches.

    def program(self) -> Program:
        for number, routine in enumerate(self.plan.routines):
            self.may_fail = False
            self.routines.append(self._steps(routine.nodes))
            self.failing |= {number} if self.may_fail else set()
        steps = self._steps(self.plan.nodes)
        return Program(
            self.plan,
            steps,
            tuple(self.kernels),
            tuple(self.table),
            tuple(self.hosts),
            self.scratch_bytes,
            self.threads,
            self.cost_us,
            self.team,
            self.cost_us >= WATCH_US or bool(self.hosts) or is_unbounded(self.plan),
            tuple(self.routines),
            call_us=self.rates.call_us,
            share_us=self.rates.share_us,
        )

    def _steps(self, nodes: tuple[Node, ...]) -> tuple[Step, ...]:
        steps: list[Step] = []
        for node in nodes:
            match node:
                case Run(implementation=HostCall()):
                    is_handler = is_handled(node.instruction)
                    us = self.rates.call_us if is_handler else self.rates.host_call_us
                    number, slot = len(self.hosts), self._row(node.allocations)
                    host = HostStep(number, slot, node.instruction, us, is_handler)
                    self.hosts.append(host)
                    self.may_fail = True
                    steps.append(host)
                case Run(implementation=KernelSequence(calls=calls)):
                    allocations = node.allocations
                    hot = self.hot and self.hot.read_by(node)
                    for call in calls:
                        row = tuple(allocations[b] for b in call.buffers)
                        region = self.regions.get(node, 0) if self.splits else 0
                        step: Step = self._step(call.kernel, row, node.instruction, hot, region)
                        if call.when is not None:
                            step = self._guarded(step, allocations[call.when], node.instruction)
                        steps.append(step)
                case Move():
                    steps.append(self._copy(node))
                case Align():
                    source, spare = self._row((node.source,)), self._row((node.spare,))
                    us, line_bytes = copy_us(node.size, self.rates), self.machine.line_bytes
                    steps.append(AlignStep(source, spare, node.target, node.size, us, line_bytes))
                case Call():
                    steps.append(self._call(node))
                case Loop():
                    steps.append(self._loop(node))
                case Branch():
                    steps.append(self._branch(node))
        return tuple(steps)

    def _copy(self, node: Move) -> KernelStep | CopyStep:
        """A copy; one that is worth splitting over threads, or long, is a kernel."""
        is_split = self.splits and is_split_copy(node.size, self.machine)
        if is_split or (not self.splits and node.size >= LONG_COPY_BYTES):
            allocations = self.plan.allocations
            instruction = (
                allocations[node.target].instruction or allocations[node.source].instruction
            )
            assert instruction is not None, "a large allocation is made by an instruction"
            row = node.source, node.target
            return self._step(copy_kernel(node.size), row, instruction, self.hot)
        source, target = self._row((node.source,)), self._row((node.target,))
        return CopyStep(source, target, node.size, copy_us(node.size, self.rates))

    def _call(self, node: Call) -> CallStep:
        pairs = tuple((self._row((source,)), allocation) for allocation, source in node.pairs)
        self.may_fail |= node.routine in self.failing
        return CallStep(node.routine, pairs, node.routine in self.failing, self.rates.call_us)

    def _loop(self, node: Loop) -> LoopStep:
        from hlo.analysis.while_loops.loop_state import counter

        predicate = self._row((node.predicate,))
        outer, work = (self.hot, self.is_near), worked_on(self.plan, node)
        self.hot = hot_loop(self.plan, work, self.machine)
        near_bytes = self.threads * self.machine.second_cache.bytes
        self.is_near = work is not None and work.size <= near_bytes
        condition, body = self._steps(node.condition), self._steps(node.body)
        self.hot, self.is_near = outer
        trip_us = _us(condition) + _us(body)
        is_known = counter(node.instruction) is not None
        trips = iterations(node.instruction) if is_known else None
        us = trip_us if trips is None else trip_us * trips
        return LoopStep(condition, predicate, body, node.instruction, us, trip_us, trips)

    def _branch(self, node: Branch) -> BranchStep:
        branches = tuple(self._steps(b) for b in node.branches)
        selector = self._row((node.selector,))
        us = self.rates.call_us + max(map(_us, branches), default=0.0)
        return BranchStep(selector, node.by_predicate, branches, node.instruction, us)

    def _guarded(self, step: Step, told: int, instruction: Instruction) -> BranchStep:
        """A step that runs where an allocation's first byte says so."""
        us = self.rates.call_us + step.us
        return BranchStep(self._row((told,)), True, ((step,), ()), instruction, us)

    def _step(
        self,
        kernel: Kernel,
        allocations: tuple[int, ...],
        instruction: Instruction,
        hot: Hot | None,
        region: int = 0,
    ) -> KernelStep:
        number = self.kernels.setdefault(kernel, len(self.kernels))
        us = cold_us = kernel_us(kernel, instruction, self.machine)
        if self.hot is not None:
            us = kernel_us(kernel, instruction, self.machine, hot=True)
        chunks = self._chunks(kernel, us, allocations, hot)
        stride = 0
        if kernel.scratch_bytes:
            self.scratch_bytes = max(self.scratch_bytes, aligned(kernel.scratch_bytes))
            threads = self.threads if chunks > 1 else 1
            row = tuple(c for t in range(threads) for c in (*allocations, -1 - t))
            stride = len(allocations) + 1
        else:
            row = allocations
        return KernelStep(
            number,
            self._row(row),
            len(allocations),
            kernel.units,
            chunks,
            stride,
            instruction,
            region,
            us,
            cold_us=cold_us,
            packing_us=packing_us(kernel, self.rates),
            at_ends=is_met_again(kernel, instruction, self.threads, self.machine),
        )

    def _chunks(
        self, kernel: Kernel, us: float, allocations: Iterable[int], hot: Hot | None
    ) -> int:
        if not self.splits or not is_split(self.plan, kernel, allocations, us, hot, self.rates):
            return 1
        wanted = int(us / (CHUNK * self.rates.share_us))
        # In the threads' caches a chunk that another one takes this time costs more than to wait.
        each = 1 if self.is_near else CHUNKS_PER_THREAD
        most = max(2, min(kernel.units, self.threads * each, wanted))
        return chunks_of(kernel, us, self.threads, most, self.rates)

    def _row(self, allocations: tuple[int, ...]) -> int:
        """The slot where a row of these allocations begins."""
        found = self.rows.get(allocations)
        if found is None:
            found = self.rows[allocations] = HEADER_SLOTS + len(self.table)
            self.table += allocations
        return found


def _us(steps: tuple[Step, ...]) -> float:
    """The estimated time of steps on one core."""
    return sum(step.us for step in steps)
