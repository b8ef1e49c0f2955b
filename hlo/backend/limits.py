"""What this machine can do at most: bytes read and copied, and f32 operations, each second.

    threads --loops of vector IR, timed--> Limits

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

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.called import as_function
from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.work import Speeds
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.lanes.nest import Carried, Nest
from hlo.backend.linking.compile import objects
from hlo.backend.linking.jit import Code
from hlo.backend.linking.toolchain import host_target
from hlo.once import once

MEMORY_BYTES = 1 << 28  # read in a round: it comes from memory everywhere
FMA_ROUNDS = 1 << 20  # iterations of the arithmetic loop, some milliseconds
CHAINS = 12  # independent sums: more than a processor's latency times its units
ALIGN = 16  # bytes: NumPy's large arrays begin so
READ_BYTES = 1 << 26  # the most that is read again and again
AGAIN_BYTES = 1 << 26  # copied in a round by each thread, the same few again and again
NAMES = ("hlo_read", "hlo_copy", "hlo_multiply_add", "hlo_wait")
WAIT_ROUNDS = 1 << 18  # of a chain, a millisecond
MEMORY = "memory"
ROUNDS = 5  # the best counts: whatever else the machine does makes it slower only
LONG_ROUNDS = 20  # of arithmetic, on which all estimates rest


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
def measured_limits(threads: int) -> Limits:
    """Measured once in a process, about a second."""
    target, (read, copy, multiply_add, _) = host_target(), _functions()
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


@once
def measured_speeds(threads: int) -> Speeds:
    """Of one of so many threads that work at once, for the estimates of plans; measured once in a
    process. What lies in so many bytes is read where it lies: a processor's caches may hold more
    than its description counts on.
    """
    machine, (read, _, multiply_add, wait) = host_target().machine, _functions()
    lanes = machine.vector_bytes // 4
    step = CHAINS * lanes
    memory = np.ones(READ_BYTES // 4, np.float32)
    sinks = [np.zeros(lanes, np.float32) for _ in range(threads)]

    def instructions(threads: int) -> float:
        seconds = _seconds(
            lambda thread: multiply_add(
                sinks[thread].ctypes.data, memory.ctypes.data, FMA_ROUNDS, 1
            ),
            threads,
            LONG_ROUNDS,
        )
        return FMA_ROUNDS * CHAINS / seconds / 1e6

    def wait_us() -> float:
        place = memory.ctypes.data
        return _seconds(lambda t: wait(sinks[t].ctypes.data, place, WAIT_ROUNDS, 1), 1) * 1e6

    def speed(size: int) -> float:
        own = size // (4 * threads) // step * step
        again = max(1, READ_BYTES // (4 * own * threads))

        def reading(thread: int) -> None:
            place = memory.ctypes.data + 4 * own * thread
            read(sinks[thread].ctypes.data, place, own // step, again)

        return 4.0 * own * again / _seconds(reading, threads) / 1e6

    sizes = [threads * machine.first_cache.bytes // 2]
    while 2 * sizes[-1] <= READ_BYTES:
        sizes.append(2 * sizes[-1])
    rates = machine.rates
    reads = tuple((size, speed(size)) for size in sizes)
    waiting = wait_us() / WAIT_ROUNDS
    return Speeds(instructions(threads), waiting, reads, rates.call_us, rates.share_us)


@once
def _functions() -> tuple[Callable[..., None], ...]:
    """The loops, to be called: those of NAMES."""
    code = Code(objects([_module(host_target())])).keep_forever()
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    )
    return tuple(signature(code.address(name)) for name in NAMES)


def _seconds(work: Callable[[int], None], threads: int, rounds: int = ROUNDS) -> float:
    """The shortest round in which every thread does its part; the first warms up."""
    return min([_round(work, threads) for _ in range(rounds + 1)][1:])


def _round(work: Callable[[int], None], threads: int) -> float:
    ready = threading.Barrier(threads + 1)

    def run(thread: int) -> None:
        _keep_apart(thread)
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
        self.w = Writer()
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
            if not self.fuses:
                return [w.binary("fadd", w.binary("fmul", s, scale), scale) for s in sums]
            return [w.intrinsic("llvm.fma", self.type, s, scale, scale) for s in sums]

        return self._summed(one, chains=chains)

    def wait(self) -> Kernel:
        """Of one chain."""
        return self.multiply_add(1)

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
    loops = (_Loops.read, _Loops.copy, _Loops.multiply_add, _Loops.wait)
    for name, write in zip(NAMES, loops, strict=True):
        made.place(name, write(_Loops(target)))
    return IrModule("\n".join(made.lines()), NAMES)
