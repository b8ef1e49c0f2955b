"""Parallel moves: copies that are meant to happen all at once, put in a sequence.

Every target is written once; a source may be read often, and may be another move's target. Cycles
are broken through a spare allocation, one for each cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

Moved = tuple[int, int, int]  # source, target, bytes


def in_sequence(moves: Sequence[Moved], spare: Callable[[int], int]) -> Iterator[Moved]:
    """The moves one after the other, none overwriting what a later one reads. O(moves)."""
    readers = Counter(source for source, _, _ in moves)
    by_target = {target: (source, size) for source, target, size in moves}
    ready = [target for _, target, _ in moves if not readers[target]]
    waiting = dict.fromkeys(target for _, target, _ in moves)
    while waiting:
        while ready:
            target = ready.pop()
            if target not in waiting:
                continue
            del waiting[target]
            source, size = by_target[target]
            yield source, target, size
            readers[source] -= 1
            if not readers[source] and source in waiting:
                ready.append(source)
        if waiting:  # only cycles are left, and each allocation in them is read once
            target = next(iter(waiting))
            size = by_target[target][1]
            kept = spare(size)
            yield target, kept, size
            for other in waiting:
                if by_target[other][0] == target:
                    by_target[other] = (kept, by_target[other][1])
                    readers[target] -= 1
                    readers[kept] += 1
            ready.append(target)
