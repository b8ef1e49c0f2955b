"""Packing: an offset in one arena for every cell, so that cells in use at one time do not meet.

Greedy by size, each into the smallest gap that fits between the cells already placed that are in
use at the same time (Pisarchyk and Lee 2020, arXiv 2001.03288). Cells up to SMALL bytes, which are
many and weigh nothing, are placed by a sweep through time with free lists instead.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hlo.backend.planning.cells import Cell, Region

ALIGNMENT = 64
SMALL = 1024


def pack(cells: Sequence[Cell]) -> int:
    """Set the offsets of the arena's cells; the arena's size in bytes."""
    arena = [c for c in cells if c.region is Region.ARENA and c.size]
    large = sorted((c for c in arena if c.size > SMALL), key=lambda c: (-c.size, c.start))
    small = sorted((c for c in arena if c.size <= SMALL), key=lambda c: (c.start, c.end))
    end = _pack_small(small, 0)
    return _pack_large(large, end)


def place_spares(cells: Sequence[Cell]) -> int:
    """Set the offsets of spares, one behind the other; their size in bytes."""
    end = 0
    for cell in cells:
        if cell.region is Region.SPARE:
            cell.offset = end
            end += aligned(cell.size)
    return end


def aligned(size: int) -> int:
    """The size rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _pack_large(cells: Sequence[Cell], base: int) -> int:
    """O(n^2) in NumPy's loops: 10,000 cells take under a second."""
    count = len(cells)
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    lows, highs = np.empty(count, np.int64), np.empty(count, np.int64)
    top = base
    for n, cell in enumerate(cells):
        size = aligned(cell.size)
        meets = (starts[:n] <= cell.end) & (ends[:n] >= cell.start)
        cell.offset = _best_gap(lows[:n][meets], highs[:n][meets], size, base)
        starts[n], ends[n] = cell.start, cell.end
        lows[n], highs[n] = cell.offset, cell.offset + size
        top = max(top, cell.offset + size)
    return top


def _best_gap(lows: np.ndarray, highs: np.ndarray, size: int, base: int) -> int:
    """The start of the smallest gap of `size` bytes between the taken ranges, or their end."""
    if not len(lows):
        return base
    order = np.argsort(lows, kind="stable")
    reached = np.maximum.accumulate(highs[order])
    begins = np.concatenate(([base], reached[:-1]))
    gaps = lows[order] - begins
    fits = gaps >= size
    if not fits.any():
        return int(reached[-1])
    return int(begins[np.where(fits, gaps, np.iinfo(np.int64).max).argmin()])


def _pack_small(cells: Sequence[Cell], base: int) -> int:
    """A sweep through time; a cell takes the last freed place of its size, else a new one."""
    free: dict[int, list[int]] = defaultdict(list)
    ending: list[tuple[int, int, int]] = []
    top = base
    for cell in cells:
        while ending and ending[0][0] < cell.start:
            _, offset, size = heapq.heappop(ending)
            free[size].append(offset)
        size = aligned(cell.size)
        if free[size]:
            cell.offset = free[size].pop()
        else:
            cell.offset, top = top, top + size
        heapq.heappush(ending, (cell.end, cell.offset, size))
    return top
