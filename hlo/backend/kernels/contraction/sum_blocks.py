"""Sum blocks: depth cut into stretches whose sums are added, so that no chain of roundings is long.

    total = (d_0 + .. + d_b-1) + (d_b + .. + d_2b-1) + ..

A sum of n terms, one after the other, is off by at most n roundings of the sum of their magnitudes;
in blocks of b by b + n / b. Everything follows from sizes, never from the machine's caches, so that
bits do not depend on where or by how many threads a product runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

BLOCK = 256  # terms of a chain
EVEN = 8  # rounds of a block that ends early are a multiple of it, as unrolled loops want them


class Cut(Struct, frozen=True):
    """A nest of loops over depth, cut: rounds of the loop at `level` that one block takes."""

    level: int
    rounds: int


def cut_of(counts: Sequence[int], block: int = BLOCK) -> Cut | None:
    """Where loops of so many rounds, outermost first, are cut; None where one block is enough."""
    if prod(counts) <= block:
        return None
    level, inner = len(counts) - 1, 1
    while inner * counts[level] <= block:
        inner *= counts[level]
        level -= 1
    return Cut(level, _rounds(counts[level], block // inner))


def _rounds(count: int, most: int) -> int:
    """At most `most` rounds of `count`: an even part where there is one, else about that."""
    blocks = -(-count // most)
    for even in range(min(most, count), count // (2 * blocks), -1):
        if count % even == 0:
            return even
    rounds = -(-count // blocks)
    return min(most, -(-rounds // EVEN) * EVEN)


def chain_of(counts: Sequence[int], block: int = BLOCK) -> int:
    """The most additions that one term goes through in loops of so many rounds."""
    cut = cut_of(counts, block)
    if cut is None:
        return prod(counts)
    inner = cut.rounds * prod(counts[cut.level + 1 :])
    return inner + prod(counts[: cut.level]) * -(-counts[cut.level] // cut.rounds)
