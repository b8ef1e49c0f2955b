"""Blocked kernels: a fusion whose members are whole kernels, run block by block.

    fusion (block_fusion) --cut to one block, planned like a program--> one kernel over all blocks

A thread takes one block after the other through all members. What passes between them lies in the
thread's scratch memory, which is small enough for its core's cache. The members' kernels are
functions of their own, called on a table of addresses on the stack.
"""

from __future__ import annotations

import math

from msgspec import Struct

from hlo.analysis.block_size import block_of
from hlo.analysis.blocking import WHOLE, Block, Cut, Span, cut_computation, number
from hlo.analysis.leaves import leaves_of
from hlo.analysis.legality import is_contraction
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.functions import Opaque
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.target import Target
from hlo.backend.planning.buffers import assign
from hlo.backend.planning.cells import Region
from hlo.backend.planning.implementations import HostCall, implementations
from hlo.backend.planning.lowering import lower
from hlo.backend.planning.packing import aligned
from hlo.backend.planning.program import BranchStep, CopyStep, KernelStep, Program, Step
from hlo.backend.planning.schedule import schedule
from hlo.backend.planning.slots import HEADER_SLOTS
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import Rates

MOST_CONSTANT_BYTES = 4096
MOST_SLOTS = 4096  # of the table, which lies on the stack
INTRINSICS = (
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    "declare i64 @llvm.umin.i64(i64, i64)",
)


def blocked_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a blocked fusion; None where a member has no kernel."""
    (callee,) = instruction.called_computations()
    block = block_of(callee)
    if block is None:
        return None
    body, parameters = cut_computation(callee, block)
    module = Module("block")
    module.add(body, entry=True)
    order = schedule(module)
    known = implementations(order, target)
    if any(isinstance(i, HostCall) for i in known.values()):
        return None
    program = lower(assign(order, known, target.machine), 1, target.machine)
    if not all(_is_plain(step) for step in program.steps):
        return None
    constants = {c: n for n, c in enumerate(program.plan.cells) if c.region is Region.CONSTANT}
    if sum(c.size for c in constants) > MOST_CONSTANT_BYTES or len(program.table) > MOST_SLOTS:
        return None
    made = _Writer(instruction, block, parameters, program).kernel(target.machine.rates)
    sizes = " x ".join(map(str, block.sizes))
    return target.shown(made, f"{block.count} blocks of {sizes}, each through all functions")


def _is_plain(step: Step) -> bool:
    """Whether a block can run the step: a kernel, a copy, or a kernel that a byte holds back."""
    match step:
        case BranchStep(by_predicate=True, branches=((KernelStep(),), ())):
            return True
    return isinstance(step, KernelStep | CopyStep)


class _Part(Struct, frozen=True):
    """Where a block's bytes of a buffer begin: `stride` bytes for every unit of `index`."""

    buffer: int
    stride: int
    index: str


def _index(span: Span) -> str:
    return f"%index{span[0]}_{span[1]}"


class _Writer:
    """Writes the loop over blocks."""

    def __init__(
        self, instruction: Instruction, block: Block, parameters: list[Cut], program: Program
    ) -> None:
        self.instruction, self.block, self.program = instruction, block, program
        self.spans: dict[Span, None] = {}
        operands = [len(leaves_of(o.shape)) for o in instruction.operands]
        assert all(count == 1 for count in operands), "operands are arrays"
        self.arguments = [self._part(number(p), p, span) for p, span in parameters]
        results = leaves_of(instruction.shape)
        rows, self.spans[block.all] = math.prod(block.lead), None
        self.results = [
            _Part(len(operands) + n, shape.size_bytes // rows, _index(block.all))
            for n, shape in enumerate(results)
        ]
        self.buffers = len(operands) + len(results)
        self.names = [symbol(k) for k in program.kernels]
        self.globals: list[Opaque] = []

    def _part(self, buffer: int, parameter: Instruction, span: Span) -> _Part:
        if span == WHOLE:
            return _Part(buffer, 0, "")
        self.spans[span] = None
        elements = math.prod(self.block.lead[span[0] : span[1]])
        return _Part(buffer, parameter.shape.size_bytes // elements, _index(span))

    def kernel(self, rates: Rates) -> Kernel:
        program = self.program
        own = {symbol(f): f for k in program.kernels for f in (*k.functions, k)}
        fixed, moving = self._table()
        text = "\n".join(
            [
                "define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {",
                "start:",
                f"  %table = alloca [{HEADER_SLOTS + len(program.table)} x ptr], align 64",
                *(line for n in range(self.buffers + 1) for line in self._base(n)),
                *fixed,
                "  br label %test",
                "test:",
                "  %block = phi i64 [ %begin, %start ], [ %next, %latch ]",
                "  %more = icmp ult i64 %block, %end",
                "  br i1 %more, label %run, label %done",
                "run:",
                *self._indices(),
                *moving,
                *(line for n, step in enumerate(program.steps) for line in self._step(n, step)),
                "  br label %latch",
                "latch:",
                "  %next = add i64 %block, 1",
                "  br label %test",
                "done:",
                "  ret void",
                "}",
                "",
            ]
        )
        declared = [f"declare void @{name}(ptr, i64, i64)" for name in dict.fromkeys(self.names)]
        moved, flops = self._weight(rates)
        return Kernel(
            Opaque("KERNEL", text),
            self.block.count,
            (*declared, *INTRINSICS),
            tuple(self.globals),
            scratch_bytes=max(64, aligned(program.plan.arena_bytes) + program.scratch_bytes),
            bytes_moved=moved,
            flops=flops,
            functions=tuple(own.values()),
            is_glue=True,
        )

    def _indices(self) -> list[str]:
        """Where a block begins in the spans that are used, each seen as one dimension."""
        lead, sizes, depth = self.block.lead, self.block.sizes, self.block.depth
        each = self.block.count // self.block.parts(depth - 1)
        lines = [
            f"  %outer = udiv i64 %block, {each}",
            f"  %inner = urem i64 %block, {each}",
            f"  %first = mul i64 %inner, {sizes[-1]}",
            f"  %begun = call i64 @llvm.umin.i64(i64 %first, i64 {lead[-1] - sizes[-1]})",
        ]
        for first, last in self.spans:
            name, end = _index((first, last)), min(last, depth - 1)
            lines += [
                f"  {name}.behind = udiv i64 %outer, {math.prod(lead[end : depth - 1])}",
                f"  {name}.part = urem i64 {name}.behind, {math.prod(lead[first:end])}",
                f"  {name}.times = mul i64 {name}.part, {lead[-1] if last == depth else 1}",
                f"  {name} = add i64 {name}.times, {'%begun' if last == depth else 0}",
            ]
        return lines

    def _base(self, buffer: int) -> list[str]:
        return [
            f"  %slot{buffer} = getelementptr ptr, ptr %buffers, i64 {buffer}",
            f"  %base{buffer} = load ptr, ptr %slot{buffer}, align 8",
        ]

    def _table(self) -> tuple[list[str], list[str]]:
        """What fills the table before the loop, and for every block."""
        fixed: list[str] = []
        moving: list[str] = []
        cells, constants = self.program.plan.cells, {}
        scratch = aligned(self.program.plan.arena_bytes)
        for slot, cell_number in enumerate(self.program.table, HEADER_SLOTS):
            cell = cells[cell_number] if cell_number >= 0 else None
            if cell is None or cell.region is Region.ARENA:
                offset = scratch if cell is None else cell.offset
                fixed.append(
                    f"  %at{slot} = getelementptr i8, ptr %base{self.buffers}, i64 {offset}"
                )
                fixed.append(self._stored(slot, f"%at{slot}"))
            elif cell.region is Region.CONSTANT:
                if cell_number not in constants:
                    constants[cell_number] = self._constant(cell.instruction)
                fixed.append(self._stored(slot, constants[cell_number]))
            else:
                parts = self.results if cell.region is Region.RESULT else self.arguments
                part = parts[cell.index]
                lines = fixed if not part.stride else moving
                lines += self._address(slot, part)
        return fixed, moving

    def _stored(self, slot: int, value: str) -> str:
        return (
            f"  %to{slot} = getelementptr ptr, ptr %table, i64 {slot}\n"
            f"  store ptr {value}, ptr %to{slot}, align 8"
        )

    def _address(self, slot: int, part: _Part) -> list[str]:
        if not part.stride:
            return [self._stored(slot, f"%base{part.buffer}")]
        return [
            f"  %offset{slot} = mul i64 {part.index}, {part.stride}",
            f"  %at{slot} = getelementptr i8, ptr %base{part.buffer}, i64 %offset{slot}",
            self._stored(slot, f"%at{slot}"),
        ]

    def _constant(self, instruction: Instruction | None) -> str:
        """A symbol for a small constant's bytes."""
        assert instruction is not None, "a constant cell has its constant"
        array = instruction["literal"].value  # type: ignore[attr-defined]  # an array literal
        name = f".block_constant{len(self.globals)}"
        written = "".join(f"\\{byte:02x}" for byte in array.tobytes())
        kind = f"[{array.nbytes} x i8]"
        text = f'@{name} = private unnamed_addr constant {kind} c"{written}", align 64'
        self.globals.append(Opaque(name, text))
        return f"@{name}"

    def _step(self, n: int, step: Step) -> list[str]:
        match step:
            case BranchStep(branches=((KernelStep() as guarded,), _)):
                return [
                    f"  %told.slot{n} = getelementptr ptr, ptr %table, i64 {step.selector}",
                    f"  %told.at{n} = load ptr, ptr %told.slot{n}, align 8",
                    f"  %told{n} = load i8, ptr %told.at{n}, align 1",
                    f"  %holds{n} = icmp ne i8 %told{n}, 0",
                    f"  br i1 %holds{n}, label %guarded{n}, label %after{n}",
                    f"guarded{n}:",
                    *self._kernel(n, guarded),
                    f"  br label %after{n}",
                    f"after{n}:",
                ]
            case KernelStep():
                return self._kernel(n, step)
            case CopyStep():
                return [
                    *(
                        line
                        for end, slot in (("from", step.source), ("into", step.target))
                        for line in (
                            f"  %{end}.slot{n} = getelementptr ptr, ptr %table, i64 {slot}",
                            f"  %{end}{n} = load ptr, ptr %{end}.slot{n}, align 8",
                        )
                    ),
                    f"  call void @llvm.memcpy.p0.p0.i64(ptr %into{n}, ptr %from{n},"
                    f" i64 {step.size}, i1 false)",
                ]
        raise AssertionError("steps of a block are plain")

    def _kernel(self, n: int, step: KernelStep) -> list[str]:
        row = f"  %row{n} = getelementptr ptr, ptr %table, i64 {step.slot}"
        name = self.names[step.kernel]
        return [row, f"  call void @{name}(ptr %row{n}, i64 0, i64 {step.units})"]

    def _weight(self, rates: Rates) -> tuple[int, int]:
        """Bytes moved, those in the cache counted by its rate; arithmetic by elementwise rates."""
        shapes = [*(o.shape for o in self.instruction.operands), *leaves_of(self.instruction.shape)]
        moved, flops = sum(s.size_bytes for s in shapes), 0
        for step in self.program.steps:
            if isinstance(step, KernelStep):
                kernel = self.program.kernels[step.kernel]
                within = kernel.bytes_moved * self.block.count
                moved += within * rates.memory_bytes // rates.cached_bytes
                work = kernel.flops * self.block.count
                if is_contraction(step.instruction):
                    work = work * rates.elementwise_ops // rates.contracted_ops
                flops += work
        return moved, flops
