"""What this machine can do at most: bytes read and copied, and f32 operations, each second.

    threads --three loops of vector IR, timed--> Limits

They stand beside the figures of programs: 85 % of the read bandwidth says more than 12 GB/s.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.compile import objects
from hlo.backend.linking.jit import Code
from hlo.backend.linking.toolchain import host_target
from hlo.once import once

MEMORY_BYTES = 1 << 28  # read in a round: it comes from memory everywhere
FMA_ROUNDS = 1 << 20  # iterations of the arithmetic loop, some milliseconds
CHAINS = 12  # independent sums: more than a processor's latency times its units
ROUNDS = 5  # the best counts: whatever else the machine does makes it slower only


class Limits(Struct, frozen=True):
    """Bytes per second out of main memory, read and copied (read + written), and f32
    multiply-adds (two operations each) per second, all with `threads` threads.
    """

    threads: int
    read: float
    copied: float
    operations: float

    def seconds(self, bytes_moved: float, operations: float) -> float:
        """The least that a step out of main memory takes."""
        return max(bytes_moved / self.copied, operations / self.operations)

    def __str__(self) -> str:
        return (
            f"machine, {self.threads} threads: read {self.read / 1e9:.1f} GB/s, "
            f"copy {self.copied / 1e9:.1f} GB/s, f32 {self.operations / 1e9:.0f} GFLOP/s"
        )


@once
def measured_limits(threads: int) -> Limits:
    """Measured once in a process, about a second."""
    lanes = host_target().vector_bytes // 4
    code = Code(objects([IrModule(_text(lanes), ("hlo_read", "hlo_copy", "hlo_multiply_add"))]))
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    read, copy, multiply_add = (
        signature(code.address(name)) for name in ("hlo_read", "hlo_copy", "hlo_multiply_add")
    )
    memory = np.ones(MEMORY_BYTES // 4, np.float32)
    step = CHAINS * lanes
    part = memory.size // (2 * threads) // step * step  # elements of a half's part
    first, bytes_of = memory.ctypes.data, 4 * part
    sinks = [np.zeros(lanes, np.float32) for _ in range(threads)]

    def reading(thread: int) -> None:
        place = first + 2 * thread * bytes_of
        read(sinks[thread].ctypes.data, place, 2 * part // step)

    def copying(thread: int) -> None:
        place = first + 2 * thread * bytes_of
        copy(place + bytes_of, place, part // step)

    def computing(thread: int) -> None:
        multiply_add(sinks[thread].ctypes.data, first, FMA_ROUNDS)

    moved = 2.0 * bytes_of * threads
    return Limits(
        threads,
        moved / _seconds(reading, threads),
        moved / _seconds(copying, threads),
        2.0 * FMA_ROUNDS * step * threads / _seconds(computing, threads),
    )


def _seconds(work: Callable[[int], None], threads: int) -> float:
    """The shortest round in which every thread does its part; the first warms up."""
    return min([_round(work, threads) for _ in range(ROUNDS + 1)][1:])


def _round(work: Callable[[int], None], threads: int) -> float:
    ready = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        ready.wait()
        work(thread)

    workers = [threading.Thread(target=run, args=(t,)) for t in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start


def _text(lanes: int) -> str:
    """The three loops, CHAINS vectors an iteration."""
    vector, fma = f"<{lanes} x float>", f"@llvm.fma.v{lanes}f32"
    loads = [
        f"%p{k} = getelementptr {vector}, ptr %from, i64 {k}\n"
        f"%x{k} = load {vector}, ptr %p{k}, align 16"
        for k in range(CHAINS)
    ]
    stores = [
        f"%q{k} = getelementptr {vector}, ptr %to, i64 {k}\n"
        f"store {vector} %x{k}, ptr %q{k}, align 16"
        for k in range(CHAINS)
    ]
    sums = [f"%b{k} = fadd {vector} %a{k}, %x{k}" for k in range(CHAINS)]
    products = [
        f"%b{k} = call {vector} {fma}({vector} %a{k}, {vector} %scale, {vector} %scale)"
        for k in range(CHAINS)
    ]
    return "\n".join(
        (
            f"declare {vector} {fma}({vector}, {vector}, {vector})",
            _loop("hlo_read", vector, [*loads, *sums], has_sums=True),
            _loop("hlo_copy", vector, [*loads, *stores], has_sums=False),
            _loop("hlo_multiply_add", vector, products, has_sums=True),
        )
    )


def _loop(name: str, vector: str, body: Sequence[str], *, has_sums: bool) -> str:
    """A function that runs the body `count` times, %from and %to advancing; the total of the sums
    goes to %sink, so that nothing is left out as unused.
    """
    chains = range(CHAINS) if has_sums else range(0)
    heads = "\n".join(
        f"%a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in chains
    )
    adds = "\n".join(
        f"%t{k} = fadd {vector} {f'%t{k - 1}' if k else 'zeroinitializer'}, %b{k}" for k in chains
    )
    total = f"store {vector} %t{CHAINS - 1}, ptr %sink, align 4" if has_sums else ""
    lines = "\n".join(body)
    return f"""
define void @{name}(ptr %sink, ptr %source, i64 %count) {{
entry:
%scale = load {vector}, ptr %source, align 4
br label %loop
loop:
%i = phi i64 [ 0, %entry ], [ %j, %loop ]
%from = phi ptr [ %source, %entry ], [ %next, %loop ]
%to = phi ptr [ %sink, %entry ], [ %further, %loop ]
{heads}
{lines}
%next = getelementptr {vector}, ptr %from, i64 {CHAINS}
%further = getelementptr {vector}, ptr %to, i64 {CHAINS}
%j = add i64 %i, 1
%more = icmp ult i64 %j, %count
br i1 %more, label %loop, label %done
done:
{adds}
{total}
ret void
}}
"""
