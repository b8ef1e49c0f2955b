"""Packing: an offset in one arena for every allocation; those in use at one time do not meet.

Greedy by size, each into the smallest gap that fits between the allocations already placed that are
in use at the same time (Pisarchyk and Lee 2020, arXiv 2001.03288). Which those are is looked up by
time, so that an allocation is compared with those near it; where so many are in use at once that
this is too much, the smallest of them are placed by a sweep through time instead, each into the
smallest free range. Allocations up to SMALL bytes, which are many and weigh nothing, are placed by
a sweep with free lists.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from hlo.backend.planning.allocations import Allocation, AllocationKind
from hlo.machine import aligned

SMALL = 1024
# So few allocations are each compared with all others, which costs less than finding out which it
# may meet.
FEW = 1024
CLASS = 4  # Durations of one class differ by a factor below two to this power.
# Classes are used where they need so many times fewer comparisons, for offsets do not rise in
# them.
WORTH = 8
MOST_LOOKS = 50_000_000  # The most comparisons of allocations: what 10,000 in use at once need.


def pack(allocations: Sequence[Allocation]) -> int:
    """Set the offsets of the arena's allocations; the arena's size in bytes."""
    arena = [c for c in allocations if c.kind is AllocationKind.ARENA and c.size]
    large = sorted((c for c in arena if c.size > SMALL), key=lambda c: (-c.size, c.start))
    small = sorted((c for c in arena if c.size <= SMALL), key=lambda c: (c.start, c.end))
    end = _pack_small(small, 0)
    return _pack_large(large, end)


def place_spares(allocations: Sequence[Allocation]) -> int:
    """Set the offsets of spares, one behind the other; their size in bytes."""
    end = 0
    for allocation in allocations:
        if allocation.kind is AllocationKind.SPARE:
            allocation.offset = end
            end += aligned(allocation.size)
    return end


def _pack_large(allocations: Sequence[Allocation], base: int) -> int:
    """Allocations in order of size: the largest by best fit while there are looks left, then a
    sweep."""
    near = _Near(allocations)
    count = int(np.searchsorted(_looks(near.slices).cumsum(), MOST_LOOKS, side="right"))
    top = base
    for number, allocation in enumerate(allocations[:count]):
        size = aligned(allocation.size)
        allocation.offset = _best_gap(*near.taken(number), size, base)
        near.place(number, allocation.offset, size)
        top = max(top, allocation.offset + size)
    rest = sorted(allocations[count:], key=lambda c: (c.start, -c.size, c.end))
    return _pack_in_free_ranges(rest, top)


class _Near:
    """Allocations by how long and when they are in use: those that an allocation may meet are few
    slices.

    A class holds allocations of durations that differ by less than a factor, by their starts. Those
    of a class that end after an allocation's start begin at most the class's longest duration
    before it. Where that leaves out little, there is one slice: the allocations that are placed
    before.
    """

    def __init__(self, allocations: Sequence[Allocation]) -> None:
        count = len(allocations)
        self.starts = np.fromiter((c.start for c in allocations), np.int64, count)
        self.ends = np.fromiter((c.end for c in allocations), np.int64, count)
        self.used_until = np.full(count, -1, np.int64)  # -1: not placed yet
        self.used_from = np.empty(count, np.int64)
        self.lows, self.highs = np.empty(count, np.int64), np.empty(count, np.int64)
        self.position = np.arange(count)
        self.slices = [(np.zeros(count, np.int64), np.arange(count))]
        if count > FEW:
            self._look_up_by_time()

    def _look_up_by_time(self) -> None:
        _, exponents = np.frexp((self.ends - self.starts).astype(np.float64))
        classes = exponents // CLASS
        order = np.lexsort((self.starts, classes))
        slices = list(self._slices(order, classes[order]))
        fewer, most = _looks(slices).sum(), _looks(self.slices).sum()
        if fewer < (most if most > MOST_LOOKS else most // WORTH):
            self.slices = slices
            self.position[order] = np.arange(len(order))

    def _slices(
        self, order: np.ndarray, classes: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For every class, where each allocation finds those of it that it may meet."""
        bounds = [0, *(np.flatnonzero(np.diff(classes)) + 1).tolist(), len(order)]
        for first, last in pairwise(bounds):
            members = order[first:last]
            starts = self.starts[members]
            longest = (self.ends[members] - starts).max(initial=0)
            begins = np.searchsorted(starts, self.starts - longest, side="left")
            stops = np.searchsorted(starts, self.ends, side="right")
            yield first + begins, first + stops

    def taken(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the placed allocations begin and end that are in use when the allocation is."""
        start, end, lows, highs = self.starts[number], self.ends[number], [], []
        for begins, stops in self.slices:
            part = slice(begins[number], stops[number])
            meets = (self.used_until[part] >= start) & (self.used_from[part] <= end)
            lows.append(self.lows[part][meets])
            highs.append(self.highs[part][meets])
        return np.concatenate(lows), np.concatenate(highs)

    def place(self, number: int, offset: int, size: int) -> None:
        at = self.position[number]
        self.used_from[at], self.used_until[at] = self.starts[number], self.ends[number]
        self.lows[at], self.highs[at] = offset, offset + size


def _looks(slices: Iterable[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The number of allocations that each is compared with."""
    return sum((stops - begins for begins, stops in slices), np.zeros(1, np.int64))


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


def _pack_small(allocations: Sequence[Allocation], base: int) -> int:
    """A sweep through time: an allocation takes the last place of its size that was freed, else a
    new one.
    """
    free: dict[int, list[int]] = defaultdict(list)
    ending: list[tuple[int, int, int]] = []
    top = base
    for allocation in allocations:
        while ending and ending[0][0] < allocation.start:
            _, offset, size = heapq.heappop(ending)
            free[size].append(offset)
        size = aligned(allocation.size)
        if free[size]:
            allocation.offset = free[size].pop()
        else:
            allocation.offset, top = top, top + size
        heapq.heappush(ending, (allocation.end, allocation.offset, size))
    return top


def _pack_in_free_ranges(allocations: Iterable[Allocation], base: int) -> int:
    """A sweep through time: an allocation takes the smallest free range that fits, else new memory.

    It costs a search in sorted lists for each allocation. It needs more memory than packing by size
    does, so that it is only for those that there are too many comparisons for.
    """
    free = _FreeRanges()
    ending: list[tuple[int, int, int]] = []
    top = base
    for allocation in allocations:
        while ending and ending[0][0] < allocation.start:
            _, offset, size = heapq.heappop(ending)
            free.give(offset, size)
        size = aligned(allocation.size)
        found = free.take(size)
        if found is None:
            found = free.last(top)
            top = found + size
        allocation.offset = found
        heapq.heappush(ending, (allocation.end, found, size))
    return top


class _FreeRanges:
    """Ranges of the arena that no allocation is using, none beside another."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []  # sizes and offsets
        self.sizes: dict[int, int] = {}  # by offset
        self.offsets: dict[int, int] = {}  # by end

    def give(self, offset: int, size: int) -> None:
        """A range is free, and one with those beside it."""
        before = self.offsets.get(offset)
        if before is not None:
            size += self._remove(before)
            offset = before
        if offset + size in self.sizes:
            size += self._remove(offset + size)
        self._add(offset, size)

    def take(self, size: int) -> int | None:
        """The start of the smallest range that is large enough; what is left of it stays free."""
        at = bisect_left(self.by_size, (size, 0))
        if at == len(self.by_size):
            return None
        _, offset = self.by_size[at]
        left = self._remove(offset) - size
        if left:
            self._add(offset + size, left)
        return offset

    def last(self, top: int) -> int:
        """Take the range that ends at the top, if one does: its start, else the top."""
        offset = self.offsets.get(top)
        if offset is None:
            return top
        self._remove(offset)
        return offset

    def _add(self, offset: int, size: int) -> None:
        insort(self.by_size, (size, offset))
        self.sizes[offset] = size
        self.offsets[offset + size] = offset

    def _remove(self, offset: int) -> int:
        size = self.sizes.pop(offset)
        del self.offsets[offset + size]
        del self.by_size[bisect_left(self.by_size, (size, offset))]
        return size
