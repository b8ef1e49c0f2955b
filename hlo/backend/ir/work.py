"""Work: what a kernel does, in the quantities that a machine's speeds turn into time.

    Work, units, chunks, Speeds --estimated_us--> microseconds

    on one thread:  the greater of instructions / speed and chain * wait, + tiles / their speed
                    + cycles + (sums + packed + shared_packed) / speed + (copied + shared) / read
                    + fetched / near + moved * (1 / read - 1 / near)
                    or streamed / read, where that is longer, and BESIDE of the other one
    a stream:       its instructions' time and BESIDE of its bytes', or, where that is longer, its
                    bytes' and WAITED of its instructions'; bytes that come again count as others
    on each:        handed / taken, where several threads read it

`speed`: instructions in a microsecond, `wait`: until the next of a chain can begin; `read`: bytes
in a microsecond from what holds all that is worked on, or, where a run is known, what it touches
between two uses of them (reuse.py); `near`: from the first cache. Everything but
these follows from shapes; they are those of a machine's description (hlo/machine.py), or measured
(hlo/backend/profiling/limits.py).
"""

from __future__ import annotations

from itertools import pairwise
from math import log2

from msgspec import Struct

from hlo.backend.ir.kernel import Work
from hlo.machine import Machine

# Bytes arrive while instructions are busy, of which a share waits all the same. Where the bytes
# take longer, a core has the fewer of them under way the more instructions lie between: its window
# is so long. Zen 5: 0 where one row meets a matrix, 0.1 to 0.4 of 2 to 6; Zen 4: 0.5 of 2 that meet
# one of 8 MB.
BESIDE = 0.1
WAITED = 0.35
WORDS_OF_A_TILE = 16 * 16 * 16  # products of words of 32 bits, in that of two tiles


Distances = tuple[tuple[int, int], ...]  # bytes of an array, bytes touched since its last use


class Speeds(Struct, frozen=True):
    """Of one of the threads that work at once. instructions: multiply-adds of whole vectors in a
    microsecond; wait_us: from the beginning of one to that of another that needs it. reads: (bytes,
    how many are read in a microsecond where so many lie), the nearest first.
    """

    instructions: float
    wait_us: float
    reads: tuple[tuple[int, float], ...]
    call_us: float
    share_us: float
    tiles: float = 1.0  # products of two tiles on matrix units, in a microsecond
    taken: float = 1e9  # bytes in a microsecond that are written where another core has read
    cycle_us: float = 0.0  # of the processor's clock

    def read(self, reach: int) -> float:
        """Bytes in a microsecond where `reach` are worked on: between two known sizes by the
        logarithm of the size.
        """
        if reach <= self.reads[0][0]:
            return self.reads[0][1]
        for (less, near), (more, far) in pairwise(self.reads):
            if less < reach <= more:
                part = log2(reach / less) / log2(more / less)
                return near + part * (far - near)
        return self.reads[-1][1]

    def read_since(self, since: Distances) -> float:
        """The same of arrays of so many bytes, after so many others; 0 of none."""
        us = sum(size / self.read(distance) for size, distance in since)
        return sum(size for size, _ in since) / us if us else 0.0

    def __str__(self) -> str:
        (_, near), *_, (far, last) = self.reads
        return (
            f"{self.instructions:.0f} multiply-adds of vectors a us, {near / 1e3:.0f} GB/s read "
            f"nearby, {last / 1e3:.0f} of {far >> 20} MiB"
        )


def speeds_of(machine: Machine) -> Speeds:
    """By a machine's description: of one core."""
    rates, (first, *_, last) = machine.rates, machine.caches
    reads = (
        (first.bytes, rates.cached_factor_bytes),
        (machine.second_cache.bytes, rates.cached_bytes),
        (last.bytes, rates.cached_bytes),
        (2 * last.bytes, rates.memory_bytes),
    )
    instructions = rates.contracted_ops / (2 * (machine.vector_bytes // 4))
    wait_us = machine.cycles.latency * machine.cycles.operations / machine.turns / instructions
    lanes = machine.vector_bytes // 4
    tiles = instructions * lanes * machine.cycles.tiled / WORDS_OF_A_TILE
    return Speeds(
        instructions,
        wait_us,
        reads,
        rates.call_us,
        rates.share_us,
        tiles,
        rates.taken_bytes,
        wait_us / machine.cycles.latency,
    )


def estimated_us(
    work: Work,
    units: int,
    chunks: int,
    threads: int,
    speeds: Speeds,
    readers: int = 1,
    since: Distances = (),
) -> float:
    """The time of a kernel whose units are claimed in chunks by so many threads. speeds: of one of
    these; readers: threads that read what is handed on, each of which holds the lines until they
    are written again; since: of its arrays, where a run's other steps are known (reuse.py).
    """
    read, near = speeds.read_since(since) or speeds.read(work.reach), speeds.reads[0][1]
    products = max(work.instructions / speeds.instructions, work.chain * speeds.wait_us)
    products += work.tiles / speeds.tiles + work.cycles * speeds.cycle_us
    arithmetic = products + (work.sums + work.packed) / speeds.instructions
    shared = work.shared / read + work.shared_packed / speeds.instructions
    if work.is_stream:
        arriving = (work.moved + work.streamed) / read
        arriving += sum(size / speeds.read(held) for size, held in work.again)
        own = max(arithmetic + BESIDE * arriving, arriving + WAITED * arithmetic)
    else:
        waiting = work.moved * max(1 / read - 1 / near, 0.0)
        computing = arithmetic + waiting + work.copied / read + work.fetched / near
        shorter, longer = sorted((computing, work.streamed / read))
        own = longer + BESIDE * shorter
    own += work.handed / speeds.taken if readers > 1 else 0.0
    if chunks < 2 or threads < 2:
        return speeds.call_us + own + shared
    rounds = -(-chunks // threads)
    most = -(-units // chunks)  # of a chunk
    runs = -(-most * work.runs // units)
    even = own / threads
    uneven = rounds * most * own / units
    longest = uneven if rounds <= 2 else max(even, uneven - most * own / units)
    return speeds.call_us + speeds.share_us + longest + rounds * runs * shared / work.runs
