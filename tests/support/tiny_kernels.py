"""A kernel family for tests: scalar loops for a few elementwise ops on f32 and s32, and updates.

So that schedule, buffers, program, entry and runtime are tested without the real kernels.
"""

from __future__ import annotations

import numpy as np

from hlo.analysis.legality import family_of
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.host import HostCalls
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.target import Target
from hlo.backend.linking import toolchain
from hlo.backend.linking.compile import objects
from hlo.backend.linking.installing import link
from hlo.backend.linking.tabulation import link_table
from hlo.backend.planning.buffers import BufferPlan, assign
from hlo.backend.planning.implementations import implementations
from hlo.backend.planning.schedule import schedule
from hlo.backend.planning.steps import program_of
from hlo.ir.instruction import Instruction
from hlo.ops.table import KernelFamily
from hlo.parser.parse import parse
from hlo.runtime.executable import Executable
from tests.support.llvm_text import function_of

LLVM = {"f32": "float", "s32": "i32", "pred": "i8"}
FLOAT = {"add": "fadd", "subtract": "fsub", "multiply": "fmul"}
INT = {"add": "add", "subtract": "sub", "multiply": "mul"}


def elementwise(instruction: Instruction, target: Target) -> Kernel | None:
    """add, subtract, multiply, compare LT; anything else is declined."""
    del target
    opcode, shape = instruction.opcode, instruction.shape
    if len(instruction.operands) != 2 or any(
        o.shape.dims != shape.dims for o in instruction.operands
    ):
        return None
    name = instruction.operands[0].shape.dtype.name
    if name not in ("f32", "s32"):
        return None
    table = FLOAT if name == "f32" else INT
    if opcode in table:
        compute = f"  %r = {table[opcode]} {LLVM[name]} %x, %y"
    elif opcode == "compare" and instruction.attributes["direction"] == "LT":
        test = "fcmp olt" if name == "f32" else "icmp slt"
        compute = f"  %t = {test} {LLVM[name]} %x, %y\n  %r = zext i1 %t to i8"
    else:
        return None
    return loop(LLVM[name], LLVM[shape.dtype.name], compute, shape.size, same=opcode in table)


def loop(given: str, made: str, compute: str, size: int, *, same: bool) -> Kernel:
    text = f"""define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{
start:
  %p0 = load ptr, ptr %buffers
  %s1 = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %s1
  %s2 = getelementptr ptr, ptr %buffers, i64 2
  %p2 = load ptr, ptr %s2
  br label %test
test:
  %i = phi i64 [ %begin, %start ], [ %n, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %a0 = getelementptr {given}, ptr %p0, i64 %i
  %x = load {given}, ptr %a0
  %a1 = getelementptr {given}, ptr %p1, i64 %i
  %y = load {given}, ptr %a1
{compute}
  %a2 = getelementptr {made}, ptr %p2, i64 %i
  store {made} %r, ptr %a2
  %n = add i64 %i, 1
  br label %test
done:
  ret void
}}
"""
    pairs = frozenset({(0, 0), (1, 0)}) if same else frozenset[tuple[int, int]]()
    return Kernel(function_of(text), size, in_place=pairs, bytes_moved=12 * size, flops=size)


def update(instruction: Instruction, target: Target) -> Kernel | None:
    """dynamic-update-slice of one f32 element into a vector, in place."""
    del target
    if instruction.opcode != "dynamic-update-slice" or instruction.shape.rank != 1:
        return None
    if instruction.operands[1].shape.dims != (1,) or instruction.shape.dtype.name != "f32":
        return None
    last = instruction.shape.size - 1
    text = f"""define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{
  %s1 = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %s1
  %s2 = getelementptr ptr, ptr %buffers, i64 2
  %p2 = load ptr, ptr %s2
  %s3 = getelementptr ptr, ptr %buffers, i64 3
  %p3 = load ptr, ptr %s3
  %value = load float, ptr %p1
  %at = load i32, ptr %p2
  %low = call i32 @llvm.smax.i32(i32 %at, i32 0)
  %in = call i32 @llvm.smin.i32(i32 %low, i32 {last})
  %place = getelementptr float, ptr %p3, i32 %in
  store float %value, ptr %place
  ret void
}}
"""
    declared = (
        "declare i32 @llvm.smax.i32(i32, i32)",
        "declare i32 @llvm.smin.i32(i32, i32)",
    )
    made = function_of(text)
    return Kernel(made, 1, declarations=declared, must_alias=frozenset({(0, 0)}), bytes_moved=8)


FAMILIES = {KernelFamily.LOOPS: (elementwise, update)}


def planned(text: str) -> BufferPlan:
    """The buffer plan of a program with the tiny kernels."""
    order = schedule(parse(text))
    target = toolchain.host_target()
    return assign(
        order,
        implementations(order, target, lambda i, _: FAMILIES.get(family_of(i), ())),
        target.machine,
    )


def compiled(text: str, threads: int = 1, *, cache: bool = False) -> Executable:
    """An executable made with the tiny kernels."""
    program = program_of(planned(text), threads, toolchain.host_machine())
    host = HostCalls(program) if program.hosts else None
    table = link_table(program)
    bodies = objects(emit(program), cache=cache)
    return link(program.plan.schedule.module, table, bodies, host)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)
