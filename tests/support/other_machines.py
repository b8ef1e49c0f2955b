"""Machines with this one's instructions, and caches and rates that are very different."""

from __future__ import annotations

from msgspec.structs import replace

from hlo import driver
from hlo.machine import Cache, Cycles, Machine, Rates

HOST = driver.host_machine()
_SMALL = (
    Cache(bytes=4 << 10, ways=2),
    Cache(bytes=64 << 10, ways=4),
    Cache(bytes=128 << 10, ways=4, shared=True),
)
_LARGE = (
    Cache(bytes=1 << 20, ways=16),
    Cache(bytes=64 << 20, ways=32),
    Cache(bytes=1 << 30, ways=16, shared=True),
)
# Memory is fast and threads are dear: nothing is split.
_ALONE = Rates(
    memory_bytes=100_000, cached_bytes=100_001, copied_bytes=100_000, awaited_bytes=300,
    elementwise_ops=300_000, contracted_ops=1_000_000, call_us=1.0, host_call_us=0.1,
    wake_us=1e5, share_us=300.0,
)  # fmt: skip
# All work is slow and threads are free: everything is split.
_SHARED = Rates(
    memory_bytes=100, cached_bytes=10_000, copied_bytes=50, crossing_bytes=1_000_000,
    awaited_bytes=65_536, elementwise_ops=300, contracted_ops=600, call_us=0.001,
    host_call_us=100.0, wake_us=0.001, share_us=0.001,
)  # fmt: skip


def _cycles(*, operations: float, **others: float) -> Cycles:
    """Which instructions serve is not asked here: bf16's are as fast beside the others as here."""
    share = HOST.cycles.bf16_dots / HOST.cycles.operations
    return Cycles(operations=operations, bf16_dots=share * operations, **others)


OTHERS: dict[str, Machine] = {
    "small caches": replace(HOST, name="small", caches=_SMALL),
    "small caches, threads dear": replace(
        HOST,
        name="alone",
        line_bytes=32,
        caches=_SMALL,
        rates=_ALONE,
        cycles=_cycles(operations=4, loads=1, latency=9, load_latency=20, window=15),
    ),
    "large caches, threads free": replace(
        HOST,
        name="shared",
        line_bytes=128,
        caches=_LARGE,
        rates=_SHARED,
        cycles=_cycles(operations=1, loads=4, latency=1, load_latency=1, window=5000),
    ),
}


def assisting() -> Machine:
    """This machine, as if it left subnormal numbers to microcode."""
    return replace(HOST, cycles=replace(HOST.cycles, assist=130))
