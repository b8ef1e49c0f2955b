"""Arena offsets: cells in use at one time never overlap, and the arena is small."""

from __future__ import annotations

import random

import pytest

from hlo.backend.planning.cells import Cell, Region
from hlo.backend.planning.packing import ALIGNMENT, pack


def cell(size: int, start: int, end: int) -> Cell:
    return Cell(Region.ARENA, size, start=start, end=end)


@pytest.mark.parametrize("seed", range(8))
def test_live_cells_do_not_overlap(seed: int) -> None:
    rng = random.Random(seed)
    cells = []
    for _ in range(120):
        start = rng.randrange(100)
        size = rng.choice([1, 4, 64, 100, 1024, 1025, 5000, 100_000])
        cells.append(cell(size, start, start + rng.randrange(12)))
    top = pack(cells)
    for n, a in enumerate(cells):
        assert a.offset % ALIGNMENT == 0
        assert a.offset + a.size <= top
        for b in cells[:n]:
            if a.start <= b.end and b.start <= a.end:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def test_chain_needs_two_buffers() -> None:
    cells = [cell(4096, n, n + 1) for n in range(50)]
    assert pack(cells) == 2 * 4096


def test_small_cell_fits_into_the_gap_left_by_a_dead_one() -> None:
    cells = [cell(8192, 0, 1), cell(8192, 0, 5), cell(4096, 3, 5)]
    assert pack(cells) == 2 * 8192


def test_only_the_arena_is_packed() -> None:
    cells = [Cell(Region.RESULT, 4096, start=0, end=9), cell(4096, 0, 1)]
    assert pack(cells) == 4096
