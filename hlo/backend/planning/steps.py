"""Steps: the buffer plan's nodes as steps on a table of addresses.

    BufferPlan --program_of--> Program

Rows of the table are shared by steps that work on the same allocations, kernels by steps with the
same text. Here is also decided, for the whole program at once, which kernels are split over
threads: waking sleeping threads costs more than most programs take (docs/measurements.md 5). Does
not know: LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.analysis.legality import is_contraction
from hlo.analysis.loop_state import ASSUMED_TRIPS, counter
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
from hlo.backend.planning.regions import ParallelRegion, regions
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.ir.instruction import Instruction
from hlo.machine import Machine, Rates
from hlo.ops.custom_call import is_handled

# A program wakes the pool for so many times as much parallel work as waking it costs.
WAKE = 3.0
# The next three are multiples of what a thread's part in a loop costs (Rates.share_us).
SPLIT = 4.0  # Kernels that take so long are split.
GAIN = 1.0  # The least that a split saves where an iteration's bytes stay near one processor.
REGION = 12.0  # Small kernels that take so long together are one region.
CHUNK = 2.0
STREAM = 1.4  # A kernel whose bytes take so many times as long as its arithmetic is a stream.
CHUNKS_PER_THREAD = 4
# A loop may take so many times its shortest time, so that late threads do little harm.
UNEVEN = 1.1
ENDLESS_US = 1e15  # The longest that a routine is estimated to run.
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


def kernel_us(
    kernel: Kernel, instruction: Instruction, rates: Rates, *, hot: bool = False
) -> float:
    """The estimated time on one core of a kernel that works for an instruction.

    hot: its bytes are in the second-level cache from the last iteration.
    """
    bandwidth = rates.memory_bytes
    if hot:
        is_product = is_contraction(instruction)
        bandwidth = rates.cached_factor_bytes if is_product else rates.cached_bytes
    arithmetic = _arithmetic_us(kernel, instruction, rates)
    return rates.call_us + max(kernel.bytes_moved / bandwidth, arithmetic)


def _arithmetic_us(kernel: Kernel, instruction: Instruction, rates: Rates) -> float:
    if not kernel.flops:
        return 0.0
    if not is_contraction(instruction):
        return kernel.flops / rates.elementwise_ops
    finished = [m for c in instruction.called_computations() for m in c.instructions]
    finishing = sum(op_cost(m) * m.shape.size for m in finished if is_elementwise(m))
    return kernel.flops / rates.contracted_ops + finishing / rates.elementwise_ops


def copy_us(size: int, rates: Rates) -> float:
    """The estimated time of a copy of so many bytes on one core."""
    return rates.call_us + size / rates.copied_bytes


def is_split_copy(size: int, machine: Machine) -> bool:
    """Whether a copy is split over threads: more than stays in a processor's cache beside it."""
    return size >= machine.second_cache.bytes // 2


def is_met_again(kernel: Kernel, instruction: Instruction, threads: int, machine: Machine) -> bool:
    """Whether threads best take the same parts of a kernel each time, from both its ends.

    A stencil of 400 us in a loop took 250 us so. But bytes that pass through the threads' caches
    come 10 to 15 % faster out of the shared one where both threads have read them (rows summed,
    arrays joined: 6 MB and more); of a kernel that computes more than it reads neither is seen.
    """
    bytes_us = kernel.bytes_moved / machine.rates.memory_bytes
    is_stream = bytes_us > STREAM * _arithmetic_us(kernel, instruction, machine.rates)
    return not is_stream or kernel.bytes_moved <= threads * machine.second_cache.bytes


def is_split(kernel: Kernel, us: float, crossing: int | None, rates: Rates) -> bool:
    """Whether a kernel that takes so long on one core is split over threads.

    crossing: in a loop whose bytes stay in one processor's cache, those of which a split has half
    written in another's: a product of 28 us and 128 KiB took 23 us in two parts, a stencil of 4 us,
    of which a processor meets its own part again, 3 us, one of 7.5 us and 16 KiB of a step of 12 us
    made the step 8.5 us. None outside such a loop.
    """
    if kernel.units < 2 or us < SPLIT * rates.share_us:
        return False
    if crossing is None:
        return True
    return (us - crossing / rates.crossing_bytes) / 2 >= GAIN * rates.share_us


def packing_us(kernel: Kernel, rates: Rates) -> float:
    """The estimated time of packing what a run of its units shares."""
    return kernel.packed_bytes / rates.packed_bytes


def chunks_of(kernel: Kernel, us: float, threads: int, most: int, rates: Rates) -> int:
    """At most `most` chunks: fewer where each of them would pack again what its units share."""
    if not kernel.packed_bytes or most <= threads:
        return most
    unit_us, packing = us / kernel.units, packing_us(kernel, rates)

    def longest_us(chunks: int) -> float:
        units = -(-kernel.units // chunks)
        packings = -(-units * kernel.packed_runs // kernel.units)
        return -(-chunks // threads) * (units * unit_us + packings * packing)

    tried = range(min(threads, most), most + 1)
    return max(n for n in tried if longest_us(n) <= UNEVEN * min(map(longest_us, tried)))


def _crossing(
    plan: BufferPlan, kernel: Kernel, allocations: Iterable[int], changing: frozenset[int] | None
) -> int | None:
    """Bytes of a kernel's allocations that change in a hot loop and that threads do not keep
    apart."""
    if changing is None:
        return None
    shared = {allocation for leaf, allocation in enumerate(allocations) if leaf not in kernel.own}
    return sum(plan.allocations[n].size for n in changing & shared)


def _read(run: Run, changing: frozenset[int] | None) -> frozenset[int] | None:
    """What changes in a hot loop but for what a run only writes: who reads that pays for it."""
    return None if changing is None else changing - (set(run.results) - set(run.operands))


def _weights(plan: BufferPlan, machine: Machine) -> list[tuple[float, bool]]:
    """(time, whether it can be split) of every kernel, copy and host call; branches all counted,
    kernels that a byte holds back not at all.

    Calls of routines: what they take in all.
    """
    routines: list[dict[bool, float]] = []
    for routine in plan.routines:
        both = {True: 0.0, False: 0.0}
        for us, splits in _node_weights(plan, routine.nodes, routines, machine):
            both[splits] = min(both[splits] + us, ENDLESS_US)
        routines.append(both)
    return _node_weights(plan, plan.nodes, routines, machine)


def _node_weights(
    plan: BufferPlan,
    nodes: tuple[Node, ...],
    routines: list[dict[bool, float]],
    machine: Machine,
) -> list[tuple[float, bool]]:
    rates = machine.rates
    found: list[tuple[float, bool]] = []
    stack: list[tuple[Node, float, frozenset[int] | None]] = [(n, 1.0, None) for n in nodes]
    while stack:
        node, trips, changing = stack.pop()
        match node:
            case Move():
                us = trips * copy_us(node.size, rates)
                found.append((us, is_split_copy(node.size, machine)))
            case Loop():
                inner = trips * iterations(node.instruction) / node.iterations
                changed = changing_allocations(plan, node, machine)
                stack += [(n, inner, changed) for n in (*node.condition, *node.body)]
            case Branch():
                stack += [(n, trips, changing) for branch in node.branches for n in branch]
            case Call(routine=number):
                found += [(trips * us, splits) for splits, us in routines[number].items()]
            case Run(implementation=KernelSequence(calls=calls), allocations=allocations):
                for call in (c for c in calls if c.when is None):
                    kernel, row = call.kernel, [allocations[b] for b in call.buffers]
                    us = kernel_us(kernel, node.instruction, rates, hot=changing is not None)
                    crossing = _crossing(plan, kernel, row, _read(node, changing))
                    found.append((trips * us, is_split(kernel, us, crossing, rates)))
            case Run():
                found.append((trips * rates.host_call_us, False))
    return found


def together(plan: BufferPlan, machine: Machine) -> list[ParallelRegion]:
    """Regions of the program's own steps that are worth a parallel loop."""
    rates = machine.rates

    def alone_us(node: Run) -> float | None:
        """The time of a node whose only kernel is not split."""
        assert isinstance(node.implementation, KernelSequence), "host calls are not kernels"
        (call,) = node.implementation.calls
        us = kernel_us(call.kernel, node.instruction, rates)
        return None if call.kernel.units > 1 and us >= SPLIT * rates.share_us else us

    found = regions(plan.nodes, plan.allocations, alone_us)
    least_us = REGION * rates.share_us
    return [region for region in found if len(region.nodes) > 1 and region.us >= least_us]


def changing_allocations(plan: BufferPlan, loop: Loop, machine: Machine) -> frozenset[int] | None:
    """What an iteration writes, if what it works on stays in the cache for the next one."""
    worked_on: dict[int, int] = {}  # bytes of each allocation
    written: set[int] = set()
    stack: list[Node] = [*loop.condition, *loop.body]
    while stack:
        match stack.pop():
            case Move(source=source, target=target, size=size):
                worked_on[source] = worked_on[target] = size
                written.add(target)
            case Call():
                return None
            case Loop(condition=condition, body=body):
                stack += (*condition, *body)
            case Branch(branches=branches):
                stack += [n for branch in branches for n in branch]
            case Run(implementation=KernelSequence(calls=calls)) as run:
                moved = max((call.kernel.bytes_moved for call in calls), default=0)
                for n in run.allocations:
                    worked_on[n] = max(worked_on.get(n, 0), min(moved, plan.allocations[n].size))
                written.update(run.results, run.temporaries)
    stays = sum(worked_on.values()) <= machine.second_cache.bytes // 2
    return frozenset(written) if stays else None


def is_unbounded(plan: BufferPlan) -> bool:
    """Whether a loop runs as often as its values say, in a kernel or around them, or calls are not
    counted one by one."""
    if plan.routines:
        return True
    stack: list[Node] = list(plan.nodes)
    while stack:
        match stack.pop():
            case Loop(instruction=loop, condition=condition, body=body):
                if counter(loop) is None:
                    return True
                stack += (*condition, *body)
            case Branch(branches=branches):
                stack += [n for branch in branches for n in branch]
            case Run(implementation=KernelSequence(calls=calls)):
                if any(call.kernel.is_open for call in calls):
                    return True
    return False


def iterations(loop: Instruction) -> int:
    """How often a loop runs: what its counter says, else an assumption."""
    known = counter(loop)
    return ASSUMED_TRIPS if known is None else known.iterations


class _Steps:
    """A program under construction: table rows and kernels so far."""

    def __init__(self, plan: BufferPlan, threads: int, machine: Machine) -> None:
        self.plan = plan
        self.threads = threads
        self.machine = machine
        self.rates = machine.rates
        weights = _weights(plan, machine)
        self.cost_us = sum(us for us, _ in weights)  # The time of a run on one core.
        least_us = WAKE * self.rates.wake_us
        apart = sum(us for us, splits in weights if splits) if threads > 1 else 0.0
        found = together(plan, machine) if threads > 1 and self.cost_us >= least_us else []
        self.splits = threads > 1 and apart + sum(region.us for region in found) >= least_us
        self.regions = {node: n for n, r in enumerate(found, 1) for node in r.nodes}
        self.table: list[int] = []
        self.rows: dict[tuple[int, ...], int] = {}
        self.kernels: dict[Kernel, int] = {}
        self.hosts: list[HostStep] = []
        self.routines: list[tuple[Step, ...]] = []
        self.failing: set[int] = set()  # routines that a host call is in
        self.may_fail = False
        self.scratch_bytes = 0
        self.changing: frozenset[int] | None = None

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
            self.splits,
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
                    allocations, changing = node.allocations, _read(node, self.changing)
                    for call in calls:
                        row = tuple(allocations[b] for b in call.buffers)
                        region = self.regions.get(node, 0) if self.splits else 0
                        step: Step = self._step(
                            call.kernel, row, node.instruction, changing, region
                        )
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
            return self._step(copy_kernel(node.size), row, instruction, self.changing)
        source, target = self._row((node.source,)), self._row((node.target,))
        return CopyStep(source, target, node.size, copy_us(node.size, self.rates))

    def _call(self, node: Call) -> CallStep:
        pairs = tuple((self._row((source,)), allocation) for allocation, source in node.pairs)
        self.may_fail |= node.routine in self.failing
        return CallStep(node.routine, pairs, node.routine in self.failing, self.rates.call_us)

    def _loop(self, node: Loop) -> LoopStep:
        predicate = self._row((node.predicate,))
        outer, self.changing = self.changing, changing_allocations(self.plan, node, self.machine)
        condition, body = self._steps(node.condition), self._steps(node.body)
        self.changing = outer
        trip_us = _us(condition) + _us(body)
        is_known = counter(node.instruction) is not None
        us = trip_us * iterations(node.instruction) if is_known else trip_us
        return LoopStep(condition, predicate, body, node.instruction, us, trip_us)

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
        changing: frozenset[int] | None,
        region: int = 0,
    ) -> KernelStep:
        number = self.kernels.setdefault(kernel, len(self.kernels))
        us = cold_us = kernel_us(kernel, instruction, self.rates)
        if self.changing is not None:
            us = kernel_us(kernel, instruction, self.rates, hot=True)
        crossing = _crossing(self.plan, kernel, allocations, changing)
        chunks = self._chunks(kernel, us, crossing)
        stride = 0
        if kernel.scratch_bytes:
            self.scratch_bytes = max(self.scratch_bytes, -(-kernel.scratch_bytes // 64) * 64)
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

    def _chunks(self, kernel: Kernel, us: float, crossing: int | None) -> int:
        if not self.splits or not is_split(kernel, us, crossing, self.rates):
            return 1
        wanted = int(us / (CHUNK * self.rates.share_us))
        most = max(2, min(kernel.units, self.threads * CHUNKS_PER_THREAD, wanted))
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
