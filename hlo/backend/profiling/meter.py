"""The meter: speeds of this machine's threads, measured between the runs of a program.

    rounds, in turns with runs --speeds--> Speeds: the medians, for the estimates of plans
                               --limits--> Limits, for what programs reach (benchmarks/ratchet.py)

A processor has no one speed: its clock follows what it computes and how many of its cores do, and
what runs beside a core on the same units takes a third of it, for seconds or for good; of products,
which load what they multiply, more than of arithmetic on registers. A speed that was the best of
some milliseconds belongs to no run. Runs and rounds that take turns meet the same machine, and
multiply-adds are measured in a tile out of the first cache, so what an estimate lacks is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from hlo.backend.ir.work import Speeds, speeds_of
from hlo.backend.profiling.limits import (
    CHAINS,
    MATRIX_BYTES,
    TILE_VECTORS,
    Level,
    Limits,
    loops,
    matrix_product,
    target_for,
    tile_rows,
    timed_round,
)  # fmt: skip
from hlo.machine import Machine
from hlo.process.once import once

TILE_SUMS = 1 << 24  # multiply-adds of vectors in a round, some milliseconds
MATRIX_TILES = 1 << 17  # products of tiles in a round, a millisecond
WAIT_ROUNDS = 1 << 18  # of a chain, a millisecond
READ_BYTES = 1 << 26  # read by all threads
NEAR_BYTES = 1 << 27  # of what lies near each of them, again and again
WARM_UP = 3  # Rounds of what all threads read, the last of which counts: it lies near by then.


@once
def _memory() -> np.ndarray:
    return np.ones(READ_BYTES // 4, np.float32)


class Meter:
    """Measures as many threads as work at once. What lies in so many bytes is read where it lies: a
    processor's caches may hold more than its description counts on.
    """

    def __init__(self, threads: int, machine: Machine | None = None) -> None:
        """machine: what code may use of this one's instructions; None: all."""
        self._threads = threads
        target = target_for(machine)
        self._loops = loops(machine)
        self._machine = target.machine
        self._lanes = self._machine.vector_bytes // 4
        rows, columns = tile_rows(target), TILE_VECTORS * self._lanes
        self._sums = rows * TILE_VECTORS
        self._depth = self._machine.first_cache.bytes // 2 // (4 * (rows + columns))
        self._memory = _memory()
        self._sinks = [np.zeros(self._lanes, np.float32) for _ in range(threads)]
        sizes = [threads * self._machine.first_cache.bytes // 2]
        while 2 * (size := sizes[-1]) <= READ_BYTES:
            # Beyond a core's own caches speeds fall within less than twice the size.
            is_near = size < threads * self._machine.second_cache.bytes
            sizes += [2 * size] if is_near else [3 * size // 2, 2 * size]
        self._instructions: list[float] = []
        self._tiles: list[float] | None = None if matrix_product(target) is None else []
        self._waits: list[float] = []
        self._reads: dict[int, list[float]] = {size: [] for size in sizes}

    def round(self) -> None:
        """Measure everything once."""
        read, _, _, wait, tile, matrix = self._loops
        source, us = self._memory.ctypes.data, 1e6
        sinks = [sink.ctypes.data for sink in self._sinks]

        def seconds(work: Callable[[int], None], threads: int) -> float:
            return timed_round(work, threads) * us

        depth, sums = self._depth, self._sums
        again = TILE_SUMS // (depth * sums)
        took = seconds(lambda t: tile(sinks[t], source, depth, again), self._threads)
        self._instructions.append(again * depth * sums / took)
        if self._tiles is not None:
            steps = self._machine.first_cache.bytes // 2 // (4 * MATRIX_BYTES)
            again = MATRIX_TILES // (4 * steps)
            took = seconds(lambda t: matrix(sinks[t], source, steps, again), self._threads)
            self._tiles.append(4 * steps * again / took)
        self._waits.append(seconds(lambda t: wait(sinks[t], source, WAIT_ROUNDS, 1), 1))
        for size, found in self._reads.items():
            step = 4 * CHAINS * self._lanes  # bytes
            own = size // self._threads // step * step
            is_near = size <= self._threads * self._machine.second_cache.bytes
            again = max(1, (NEAR_BYTES if is_near else READ_BYTES) // (own * self._threads))

            def reading(thread: int, own: int = own, again: int = again, step: int = step) -> None:
                read(sinks[thread], source + own * thread, own // step, again)

            for _ in range(1 if is_near else WARM_UP):
                timed_round(reading, self._threads)
            found.append(own * again / seconds(reading, self._threads))

    def speeds(self) -> Speeds:
        """Of one of the threads: the medians of all rounds, of which there was one at least."""
        rates = self._machine.rates
        reads = tuple((size, median(found)) for size, found in self._reads.items())
        wait_us = median(self._waits) / WAIT_ROUNDS
        tiles = median(self._tiles) if self._tiles else speeds_of(self._machine).tiles
        return Speeds(
            median(self._instructions), wait_us, reads, rates.call_us, rates.share_us, tiles,
            rates.taken_bytes, wait_us / self._machine.cycles.latency,
        )  # fmt: skip

    def limits(self) -> Limits:
        """The same of all threads together: bytes that are read from each cache and from memory,
        operations of multiply-adds in a tile.
        """
        speeds, n = self.speeds(), self._threads

        def bytes_in_second(size: int) -> float:
            return 1e6 * n * speeds.read(size)

        caches = [
            Level(f"L{number}", size, bytes_in_second(size))
            for number, cache in enumerate(self._machine.caches, start=1)
            for size in [cache.bytes * (1 if cache.shared else n)]
        ]
        far = bytes_in_second(READ_BYTES)
        operations = 2e6 * self._lanes * n * speeds.instructions
        return Limits(n, far, far, operations, tuple(caches))
