"""Arena offsets: allocations in use at one time never overlap, and the arena is small."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hlo.backend.planning import packing
from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.backend.planning.packing import pack
from hlo.machine import ALIGNMENT, aligned
from tests.support.counted_arrays import counted

SIZES = (2048, 4096, 5000, 100_000)


def allocation(size: int, start: int, end: int) -> Allocation:
    return Allocation(AllocationKind.ARENA, size, start=start, end=end)


def in_a_chain(count: int, rng: random.Random) -> list[Allocation]:
    return [allocation(rng.choice(SIZES), n, n + 1) for n in range(count)]


def kept_to_the_end(count: int, rng: random.Random) -> list[Allocation]:
    return [allocation(rng.choice(SIZES), n, count) for n in range(count)]


def read_in_reverse(count: int, rng: random.Random) -> list[Allocation]:
    kept = [allocation(rng.choice(SIZES), n, 2 * count - n) for n in range(count // 2)]
    brief = [rng.randrange(2 * count) for _ in range(count - count // 2)]
    return [
        *kept,
        *(allocation(rng.randrange(1025, 1 << 20), n, n + rng.randrange(3)) for n in brief),
    ]


def of_all_durations(count: int, rng: random.Random) -> list[Allocation]:
    starts = [rng.randrange(count) for _ in range(count)]
    return [allocation(rng.choice(SIZES), n, n + int(2 ** rng.uniform(0, 10))) for n in starts]


PROGRAMS = (in_a_chain, kept_to_the_end, read_in_reverse, of_all_durations)


def greedy(allocations: list[Allocation]) -> list[int]:
    """The offsets of best fit by size, each allocation compared with all that are placed."""
    placed: list[tuple[Allocation, int, int]] = []
    for one in sorted(allocations, key=lambda c: (-c.size, c.start)):
        met = sorted((a, b) for c, a, b in placed if c.start <= one.end and one.start <= c.end)
        gaps, reached = [], 0
        for low, high in met:
            if low - reached >= aligned(one.size):
                gaps.append((low - reached, reached))
            reached = max(reached, high)
        offset = min(gaps)[1] if gaps else reached
        placed.append((one, offset, offset + aligned(one.size)))
    at = {id(c): offset for c, offset, _ in placed}
    return [at[id(c)] for c in allocations]


def check_apart(allocations: list[Allocation], top: int) -> None:
    for n, a in enumerate(allocations):
        assert a.offset % ALIGNMENT == 0
        assert a.offset + a.size <= top
        for b in allocations[:n]:
            if a.start <= b.end and b.start <= a.end:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def most_in_use(allocations: list[Allocation]) -> int:
    return max(
        sum(aligned(c.size) for c in allocations if c.start <= moment <= c.end)
        for moment in {c.start for c in allocations}
    )


@pytest.mark.parametrize("few", [8, 1024])
@pytest.mark.parametrize("program", PROGRAMS)
def test_looking_up_by_time_finds_what_comparing_all_does(
    program: Callable[[int, random.Random], list[Allocation]],
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "FEW", few)
    monkeypatch.setattr(packing, "WORTH", 1)
    for count in (1, 2, 9, 40, 300):
        allocations = program(count, random.Random(count))
        pack(allocations)
        assert [c.offset for c in allocations] == greedy(allocations)


@pytest.mark.parametrize("looks", [0, 3000])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_too_much_to_look_at_is_apart_and_close(
    program: Callable[[int, random.Random], list[Allocation]],
    looks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "MOST_LOOKS", looks)
    allocations = program(300, random.Random(looks))
    top = pack(allocations)
    check_apart(allocations, top)
    assert top <= 2 * most_in_use(allocations)


@pytest.mark.parametrize("program", PROGRAMS)
def test_looks_grow_as_allocations_do_beyond_the_budget(
    program: Callable[[int, random.Random], list[Allocation]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "FEW", 16)
    monkeypatch.setattr(packing, "MOST_LOOKS", 5000)
    work = []
    for count in (400, 800):
        with counted(packing) as looks:
            pack(program(count, random.Random(1)))
        work.append(looks())
    assert 0 < work[1] <= 2.4 * work[0]


def test_ten_thousand_allocations_are_within_the_budget() -> None:
    assert sum(range(10_000)) <= packing.MOST_LOOKS < sum(range(11_000))


def test_free_ranges_join_those_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_LOOKS", -1)
    parts = [allocation(2048, 0, 1 + n % 3) for n in range(6)]
    allocations = [
        *parts,
        allocation(6 * 2048, 5, 6),
        allocation(8 * 2048, 8, 9),
        allocation(2048, 8, 9),
    ]
    assert pack(allocations) == 9 * 2048
    check_apart(allocations, 9 * 2048)


@pytest.mark.parametrize("seed", range(8))
def test_live_allocations_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    allocations = []
    for _ in range(120):
        start = rng.randrange(100)
        size = rng.choice([1, 4, 64, 100, 1024, 1025, 5000, 100_000])
        allocations.append(allocation(size, start, start + rng.randrange(12)))
    check_apart(allocations, pack(allocations))


def test_chain_needs_two_buffers() -> None:
    allocations = [allocation(4096, n, n + 1) for n in range(50)]
    assert pack(allocations) == 2 * 4096


def test_a_small_allocation_fits_into_the_gap_left_by_a_dead_one() -> None:
    allocations = [allocation(8192, 0, 1), allocation(8192, 0, 5), allocation(4096, 3, 5)]
    assert pack(allocations) == 2 * 8192


def test_only_the_arena_is_packed() -> None:
    allocations = [Allocation(AllocationKind.RESULT, 4096, start=0, end=9), allocation(4096, 0, 1)]
    assert pack(allocations) == 4096
