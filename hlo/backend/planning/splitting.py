"""Splitting: which kernels threads share out among them, who these threads are, how many parts.

    BufferPlan --weights, together--> the parallel work of a program --team_of--> its Team
    kernel, its time --is_split, chunks_of--> parts

Waking a sleeping thread costs more than most programs take (docs/measurements.md 6), and bytes that
another processor has written come slowly: in loops that stay in a processor's cache a kernel is
split only if it computes enough. Times are estimates, of one core. Does
not know: steps, LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.analysis.legality import is_contraction
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.planning.allocations import Branch, BufferPlan, Call, Loop, Move, Node, Run
from hlo.backend.planning.regions import ParallelRegion, regions
from hlo.backend.planning.team import Team
from hlo.ir.instruction import Instruction
from hlo.machine import Machine, Rates

# A program wakes the pool for so many times as much parallel work as waking it costs.
WAKE = 3.0
# The next four are multiples of what a thread's part in a loop costs (Rates.share_us).
JOIN = 16.0  # The least parallel work of a program that takes threads that are awake.
SPLIT = 4.0  # Kernels that take so long are split.
GAIN = 1.0  # The least that a split saves where an iteration's bytes stay near one processor.
REGION = 12.0  # Small kernels that take so long together are one region.
CHUNK = 2.0
STREAM = 1.4  # A kernel whose bytes take so many times as long as its arithmetic is a stream.
CHUNKS_PER_THREAD = 4
# A loop may take so many times its shortest time, so that late threads do little harm. More of it
# is lost for good where factors come from far: 512 x 512 x 512 on Sapphire Rapids took 1.08 times
# as long with 1.1, 196 x 256 x 2048 1.13 times.
UNEVEN = 1.03
ENDLESS_US = 1e15  # The longest that a routine is estimated to run.


class Hot(Struct, frozen=True):
    """A loop whose iterations work on bytes that stay in one processor's cache.

    written: the allocations that an iteration writes; alone: of each allocation, the bytes that
    kernels touch which are not split: these come from one processor, or go to it.
    """

    written: frozenset[int]
    alone: dict[int, int]

    def read_by(self, run: Run) -> Hot:
        """Without what a run only writes: who reads that pays for it. What a kernel reads that is
        not split pays all the same, since it was split where it was written.
        """
        only = {a for a in run.results if a not in run.operands and not self.alone.get(a)}
        return replace(self, written=self.written - only)

    def crossing(self, plan: BufferPlan, kernel: Kernel, allocations: Iterable[int]) -> int:
        """Bytes of a kernel's allocations of which a split has half written in another's cache:
        all that change, but of those that threads keep apart what one of them touches alone.
        """
        crossing: dict[int, int] = {}
        for leaf, a in enumerate(allocations):
            if a in self.written:
                size = plan.allocations[a].size
                own = self.alone.get(a, 0) if leaf in kernel.own else size
                crossing[a] = max(crossing.get(a, 0), min(own, size))
        return sum(crossing.values())


def team_of(parallel_us: float, rates: Rates) -> Team:
    """Who runs the loops of a program with so much parallel work."""
    if parallel_us >= WAKE * rates.wake_us:
        return Team.WOKEN
    return Team.AWAKE if parallel_us >= JOIN * rates.share_us else Team.ALONE


def is_long(kernel: Kernel, us: float, rates: Rates) -> bool:
    """Whether threads could share out a kernel that takes so long on one core."""
    return kernel.units > 1 and us >= SPLIT * rates.share_us


def is_split(
    plan: BufferPlan,
    kernel: Kernel,
    allocations: Iterable[int],
    us: float,
    hot: Hot | None,
    rates: Rates,
) -> bool:
    """Whether a kernel that takes so long on one core is split over threads.

    In a hot loop bytes cross from processor to processor: a product of 28 us and 128 KiB took 23 us
    in two parts, a stencil of 4 us, of which a processor meets its own part again, 3 us, one of
    7.5 us and 16 KiB of a step of 12 us made the step 8.5 us.
    """
    if hot is None or not is_long(kernel, us, rates):
        return is_long(kernel, us, rates)
    crossing_us = hot.crossing(plan, kernel, allocations) / rates.crossing_bytes
    return (us - crossing_us) / 2 >= GAIN * rates.share_us


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
    is_stream = bytes_us > STREAM * _arithmetic_us(kernel, instruction, machine)
    return not is_stream or kernel.bytes_moved <= threads * machine.second_cache.bytes


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


def together(plan: BufferPlan, machine: Machine) -> list[ParallelRegion]:
    """Regions of the program's own steps that are worth a parallel loop."""
    rates = machine.rates

    def alone_us(node: Run) -> float | None:
        """The time of a node whose only kernel is not split."""
        assert isinstance(node.implementation, KernelSequence), "host calls are not kernels"
        (call,) = node.implementation.calls
        us = kernel_us(call.kernel, node.instruction, machine)
        return None if is_long(call.kernel, us, rates) else us

    found = regions(plan.nodes, plan.allocations, alone_us)
    least_us = REGION * rates.share_us
    return [region for region in found if len(region.nodes) > 1 and region.us >= least_us]


def weights(plan: BufferPlan, machine: Machine) -> list[tuple[float, bool]]:
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
    stack: list[tuple[Node, float, Hot | None]] = [(n, 1.0, None) for n in nodes]
    while stack:
        node, trips, hot = stack.pop()
        match node:
            case Move():
                us = trips * copy_us(node.size, rates)
                found.append((us, is_split_copy(node.size, machine)))
            case Loop():
                inner = trips * iterations(node.instruction) / node.iterations
                changed = hot_loop(plan, worked_on(plan, node), machine)
                stack += [(n, inner, changed) for n in (*node.condition, *node.body)]
            case Branch():
                stack += [(n, trips, hot) for branch in node.branches for n in branch]
            case Call(routine=number):
                found += [(trips * us, splits) for splits, us in routines[number].items()]
            case Run(implementation=KernelSequence(calls=calls), allocations=allocations):
                for call in (c for c in calls if c.when is None):
                    kernel, row = call.kernel, [allocations[b] for b in call.buffers]
                    us = kernel_us(kernel, node.instruction, machine, hot=hot is not None)
                    found.append(
                        (
                            trips * us,
                            is_split(plan, kernel, row, us, hot and hot.read_by(node), rates),
                        )
                    )
            case Run():
                found.append((trips * rates.host_call_us, False))
    return found


class WorkedOn(Struct, frozen=True):
    """What a loop's iterations work on: bytes, of its kernels' allocations; those that change; and
    its runs.
    """

    size: int
    written: frozenset[int]
    runs: tuple[Run, ...]


def worked_on(plan: BufferPlan, loop: Loop) -> WorkedOn | None:
    """What an iteration works on; None where routines do."""
    sizes: dict[int, int] = {}  # bytes of each allocation
    written: set[int] = set()
    runs: list[Run] = []
    stack: list[Node] = [*loop.condition, *loop.body]
    while stack:
        match stack.pop():
            case Move(source=source, target=target, size=size):
                sizes[source] = sizes[target] = size
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
                    sizes[n] = max(sizes.get(n, 0), min(moved, plan.allocations[n].size))
                written.update(run.results, run.temporaries)
                runs.append(run)
    return WorkedOn(sum(sizes.values()), frozenset(written), tuple(runs))


def hot_loop(plan: BufferPlan, work: WorkedOn | None, machine: Machine) -> Hot | None:
    """What a loop's iteration writes, if what it works on stays in the cache for the next one."""
    if work is None or work.size > machine.second_cache.bytes // 2:
        return None
    return _settled(plan, work.runs, work.written, machine)


def _settled(
    plan: BufferPlan, runs: tuple[Run, ...], written: frozenset[int], machine: Machine
) -> Hot:
    """What remains on one processor when each kernel is split that gains by it.

    One that is not split brings what it touches to one processor, where others may then not gain
    either. O(kernels^2), of loops whose arrays fit a core's cache.
    """
    alone: dict[int, int] = {}
    hot = Hot(written, alone)
    split = [(run, call) for run in runs for call in _calls(run)]
    while True:
        remains: list[tuple[Run, KernelCall]] = []
        for run, call in split:
            if _gains(plan, run, call, hot, machine):
                remains.append((run, call))
                continue
            for n, touched in _touched(plan, run, call).items():
                alone[n] = alone.get(n, 0) + touched
        if len(remains) == len(split):
            return hot
        split = remains


def _touched(plan: BufferPlan, run: Run, call: KernelCall) -> dict[int, int]:
    """Bytes of each allocation that a kernel brings to one processor: at most what it moves, but
    all of what it reads at lines that lie apart."""
    kernel, touched = call.kernel, dict[int, int]()
    for leaf, buffer in enumerate(call.buffers):
        n = run.allocations[buffer]
        size = plan.allocations[n].size if leaf in kernel.spread else kernel.bytes_moved
        touched[n] = max(touched.get(n, 0), size)
    return touched


def _calls(run: Run) -> tuple[KernelCall, ...]:
    implementation = run.implementation
    return implementation.calls if isinstance(implementation, KernelSequence) else ()


def _gains(plan: BufferPlan, run: Run, call: KernelCall, hot: Hot, machine: Machine) -> bool:
    """Whether a kernel of a hot loop is split."""
    us = kernel_us(call.kernel, run.instruction, machine, hot=True)
    row = [run.allocations[b] for b in call.buffers]
    return is_split(plan, call.kernel, row, us, hot.read_by(run), machine.rates)


def kernel_us(
    kernel: Kernel, instruction: Instruction, machine: Machine, *, hot: bool = False
) -> float:
    """The estimated time on one core of a kernel that works for an instruction.

    hot: its bytes are in the second-level cache from the last iteration.
    """
    rates = machine.rates
    bandwidth = rates.memory_bytes
    if hot:
        is_product = is_contraction(instruction)
        bandwidth = rates.cached_factor_bytes if is_product else rates.cached_bytes
    arithmetic = _arithmetic_us(kernel, instruction, machine)
    return rates.call_us + max(kernel.bytes_moved / bandwidth, arithmetic)


def _arithmetic_us(kernel: Kernel, instruction: Instruction, machine: Machine) -> float:
    if not kernel.flops:
        return 0.0
    rates = machine.rates
    if not is_contraction(instruction):
        return kernel.flops / rates.elementwise_ops
    finished = [m for c in instruction.called_computations() for m in c.instructions]
    finishing = sum(op_cost(m) * m.shape.size for m in finished if is_elementwise(m))
    return _products_us(kernel, machine) + finishing / rates.elementwise_ops


def _products_us(kernel: Kernel, machine: Machine) -> float:
    """By the instructions that the kernel says of itself, which are more for wide numbers and fewer
    for narrow ones; else as if all were f32's.
    """
    work = kernel.work
    if work is None or not (work.instructions or work.tiles):
        return kernel.flops / machine.rates.contracted_ops
    from hlo.backend.ir.work import speeds_of  # for programs with products

    speeds = speeds_of(machine)
    return (work.instructions + work.sums) / speeds.instructions + work.tiles / speeds.tiles


def copy_us(size: int, rates: Rates) -> float:
    """The estimated time of a copy of so many bytes on one core."""
    return rates.call_us + size / rates.copied_bytes


def packing_us(kernel: Kernel, rates: Rates) -> float:
    """The estimated time of packing what a run of its units shares."""
    return kernel.packed_bytes / rates.packed_bytes


def iterations(loop: Instruction) -> int:
    """How often a loop runs: what its counter says, else an assumption."""
    from hlo.analysis.while_loops.loop_state import ASSUMED_TRIPS, counter

    known = counter(loop)
    return ASSUMED_TRIPS if known is None else known.iterations
