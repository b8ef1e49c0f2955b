"""What this machine can do at most: bytes read and copied, and f32 operations, each second.

    threads, a machine's instructions --loops of vector IR, timed--> Limits

Bytes are those of main memory, and those of each cache, for what it holds.

They stand beside the figures of programs: 85 % of the read bandwidth says more than 12 GB/s.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.called import as_function
from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.amx import ROW_BYTES, ROWS, TileProduct
from hlo.backend.isa.target import Target
from hlo.backend.lanes.nest import Carried, Nest
from hlo.backend.linking.compile import objects
from hlo.backend.linking.jit import Code
from hlo.backend.linking.toolchain import host_target
from hlo.ir import dtype as dt
from hlo.machine import Machine
from hlo.process.once import once

MEMORY_BYTES = 1 << 28  # read in a round: it comes from memory everywhere
FMA_ROUNDS = 1 << 20  # iterations of the arithmetic loop, some milliseconds
MATRIX_BYTES = ROWS * ROW_BYTES  # of a tile of matrix units
TILE_VECTORS = 2  # columns of a tile of sums, in vectors
CHAINS = 12  # independent sums: more than a processor's latency times its units
ALIGN = 16  # bytes: NumPy's large arrays begin so
AGAIN_BYTES = 1 << 26  # copied in a round by each thread, the same few again and again
NAMES = ("hlo_read", "hlo_copy", "hlo_multiply_add", "hlo_wait", "hlo_tile", "hlo_matrix")
MEMORY = "memory"
ROUNDS = 5  # the best counts: whatever else the machine does makes it slower only


class Level(Struct, frozen=True):
    """A cache: its name, the bytes that those of all threads hold, bytes copied per second."""

    name: str
    bytes: int
    copied: float


class Limits(Struct, frozen=True):
    """Bytes per second out of main memory, read and copied (read + written), and f32
    multiply-adds (two operations each) per second, all with `threads` threads. caches: the nearest
    first.
    """

    threads: int
    read: float
    copied: float
    operations: float
    caches: tuple[Level, ...] = ()

    def seconds(self, bytes_moved: float, operations: float) -> float:
        """The least that a step out of main memory takes."""
        return max(bytes_moved / self.copied, operations / self.operations)

    def level(self, working_bytes: float) -> Level:
        """The nearest cache that holds so many bytes, else main memory."""
        found = (cache for cache in self.caches if working_bytes <= cache.bytes)
        return next(found, Level(MEMORY, 1 << 62, self.copied))

    def seconds_near(self, bytes_moved: float, operations: float) -> float:
        """The least that a step takes whose bytes are in the nearest cache that holds them."""
        copied = self.level(bytes_moved).copied
        return max(bytes_moved / copied, operations / self.operations)

    def __str__(self) -> str:
        caches = "".join(f", {c.name} {c.copied / 1e9:.0f}" for c in self.caches)
        return (
            f"machine, {self.threads} threads: read {self.read / 1e9:.1f} GB/s, "
            f"copy {self.copied / 1e9:.1f} GB/s{caches}, f32 {self.operations / 1e9:.0f} GFLOP/s"
        )


@once
def measured_limits(threads: int, machine: Machine | None = None) -> Limits:
    """Measured once in a process, about a second. machine: what code may use of this one's
    instructions; None: all.
    """
    target, (read, copy, multiply_add, *_) = target_for(machine), loops(machine)
    lanes = target.vector_bytes // 4
    memory = np.ones(MEMORY_BYTES // 4, np.float32)
    step = CHAINS * lanes
    part = memory.size // (2 * threads) // step * step  # elements of a half's part
    first, bytes_of = memory.ctypes.data, 4 * part
    sinks = [np.zeros(lanes, np.float32) for _ in range(threads)]

    def reading(thread: int) -> None:
        place = first + 2 * thread * bytes_of
        read(sinks[thread].ctypes.data, place, 2 * part // step, 1)

    def copying(thread: int) -> None:
        place = first + 2 * thread * bytes_of
        copy(place + bytes_of, place, part // step, 1)

    def computing(thread: int) -> None:
        multiply_add(sinks[thread].ctypes.data, first, FMA_ROUNDS, 1)

    def cached(number: int) -> Level:
        """Copies between the halves of half a cache; of a shared one, of a thread's part."""
        cache = target.machine.caches[number]
        own = cache.bytes // (threads if cache.shared else 1)
        rounds = max(1, own // 4 // (4 * step))
        again = max(1, AGAIN_BYTES // (8 * rounds * step))

        def copying_near(thread: int) -> None:
            place = first + 2 * thread * bytes_of
            copy(place + 4 * rounds * step, place, rounds, again)

        near = 8.0 * rounds * step * again * threads / _seconds(copying_near, threads)
        return Level(f"L{number + 1}", cache.bytes * (1 if cache.shared else threads), near)

    moved = 2.0 * bytes_of * threads
    return Limits(
        threads,
        moved / _seconds(reading, threads),
        moved / _seconds(copying, threads),
        2.0 * FMA_ROUNDS * step * threads / _seconds(computing, threads),
        tuple(map(cached, range(len(target.machine.caches)))),
    )


def tile_rows(target: Target) -> int:
    """Of sums that registers hold beside the columns and a row's number that meets them."""
    return (target.machine.registers - 2 * TILE_VECTORS) // TILE_VECTORS


def matrix_product(target: Target) -> TileProduct | None:
    """The product of tiles that the target has for bf16, or for s8: all take as long."""
    found = (target.isa.tile_product(element, element) for element in (dt.BF16, dt.S8))
    return next(filter(None, found), None)


def target_for(machine: Machine | None) -> Target:
    """A machine's, whose code runs here; None: this one's."""
    return host_target() if machine is None else Target(machine)


@once
def loops(machine: Machine | None = None) -> tuple[Callable[..., None], ...]:
    """Those of NAMES, to be called."""
    module = replace(_module(target_for(machine)), machine=machine)
    code = Code(objects([module])).keep_forever()
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    )
    return tuple(signature(code.address(name)) for name in NAMES)


def _seconds(work: Callable[[int], None], threads: int) -> float:
    """The shortest round in which every thread does its part; the first warms up."""
    return min([timed_round(work, threads) for _ in range(ROUNDS + 1)][1:])


def timed_round(work: Callable[[int], None], threads: int) -> float:
    """Seconds in which every thread does its part: those of the longest part, for the interpreter
    may take a tenth of a millisecond from one thread's start to the other's.
    """
    ready, took = threading.Barrier(threads), [0.0] * threads
    ended = [threading.Event() for _ in range(threads)]

    def run(thread: int) -> None:
        try:
            _keep_apart(thread)
            ready.wait()
            start = time.perf_counter()
            work(thread)
            took[thread] = time.perf_counter() - start
        except threading.BrokenBarrierError:
            pass
        finally:
            ended[thread].set()

    workers = [threading.Thread(target=run, args=(t,)) for t in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for end in ended:
            end.wait()
    finally:
        # An interrupt ends the round here, and would free the memory that the parts still read.
        # It is not asked of the threads whether they live: Python takes one whose join() was
        # interrupted for ended.
        ready.abort()
        for worker, end in zip(workers, ended, strict=True):
            if worker.ident is not None:
                end.wait()
    return max(took)


def _keep_apart(thread: int) -> None:
    """Keep the calling thread to a processor of its own, where the system lets it: Linux may leave
    two threads on one for all of a round, and the machine then looks half as fast.
    """
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[thread % len(processors)]})  # 0: this thread


# -- the loops ------------------------------------------------------------------------------------

SINK, SOURCE = Value("%sink", "ptr"), Value("%source", "ptr")
COUNT, TIMES = Value("%count", "i64"), Value("%times", "i64")
PARAMETERS = SINK, SOURCE, COUNT, TIMES
Round = Callable[[Value, Carried], Carried]  # its number, the sums: what these are after it


class _Loops:
    """(sink, source, count, times): `count` rounds of CHAINS vectors; copies all of them `times`
    times. What is summed goes to the sink, so that nothing is left out as unused.
    """

    def __init__(self, target: Target) -> None:
        self.w, self.target = Writer(), target
        self.nest = Nest(self.w, target)
        self.type = vector_of("float", target.vector_bytes // 4)
        self.fuses = target.isa.fuses

    def read(self) -> Kernel:
        def one(i: Value, sums: Carried) -> Carried:
            return [self.w.binary("fadd", s, x) for s, x in zip(sums, self._loads(i), strict=True)]

        return self._summed(lambda _, sums: self.nest.loop(0, COUNT, 1, sums, one), TIMES)

    def copy(self) -> Kernel:
        def one(i: Value, _: Carried) -> Carried:
            for x, place in zip(self._loads(i), self._addresses(SINK, i), strict=True):
                self.w.store(x, place, ALIGN)
            return []

        def all_rounds(_: Value, __: Carried) -> Carried:
            self.nest.loop(0, COUNT, 1, [], one)
            return []

        self.nest.loop(0, TIMES, 1, [], all_rounds)
        return as_function(self.w, PARAMETERS)

    def multiply_add(self, chains: int = CHAINS) -> Kernel:
        w = self.w
        scale = w.load(SOURCE, self.type, 4)

        def one(_: Value, sums: Carried) -> Carried:
            return [self._fused(s, scale, scale) for s in sums]

        return self._summed(one, chains=chains)

    def wait(self) -> Kernel:
        """Of one chain."""
        return self.multiply_add(1)

    def tile(self) -> Kernel:
        """Of a product: sums of TILE_VECTORS columns by tile_rows, over `count` depths."""
        w, rows = self.w, tile_rows(self.target)
        lanes = self.target.vector_bytes // 4
        lhs = w.address(SOURCE, times(w, COUNT, TILE_VECTORS * lanes), "float")

        def one(i: Value, sums: Carried) -> Carried:
            right = [
                w.load(w.address(SOURCE, add(w, times(w, i, TILE_VECTORS), w.int(n)), self.type),
                       self.type, ALIGN)
                for n in range(TILE_VECTORS)
            ]  # fmt: skip
            first, found = times(w, i, rows), []
            for n, s in enumerate(sums):
                left = w.load(w.address(lhs, add(w, first, w.int(n // TILE_VECTORS)), "float"),
                              "float", 4)  # fmt: skip
                found.append(self._fused(w.splat(left, lanes), right[n % TILE_VECTORS], s))
            return found

        return self._summed(
            lambda _, sums: self.nest.loop(0, COUNT, 1, sums, one), TIMES, TILE_VECTORS * rows
        )

    def matrix(self) -> Kernel:
        """Of a product on matrix units, where there are any: 2 x 2 tiles of sums over `count`
        steps, of which each loads two tiles of both factors.
        """
        w, tiles = self.w, matrix_product(self.target)
        if tiles is None:
            return as_function(w, PARAMETERS)
        left = w.alloca(f"[{MATRIX_BYTES} x i8]", ROW_BYTES)
        tiles.configure(w)
        for tile in range(4):
            tiles.zero(w, tile)

        def one(step: Value, _: Carried) -> Carried:
            first = times(w, step, 4 * MATRIX_BYTES)
            for n in range(4):
                place = w.address(SOURCE, add(w, first, w.int(n * MATRIX_BYTES)), "i8")
                tiles.load(w, 4 + n, place, ROW_BYTES)
            for tile in range(4):
                tiles.multiply(w, tile, 4 + tile // 2, 6 + tile % 2)
            return []

        def all_steps(_: Value, __: Carried) -> Carried:
            self.nest.loop(0, COUNT, 1, [], one)
            return []

        self.nest.loop(0, TIMES, 1, [], all_steps)
        for tile in range(4):
            tiles.store(w, tile, left, ROW_BYTES)
        tiles.release(w)
        return as_function(w, PARAMETERS)

    def _fused(self, x: Value, y: Value, z: Value) -> Value:
        if not self.fuses:
            return self.w.binary("fadd", self.w.binary("fmul", x, y), z)
        return self.w.intrinsic("llvm.fma", self.type, x, y, z)

    def _addresses(self, base: Value, i: Value) -> list[Value]:
        first = times(self.w, i, CHAINS)
        numbers = [add(self.w, first, self.w.int(k)) for k in range(CHAINS)]
        return [self.w.address(base, number, self.type) for number in numbers]

    def _loads(self, i: Value) -> list[Value]:
        return [self.w.load(place, self.type, ALIGN) for place in self._addresses(SOURCE, i)]

    def _summed(self, one: Round, rounds: Value = COUNT, chains: int = CHAINS) -> Kernel:
        zeros = [self.w.zero(self.type) for _ in range(chains)]
        total, *others = self.nest.loop(0, rounds, 1, zeros, one)
        for other in others:
            total = self.w.binary("fadd", total, other)
        self.w.store(total, SINK, 4)
        return as_function(self.w, PARAMETERS)


def _module(target: Target) -> IrModule:
    made = Definitions()
    loops = (_Loops.read, _Loops.copy, _Loops.multiply_add, _Loops.wait, _Loops.tile, _Loops.matrix)
    for name, write in zip(NAMES, loops, strict=True):
        made.place(name, write(_Loops(target)))
    return IrModule("\n".join(made.lines()), NAMES)
