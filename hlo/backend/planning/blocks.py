"""Blocked kernels: a fusion whose members are whole kernels, run block by block.

    fusion (block_fusion) --cut to one block, planned like a program--> one kernel over all blocks

A thread takes one block after the other through all members. What passes between them lies in the
thread's scratch memory, which is small enough for its core's cache. The members' kernels are
functions of their own, called on a table of addresses on the stack. Sums over blocks of few heads
are made in several parts, which a kernel behind it adds up (block_parts.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.blocks.block import Block, Span
from hlo.analysis.blocks.blocking import number
from hlo.analysis.blocks.cutting import (
    CutBody,
    Parameter,
    Placed,
    Result,
    Same,
    Start,
    Total,
    cut_computation,
)
from hlo.analysis.blocks.seen_columns import Bounds, adds_bounded, bounds_of
from hlo.analysis.blocks.size import block_of, sum_parts
from hlo.analysis.leaves import leaf_path, leaves_of
from hlo.attributes.aliasing import InputAlias
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import PARAMETERS, Data, Function
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.ir.named import Named
from hlo.backend.ir.records import Alloca
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.loops.expression import waits_in
from hlo.backend.loops.schedule import Plan
from hlo.backend.planning.allocations import AllocationKind, BufferPlan
from hlo.backend.planning.block_parts import with_parts
from hlo.backend.planning.block_sharing import kept_leaves, shared_calls, whole_parameters
from hlo.backend.planning.block_steps import TABLE, BlockSteps, are_plain, has_open_loops
from hlo.backend.planning.block_work import block_weight, block_work
from hlo.backend.planning.buffers import assign
from hlo.backend.planning.implementations import (
    HostCall,
    KernelMakers,
    implement,
    implementations,
)
from hlo.backend.planning.program import Program
from hlo.backend.planning.schedule import schedule
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.backend.planning.steps import program_of
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import Machine, aligned

MOST_CONSTANT_BYTES = 4096
MOST_SLOTS = 4096  # Addresses in the table of a block, which lies on the stack.
INTRINSICS = (
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "declare i64 @llvm.umin.i64(i64, i64)",
)


def blocked_kernels(
    instruction: Instruction, target: Target, makers: KernelMakers, kept: frozenset[int]
) -> KernelSequence | None:
    """The kernel of a blocked fusion, after what makes for all blocks what they share; None where a
    member has no kernel of its family. kept: operands that a loop around the fusion leaves alone.
    """
    (callee,) = instruction.called_computations()
    block = block_of(instruction)
    if block is None:
        return None
    body = _cut(callee, block, target)
    bounds = bounds_of(callee, body, block)
    planned = _planned(body, target, makers, bounds)
    if planned is None and bounds is not None:
        body, bounds = _cut(callee, block, target), None
        planned = _planned(body, target, makers, bounds)
    if planned is None:
        return None
    plan = planned
    program = program_of(plan, 1, target.machine)
    if not are_plain(program.steps):
        return None
    constants = {
        c: n for n, c in enumerate(program.plan.allocations) if c.kind is AllocationKind.CONSTANT
    }
    if sum(c.size for c in constants) > MOST_CONSTANT_BYTES or len(program.table) > MOST_SLOTS:
        return None
    first = len(instruction.operands) + len(leaves_of(instruction.shape))
    calls, shared = shared_calls(plan, body, first, kept)
    loop = _BlockLoop(instruction, block, body, program, len(shared), bounds)
    made = loop.kernel(target.machine)
    sizes = " x ".join(map(str, block.sizes))
    lines = [f"{block.count} blocks of {sizes}, each through all functions"]
    if body.has_totals:
        count = -(-block.count // made.units)
        lines.append(f"{count} in a row of a unit add up sums over blocks")
    if loop.parts > 1:
        lines.append(f"sums of {loop.parts} parts, added up by kernels behind")
    shown = target.shown(made, lambda: Plan(tuple(lines)))
    before = KernelSequence(tuple(calls), tuple(shared))
    if loop.parts == 1:
        call = KernelCall(shown, tuple(range(first + len(shared))))
        return KernelSequence((*calls, call), before.temporaries)
    totals = {r.leaf: loop.heads for r in body.results if isinstance(r, Total)}
    return with_parts(
        instruction, before, shown, totals, loop.parts, lambda i: implement(i, target, makers)
    )


def _cut(callee: Computation, block: Block, target: Target) -> CutBody:
    """The computation of one block, with what is known of its parameters."""
    body = cut_computation(callee, block)
    if waits_in(callee, target):
        from hlo.analysis.tails import tell  # few programs underflow

        tell(body.computation, callee)
    return body


def _planned(
    body: CutBody, target: Target, makers: KernelMakers, bounds: Bounds | None
) -> BufferPlan | None:
    """The block's kernels and buffers; None where a member has no kernel of its family, or one that
    keeps to bounds where it has to.
    """
    module, whole = _module_of(body), whole_parameters(body)
    if waits_in(body.computation, target):
        from hlo.backend.planning.epilogues_apart import set_epilogues_apart  # as above

        set_epilogues_apart(body.computation, target)
    order = schedule(module)
    own = replace(target, is_bounded=bounds is not None)
    known = implementations(
        order, own, makers, lambda i: kept_leaves(order, i, whole), is_repeated=True
    )
    for instruction, made in known.items():
        if isinstance(made, HostCall):
            return None
        if bounds is not None and adds_bounded(instruction) and not made.is_bounded:
            return None
    return assign(order, known, target.machine, whole)


def _module_of(body: CutBody) -> Module:
    """The block's program: sums are added to where they lie, parts written where they belong."""
    module = Module("block")
    module.add(body.computation, entry=True)
    totals = {p: n for n, p in enumerate(body.parameters) if isinstance(p, Total | Placed)}
    whole = body.computation.root.shape
    aliases = [
        InputAlias(leaf_path(whole, leaf), totals[total], ())
        for leaf, total in enumerate(body.results)
        if isinstance(total, Total | Placed)
    ]
    if aliases:
        module.attributes = {**module.attributes, "input_output_alias": tuple(aliases)}
    return module


class _BlockSlice(Struct, frozen=True):
    """Where a block's bytes of a buffer begin: `stride` bytes for every unit of `index`."""

    buffer: int
    stride: int
    index: str


def _index(span: Span) -> str:
    return "index" + "_".join(map(str, span))


def _along(start: Start) -> Span:
    """The span of a start's dimension alone."""
    return (start.dimension,)


def _counted_from(start: Start) -> Value:
    """Where the number lies from which a block counts along a dimension."""
    return Value(f"%start{start.dimension}", "ptr")


_PART = "index.part"


class _BlockLoop:
    """Writes the loop over blocks. shared: how many arrays all of them read that were made before,
    behind operands and results.
    """

    def __init__(
        self,
        instruction: Instruction,
        block: Block,
        body: CutBody,
        program: Program,
        shared: int,
        bounds: Bounds | None,
    ) -> None:
        self.instruction, self.block, self.body, self.program = instruction, block, body, program
        self.bounds = bounds
        self.spans: dict[Span, None] = {block.all: None}
        self.heads = block.parts(block.depth - 1)
        self.row = block.count // self.heads  # blocks along the last dimension
        self.parts = sum_parts(block, in_order=body.in_order) if body.has_totals else 1
        if self.parts > 1:
            self.spans[block.outer] = None
        operands = [len(leaves_of(o.shape)) for o in instruction.operands]
        assert all(count == 1 for count in operands), "operands are arrays"
        made = len(operands) + len(leaves_of(instruction.shape))
        self.buffers = made + shared
        self.arguments = [self._argument(parameter) for parameter in body.parameters]
        self.arguments += [_BlockSlice(made + n, 0, "") for n in range(shared)]
        self.results = [self._result(result) for result in body.results]
        # What all blocks compute alike is in scratch memory until a block is done: many at once
        # may write the same to the result, but not what it is before.
        self.scratch_bytes = aligned(program.plan.arena_bytes) + aligned(program.scratch_bytes)
        self.same: dict[Same, int] = {}
        for result in body.results:
            if isinstance(result, Same):
                self.same[result] = self.scratch_bytes
                self.scratch_bytes += aligned(self._size(result.leaf))
        self.globals: list[Data] = []
        self.w = Writer()
        self.named = Named(self.w)
        self.bases: list[Value] = []  # The addresses of the buffers.

    def _argument(self, parameter: Parameter) -> _BlockSlice | Start:
        if isinstance(parameter, Start):
            self.spans[_along(parameter)] = None
            return parameter
        if isinstance(parameter, Total | Placed):
            return self._result(parameter)
        instruction, span = parameter
        return self._slice(number(instruction), instruction.shape.size_bytes, span)

    def _result(self, result: Result) -> _BlockSlice:
        if isinstance(result, Placed | Same):  # of the whole leaf each block knows its place
            return _BlockSlice(len(self.instruction.operands) + result.leaf, 0, "")
        leaf, span = (
            (result.leaf, self.block.outer)
            if isinstance(result, Total)
            else (result, self.block.all)
        )
        size, buffer = self._size(leaf), len(self.instruction.operands) + leaf
        if isinstance(result, Total) and self.parts > 1:
            return _BlockSlice(buffer, size // self.heads, _PART)
        return self._slice(buffer, size, span)

    def _size(self, leaf: int) -> int:
        return leaves_of(self.instruction.shape)[leaf].size_bytes

    def _slice(self, buffer: int, size_bytes: int, span: Span) -> _BlockSlice:
        """The part of a buffer that a block has by a span."""
        elements = math.prod(self.block.lead[d] for d in span)
        if elements == 1:
            return _BlockSlice(buffer, 0, "")
        self.spans[span] = None
        return _BlockSlice(buffer, size_bytes // elements, _index(span))

    def kernel(self, machine: Machine) -> Kernel:
        program = self.program
        own = {symbol(f): f for k in program.kernels for f in (*k.functions, k)}
        self._write()
        declared = [
            f"declare void @{name}(ptr, i64, i64)"
            for name in dict.fromkeys(map(symbol, program.kernels))
        ]
        moved, flops = block_weight(program, self.block.count, machine.rates)
        shapes = [*(o.shape for o in self.instruction.operands), *leaves_of(self.instruction.shape)]
        return Kernel(
            Function(records=self.w.records),
            self.units,
            (*declared, *INTRINSICS),
            tuple(self.globals),
            scratch_bytes=max(64, self.scratch_bytes),
            bytes_moved=moved + sum(s.size_bytes for s in shapes),
            flops=flops,
            work=block_work(program, self.block.count, machine.vector_bytes // 4),
            functions=tuple(own.values()),
            is_glue=True,
            is_open=any(k.is_open for k in program.kernels) or has_open_loops(program.steps),
        )

    @property
    def units(self) -> int:
        return self.heads * self.parts if self.body.has_totals else self.block.count

    def _write(self) -> None:
        """for block in [begin, end): the table's moving entries, then the steps."""
        w, n, (buffers, begin, end) = self.w, self.named, PARAMETERS
        following = Value("%next", "i64")
        w.label("start")
        slots = HEADER_SLOTS + len(self.program.table)
        w.append(Alloca("%table", "ptr", "alloca", (), ", align 64", memory=f"[{slots} x ptr]"))
        starts = dict.fromkeys(a for a in self.arguments if isinstance(a, Start))
        for start in starts:
            number = _counted_from(start)
            w.append(Alloca(number.text, "ptr", "alloca", (), ", align 64", memory="i32"))
        for k in range(self.buffers + 1):
            slot = n.address(f"slot{k}", buffers, w.int(k), "ptr")
            self.bases.append(n.load(f"base{k}", "ptr", slot))
        moving = self._fill_table()
        if self.body.has_totals:
            begin, end = self._first_block("begin", begin), self._first_block("end", end)
        w.branch("test")
        w.label("test")
        block = w.phi("i64", (begin, "start"), (following, "latch"), name="%block").value
        w.branch_if(n.compare("more", "icmp ult", block, end), "run", "done")
        w.label("run")
        self._write_indices(block)
        for start in starts:
            self._store_start(start)
        for place, part in moving:
            self._store_address(place, part)
        if self.body.has_totals:
            self._clear_totals()
        between = self._between() if self.bounds is not None else None
        BlockSteps(w, self.program, self.body, self.row, between).write()
        for result, offset in self.same.items():
            target = self.bases[self._result(result).buffer]
            source = self._scratch(f"same{result.leaf}", offset)
            w.copy_bytes(target, source, w.int(self._size(result.leaf)))
        w.branch("latch")
        w.label("latch")
        n.binary("next", "add", block, w.int(1))
        w.branch("test")
        w.label("done")
        w.ret()

    def _between(self) -> tuple[Value, Value]:
        """The block's bounds, from a table of those of all blocks in a row."""
        assert self.bounds is not None, "a block of what is seen"
        numbers = ", ".join(f"i64 {n}" for pair in self.bounds.of_blocks for n in pair)
        name, kind = ".block_bounds", f"[{2 * len(self.bounds.of_blocks)} x i64]"
        text = f"@{name} = private unnamed_addr constant {kind} [{numbers}], align 8"
        self.globals.append(Data(name, text))
        n, w = self.named, self.w
        pair = n.binary("bounds.number", "mul", Value("%inner", "i64"), w.int(2))
        low = n.address("bounds.low", Value(f"@{name}", "ptr"), pair, "i64")
        high = n.address("bounds.high", low, w.int(1), "i64")
        return n.load("low", "i64", low, 8), n.load("high", "i64", high, 8)

    def _write_indices(self, block: Value) -> None:
        """Where a block begins in the spans that are used, each seen as one dimension."""
        w, n = self.w, self.named
        lead, sizes, depth = self.block.lead, self.block.sizes, self.block.depth
        each = w.int(self.block.count // self.block.parts(depth - 1))
        outer = n.binary("outer", "udiv", block, each)
        inner = n.binary("inner", "urem", block, each)
        start = n.binary("first", "mul", inner, w.int(sizes[-1]))
        begun = n.call("begun", "i64", "llvm.umin.i64", start, w.int(lead[-1] - sizes[-1]))
        own = [
            n.binary(f"part{d}", "urem", n.binary(f"behind{d}", "udiv", outer, w.int(b)), w.int(k))
            for d, k in enumerate(lead[: depth - 1])
            for b in (math.prod(lead[d + 1 : depth - 1]),)
        ]
        for span in self.spans:
            index = w.int(0)
            for d in span:
                name = f"{_index(span)}.to{d}"
                index = n.binary(f"{name}.times", "mul", index, w.int(lead[d]))
                index = n.binary(name, "add", index, begun if d == depth - 1 else own[d])
            n.binary(_index(span), "add", index, w.int(0))
        if self.parts > 1:
            self._write_part(inner)

    def _first_block(self, name: str, unit: Value) -> Value:
        """The first block of a unit, u / parts * row + u % parts * row / parts; behind the last
        unit there is the number of blocks."""
        w, n = self.w, self.named
        if self.parts == 1:
            return n.binary(f"{name}.block", "mul", unit, w.int(self.row))
        head = n.binary(f"{name}.head", "udiv", unit, w.int(self.parts))
        part = n.binary(f"{name}.part", "urem", unit, w.int(self.parts))
        before = n.binary(f"{name}.rows", "mul", head, w.int(self.row))
        inside = n.binary(f"{name}.scaled", "mul", part, w.int(self.row))
        started = n.binary(f"{name}.inside", "udiv", inside, w.int(self.parts))
        return n.binary(f"{name}.block", "add", before, started)

    def _write_part(self, inner: Value) -> None:
        """The part p of its row that a block is of, by p * row / parts <= inner for the last such
        p, (inner * parts + parts - 1) / row; and the place of the part among all.
        """
        w, n = self.w, self.named
        scaled = n.binary("inner.scaled", "mul", inner, w.int(self.parts))
        last = n.binary("inner.last", "add", scaled, w.int(self.parts - 1))
        part = n.binary("part", "udiv", last, w.int(self.row))
        begun = n.binary("part.scaled", "mul", part, w.int(self.row))
        n.binary("part.first", "udiv", begun, w.int(self.parts))
        head = Value(f"%{_index(self.block.outer)}", "i64")
        n.binary(_PART, "add", n.binary("parts", "mul", head, w.int(self.parts)), part)

    def _fill_table(self) -> list[tuple[int, _BlockSlice]]:
        """Fills the table before the loop; what is filled for every block: slots and parts."""
        moving: list[tuple[int, _BlockSlice]] = []
        allocations, constants = self.program.plan.allocations, dict[int, Value]()
        scratch = aligned(self.program.plan.arena_bytes)
        for slot, allocation_number in enumerate(self.program.table, HEADER_SLOTS):
            allocation = allocations[allocation_number] if allocation_number >= 0 else None
            if allocation is None or allocation.kind is AllocationKind.ARENA:
                offset = scratch if allocation is None else allocation.offset
                self._store(slot, self._scratch(f"at{slot}", offset))
            elif allocation.kind is AllocationKind.CONSTANT:
                if allocation_number not in constants:
                    constants[allocation_number] = self._constant(allocation.instruction)
                self._store(slot, constants[allocation_number])
            else:
                is_result = allocation.kind is AllocationKind.RESULT
                parts: Sequence[_BlockSlice | Start] = self.results if is_result else self.arguments
                part = parts[allocation.index]
                result = self.body.results[allocation.index] if is_result else None
                if isinstance(result, Same):
                    self._store(slot, self._scratch(f"at{slot}", self.same[result]))
                elif isinstance(part, Start):
                    self._store(slot, _counted_from(part))
                elif part.stride:
                    moving.append((slot, part))
                else:
                    self._store(slot, self.bases[part.buffer])
        return moving

    def _scratch(self, name: str, offset: int) -> Value:
        """A place in the thread's scratch memory."""
        return self.named.address(name, self.bases[self.buffers], self.w.int(offset), "i8")

    def _store(self, slot: int, address: Value) -> None:
        place = self.named.address(f"to{slot}", TABLE, self.w.int(slot), "ptr")
        self.w.store_address(address, place)

    def _store_address(self, slot: int, part: _BlockSlice) -> None:
        """Where a block's part of a buffer begins."""
        self._store(slot, self._address(f"at{slot}", part))

    def _address(self, name: str, part: _BlockSlice) -> Value:
        if not part.stride:
            return self.bases[part.buffer]
        n, index = self.named, Value(f"%{part.index}", "i64")
        offset = n.binary(f"{name}.offset", "mul", index, self.w.int(part.stride))
        return n.address(name, self.bases[part.buffer], offset, "i8")

    def _store_start(self, start: Start) -> None:
        """Where a block begins in one dimension, as its kernels read it."""
        index = Value(f"%{_index(_along(start))}", "i64")
        place = _counted_from(start)
        count = self.named.cast(f"{place.text[1:]}.count", "trunc", index, "i32")
        self.w.store(count, place, 4)

    def _constant(self, instruction: Instruction | None) -> Value:
        """The address of a small constant's bytes."""
        assert instruction is not None, "a constant allocation has its constant"
        array = instruction["literal"].value  # type: ignore[attr-defined]  # an array literal
        name = f".block_constant{len(self.globals)}"
        written = "".join(f"\\{byte:02x}" for byte in array.tobytes())
        kind = f"[{array.nbytes} x i8]"
        text = f'@{name} = private unnamed_addr constant {kind} c"{written}", align 64'
        self.globals.append(Data(name, text))
        return Value(f"@{name}", "ptr")

    def _clear_totals(self) -> None:
        """At the first block of a row, or of a part of one: sums over blocks begin at zero."""
        w, n = self.w, self.named
        first = Value("%part.first", "i64") if self.parts > 1 else w.int(0)
        is_first = n.compare("is.first", "icmp eq", Value("%inner", "i64"), first)
        w.branch_if(is_first, "clear", "cleared")
        w.label("clear")
        totals = {r.leaf: r for r in self.body.results if isinstance(r, Total)}
        for leaf, total in totals.items():
            part = self._result(total)
            address = self._address(f"total{leaf}", part)
            w.fill_bytes(address, 0, self._size(leaf) // self.heads)
        w.branch("cleared")
        w.label("cleared")
