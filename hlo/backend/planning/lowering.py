"""Lowering: the buffer plan's nodes as steps on a table of addresses.

    BufferPlan --lower--> Program

Rows of the table are shared by steps that work on the same cells, kernels by steps with the same
text. Here is also decided, for the whole program at once, which kernels are split over threads:
waking sleeping threads costs more than most programs take (BACKEND_FACTS.md section 8).
Does not know: LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlo.analysis.legality import Way, way
from hlo.analysis.loop_state import counter
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.planning.cells import Align, Branch, BufferPlan, Call, Loop, Move, Node, Run
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
from hlo.backend.planning.regions import Together, regions
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.ir.instruction import Instruction

BYTES_PER_US = 20_000  # one core's streaming rate, reads and writes
HOT_BYTES_PER_US = 60_000  # where the bytes are in the second-level cache from the last iteration
HOT_FACTOR_BYTES_PER_US = 100_000  # the same where they are only read, by a product
HOT_BYTES = 1 << 20  # of what an iteration works on that stay there
FLOPS_PER_US = 30_000  # one core's rate in elementwise code
CONTRACTED_PER_US = 120_000  # and in the contraction engine's f32 products
CALL_US = 0.005
COPY_BYTES_PER_US = 10_000
HOST_US = 20.0
WAKE_US = 150.0  # parallel work from which a program wakes the pool
SPLIT_US = 4.0  # a kernel from which it is split
GAIN_US = 3.0  # what the split must save where an iteration's bytes stay in a processor's cache
CROSSING_BYTES_PER_US = 5_000  # what another processor has written, out of its cache
REGION_US = 12.0  # small kernels that run at once from which they do
CHUNK_US = 2.0
KEPT_BYTES = 1 << 21  # of what a thread works on that stay in its processor's cache
STREAM = 1.4  # times its arithmetic's that the bytes of a stream take
CHUNKS_PER_THREAD = 4
PACKED_BYTES_PER_US = 20_000  # of columns that a product packs
UNEVEN = 1.1  # times the shortest that a loop may take so that late threads do little harm
ENDLESS_US = 1e15  # the most that a routine is taken to run
ASSUMED_TRIPS = 16  # of a loop whose end is not known
WATCH_US = 500.0  # runs from this estimate on, or of no known length, can be stopped
SPLIT_COPY_BYTES = 1 << 20
LONG_COPY_BYTES = 1 << 25  # copied in units on one thread too, so that it can be stopped
COPY_UNIT_BYTES = 1 << 16


def lower(plan: BufferPlan, threads: int = 1) -> Program:
    """The program, for at most `threads` threads."""
    return _Lowering(plan, threads).program()


def copy_kernel(size: int) -> Kernel:
    """A copy of `size` bytes in units of COPY_UNIT_BYTES."""
    text = f"""define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{
  %source = load ptr, ptr %buffers, align 8
  %second = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %second, align 8
  %first = mul i64 %begin, {COPY_UNIT_BYTES}
  %reach = mul i64 %end, {COPY_UNIT_BYTES}
  %last = call i64 @llvm.umin.i64(i64 %reach, i64 {size})
  %bytes = sub i64 %last, %first
  %from = getelementptr i8, ptr %source, i64 %first
  %to = getelementptr i8, ptr %target, i64 %first
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret void
}}
"""
    declared = (
        "declare i64 @llvm.umin.i64(i64, i64)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    )
    units = -(-size // COPY_UNIT_BYTES)
    return Kernel(text, units, declarations=declared, bytes_moved=2 * size)


def kernel_us(kernel: Kernel, instruction: Instruction, *, hot: bool = False) -> float:
    """The estimated time on one core of a kernel that works for an instruction."""
    bandwidth = BYTES_PER_US
    if hot:
        is_product = way(instruction) is Way.CONTRACTION
        bandwidth = HOT_FACTOR_BYTES_PER_US if is_product else HOT_BYTES_PER_US
    return CALL_US + max(kernel.bytes_moved / bandwidth, _arithmetic_us(kernel, instruction))


def _arithmetic_us(kernel: Kernel, instruction: Instruction) -> float:
    rate = CONTRACTED_PER_US if way(instruction) is Way.CONTRACTION else FLOPS_PER_US
    return kernel.flops / rate


def is_met_again(kernel: Kernel, instruction: Instruction, threads: int) -> bool:
    """Whether threads best take the same parts of a kernel each time, from both its ends.

    A stencil of 400 us in a loop took 250 us so. But bytes that pass through the threads' caches
    come 10 to 15 % faster out of the shared one where both threads have read them (rows summed,
    arrays joined: 6 MB and more); of a kernel that computes more than it reads neither is seen.
    """
    bytes_us = kernel.bytes_moved / BYTES_PER_US
    is_stream = bytes_us > STREAM * _arithmetic_us(kernel, instruction)
    return not is_stream or kernel.bytes_moved <= threads * KEPT_BYTES


def is_split(kernel: Kernel, us: float, crossing: int | None) -> bool:
    """Whether a kernel that takes so long on one core is split over threads.

    crossing: in a loop whose bytes stay in one processor's cache, those of which a split has half
    written in another's: a product of 28 us and 128 KiB took 23 us in two parts, a stencil of 4 us,
    of which a processor meets its own part again, 3 us. None outside such a loop.
    """
    if kernel.units < 2 or us < SPLIT_US:
        return False
    return crossing is None or (us - crossing / CROSSING_BYTES_PER_US) / 2 >= GAIN_US


def chunks_of(kernel: Kernel, us: float, threads: int, most: int) -> int:
    """At most `most` chunks: fewer where each of them would pack again what its units share."""
    if not kernel.packed_bytes or most <= threads:
        return most
    unit_us, packing_us = us / kernel.units, kernel.packed_bytes / PACKED_BYTES_PER_US

    def longest_us(chunks: int) -> float:
        units = -(-kernel.units // chunks)
        packings = -(-units * kernel.packed_runs // kernel.units)
        return -(-chunks // threads) * (units * unit_us + packings * packing_us)

    tried = range(min(threads, most), most + 1)
    return max(n for n in tried if longest_us(n) <= UNEVEN * min(map(longest_us, tried)))


def _crossing(
    plan: BufferPlan, kernel: Kernel, cells: Iterable[int], changing: frozenset[int] | None
) -> int | None:
    """Bytes of a kernel's cells that change in a hot loop and that threads do not keep apart."""
    if changing is None:
        return None
    shared = {cell for leaf, cell in enumerate(cells) if leaf not in kernel.own}
    return sum(plan.cells[n].size for n in changing & shared)


def cost_us(plan: BufferPlan) -> float:
    """The estimated time of a run on one core."""
    return sum(us for us, _ in _weights(plan))


def parallel_us(plan: BufferPlan) -> float:
    """The estimated time that can be split over threads."""
    return sum(us for us, splits in _weights(plan) if splits)


def _weights(plan: BufferPlan) -> list[tuple[float, bool]]:
    """(time, whether it can be split) of every kernel, copy and host call; branches all counted.

    Calls of routines: what they take in all.
    """
    routines: list[dict[bool, float]] = []
    for routine in plan.routines:
        both = {True: 0.0, False: 0.0}
        for us, splits in _node_weights(plan, routine.nodes, routines):
            both[splits] = min(both[splits] + us, ENDLESS_US)
        routines.append(both)
    return _node_weights(plan, plan.nodes, routines)


def _node_weights(
    plan: BufferPlan, nodes: tuple[Node, ...], routines: list[dict[bool, float]]
) -> list[tuple[float, bool]]:
    found: list[tuple[float, bool]] = []
    stack: list[tuple[Node, float, frozenset[int] | None]] = [(n, 1.0, None) for n in nodes]
    while stack:
        node, trips, changing = stack.pop()
        match node:
            case Move():
                us = trips * (CALL_US + node.size / COPY_BYTES_PER_US)
                found.append((us, node.size >= SPLIT_COPY_BYTES))
            case Loop():
                inner = trips * iterations(node.instruction) / node.iterations
                changed = changing_cells(plan, node)
                stack += [(n, inner, changed) for n in (*node.condition, *node.body)]
            case Branch():
                stack += [(n, trips, changing) for branch in node.branches for n in branch]
            case Call(routine=number):
                found += [(trips * us, splits) for splits, us in routines[number].items()]
            case Run(implementation=KernelSequence(calls=calls), cells=cells):
                for call in calls:
                    us = kernel_us(call.kernel, node.instruction, hot=changing is not None)
                    row = [cells[b] for b in call.buffers]
                    splits = is_split(call.kernel, us, _crossing(plan, call.kernel, row, changing))
                    found.append((trips * us, splits))
            case Run():
                found.append((trips * HOST_US, False))
    return found


def together(plan: BufferPlan) -> list[Together]:
    """Regions of the program's own steps that are worth a parallel loop."""
    found = regions(plan.nodes, plan.cells, _alone_us)
    return [region for region in found if len(region.nodes) > 1 and region.us >= REGION_US]


def _alone_us(node: Run) -> float | None:
    """The time of a node whose only kernel is not split."""
    assert isinstance(node.implementation, KernelSequence), "host calls are not kernels"
    (call,) = node.implementation.calls
    us = kernel_us(call.kernel, node.instruction)
    return None if call.kernel.units > 1 and us >= SPLIT_US else us


def changing_cells(plan: BufferPlan, loop: Loop) -> frozenset[int] | None:
    """What an iteration writes, if what it works on stays in the cache for the next one."""
    worked_on: dict[int, int] = {}  # bytes of each cell
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
                for n in run.cells:
                    worked_on[n] = max(worked_on.get(n, 0), min(moved, plan.cells[n].size))
                written.update(run.results, run.temporaries)
    return frozenset(written) if sum(worked_on.values()) <= HOT_BYTES else None


def is_unbounded(plan: BufferPlan) -> bool:
    """Whether a loop runs as often as its values say, or calls are not counted one by one."""
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
    return False


def iterations(loop: Instruction) -> int:
    """How often a loop runs: what its counter says, else an assumption."""
    known = counter(loop)
    return ASSUMED_TRIPS if known is None else known.iterations


class _Lowering:
    """The state of one lowering: table rows and kernels so far."""

    def __init__(self, plan: BufferPlan, threads: int) -> None:
        self.plan = plan
        self.threads = threads
        apart = parallel_us(plan) if threads > 1 else 0.0
        found = together(plan) if threads > 1 and cost_us(plan) >= WAKE_US else []
        self.splits = threads > 1 and apart + sum(region.us for region in found) >= WAKE_US
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
        cost = cost_us(self.plan)
        return Program(
            self.plan,
            steps,
            tuple(self.kernels),
            tuple(self.table),
            tuple(self.hosts),
            self.scratch_bytes,
            self.threads,
            cost,
            self.splits,
            cost >= WATCH_US or bool(self.hosts) or is_unbounded(self.plan),
            tuple(self.routines),
        )

    def _steps(self, nodes: tuple[Node, ...]) -> tuple[Step, ...]:
        steps: list[Step] = []
        for node in nodes:
            match node:
                case Run(implementation=HostCall()):
                    host = HostStep(len(self.hosts), self._row(node.cells), node.instruction)
                    self.hosts.append(host)
                    self.may_fail = True
                    steps.append(host)
                case Run(implementation=KernelSequence(calls=calls)):
                    cells = node.cells
                    for call in calls:
                        row = tuple(cells[b] for b in call.buffers)
                        region = self.regions.get(node, 0) if self.splits else 0
                        steps.append(self._step(call.kernel, row, node.instruction, region))
                case Move():
                    steps.append(self._copy(node))
                case Align():
                    source, spare = self._row((node.source,)), self._row((node.spare,))
                    steps.append(AlignStep(source, spare, node.target, node.size))
                case Call():
                    steps.append(self._call(node))
                case Loop():
                    steps.append(self._loop(node))
                case Branch():
                    steps.append(self._branch(node))
        return tuple(steps)

    def _copy(self, node: Move) -> KernelStep | CopyStep:
        """A copy; one that is worth splitting over threads, or long, is a kernel."""
        if node.size >= (SPLIT_COPY_BYTES if self.splits else LONG_COPY_BYTES):
            cells = self.plan.cells
            instruction = cells[node.target].instruction or cells[node.source].instruction
            assert instruction is not None, "a large cell is made by an instruction"
            return self._step(copy_kernel(node.size), (node.source, node.target), instruction)
        source, target = self._row((node.source,)), self._row((node.target,))
        return CopyStep(source, target, node.size)

    def _call(self, node: Call) -> CallStep:
        pairs = tuple((self._row((source,)), cell) for cell, source in node.pairs)
        self.may_fail |= node.routine in self.failing
        return CallStep(node.routine, pairs, node.routine in self.failing)

    def _loop(self, node: Loop) -> LoopStep:
        predicate = self._row((node.predicate,))
        outer, self.changing = self.changing, changing_cells(self.plan, node)
        condition, body = self._steps(node.condition), self._steps(node.body)
        self.changing = outer
        return LoopStep(condition, predicate, body, node.instruction)

    def _branch(self, node: Branch) -> BranchStep:
        branches = tuple(self._steps(b) for b in node.branches)
        selector = self._row((node.selector,))
        return BranchStep(selector, node.by_predicate, branches, node.instruction)

    def _step(
        self, kernel: Kernel, cells: tuple[int, ...], instruction: Instruction, region: int = 0
    ) -> KernelStep:
        number = self.kernels.setdefault(kernel, len(self.kernels))
        us = kernel_us(kernel, instruction, hot=self.changing is not None)
        chunks = self._chunks(kernel, us, cells)
        stride = 0
        if kernel.scratch_bytes:
            self.scratch_bytes = max(self.scratch_bytes, -(-kernel.scratch_bytes // 64) * 64)
            threads = self.threads if chunks > 1 else 1
            row = tuple(c for t in range(threads) for c in (*cells, -1 - t))
            stride = len(cells) + 1
        else:
            row = cells
        slot, width = self._row(row), len(cells)
        at_ends = is_met_again(kernel, instruction, self.threads)
        return KernelStep(
            number, slot, width, kernel.units, chunks, stride, instruction, region, us, at_ends
        )

    def _chunks(self, kernel: Kernel, us: float, cells: Iterable[int]) -> int:
        crossing = _crossing(self.plan, kernel, cells, self.changing)
        if not self.splits or not is_split(kernel, us, crossing):
            return 1
        most = max(2, min(kernel.units, self.threads * CHUNKS_PER_THREAD, int(us / CHUNK_US)))
        return chunks_of(kernel, us, self.threads, most)

    def _row(self, cells: tuple[int, ...]) -> int:
        """The slot where a row of these cells begins."""
        found = self.rows.get(cells)
        if found is None:
            found = self.rows[cells] = HEADER_SLOTS + len(self.table)
            self.table += cells
        return found
