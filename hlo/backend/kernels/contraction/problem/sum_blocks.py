"""Sum blocks: depth cut into stretches whose sums are added, so that no chain of roundings is long.

    total = (d_0 + .. + d_b-1) + (d_b + .. + d_2b-1) + ..

A sum of n terms, one after the other, is off by at most n roundings of the sum of their magnitudes;
in blocks of b by b + n / b; where the sums of blocks are added in blocks of FEW, and so on, by
about b + FEW log(n / b). Everything follows from sizes, never from the machine's caches, so that
bits do not depend on where or by how many threads a product runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod

from msgspec import Struct

BLOCK = 256  # Terms of a chain.
LEAST_BLOCK = 16  # Terms: to add up the sums of shorter ones takes longer.
FEW = 8  # Sums of blocks that are added one after the other, and sums of these.
EVEN = 8  # Rounds of a block that ends early are a multiple of it, for loops that are unrolled.


class Cut(Struct, frozen=True):
    """A nest of loops over depth, cut: rounds of the loop at `level` that one block takes.

    sizes: of each loop down to that level the rounds of larger blocks, the largest first.
    """

    level: int
    rounds: int
    sizes: tuple[tuple[int, ...], ...] = ()

    def blocks(self, level: int) -> tuple[int, ...]:
        """Rounds of the loop at a level whose sums are added apart, the largest first; none: of
        all.
        """
        if level > self.level or (level < self.level and not self.sizes):
            return ()
        own = self.sizes[level] if self.sizes else ()
        return own or (self.rounds if level == self.level else 1,)

    def nested(self, counts: Sequence[int]) -> Cut:
        """With blocks of blocks at every level."""
        each = [
            block_sizes(self.rounds if n == self.level else 1, counts[n])
            for n in range(self.level + 1)
        ]
        return Cut(self.level, self.rounds, tuple(each))


def block_sizes(rounds: int, count: int) -> tuple[int, ...]:
    """Blocks of `rounds` out of `count`, and of FEW of these, and so on; the largest first."""
    found: list[int] = []
    while rounds < count:
        found.insert(0, rounds)
        rounds *= FEW
    return tuple(found)


def cut_of(counts: Sequence[int], block: int = BLOCK) -> Cut | None:
    """Where loops of so many rounds, outermost first, are cut; None where one block is enough."""
    if prod(counts) <= block:
        return None
    level, inner = len(counts) - 1, 1
    while inner * counts[level] <= block:
        inner *= counts[level]
        level -= 1
    return Cut(level, _rounds(counts[level], block // inner))


def block_of_tiles(counts: Sequence[int], terms: tuple[int, int], *, is_narrow: bool) -> int:
    """Steps of a block of a tile's loops; terms: those of a step, and parts of a number. A complex
    step is a term of each part twice, and so much work that blocks cost it little: those as long as
    makes the errors in them and of their sum alike.

    Narrow tiles, of one vector, wait for what they load: shorter blocks cost them little, and short
    depths have some as long as makes the errors in them and of their sum about alike (2.5 times
    smaller for depths of 64; 1.0 to 1.04 of the time).
    """
    each, parts = terms
    block, whole = BLOCK // each, prod(counts)
    if parts > 1:
        block = min(block, 1 << (3 * isqrt(whole)).bit_length())
    if not is_narrow:
        return block
    if whole > BLOCK or each > 1:
        return block // 4 if len(counts) == 1 and whole <= block // 2 else block // 2
    return min(block // 4, max(LEAST_BLOCK, 2 * isqrt(whole)))


def _rounds(count: int, most: int) -> int:
    """At most `most` rounds of `count`: an even part where there is one, else about that."""
    blocks = -(-count // most)
    for even in range(min(most, count), count // (2 * blocks), -1):
        if count % even == 0:
            return even
    rounds = -(-count // blocks)
    return min(most, -(-rounds // EVEN) * EVEN)


def chain_of(counts: Sequence[int], cut: Cut | None) -> int:
    """The most additions that one term goes through in loops of so many rounds."""
    if cut is None:
        return prod(counts)
    inner = cut.rounds * prod(counts[cut.level + 1 :])
    if cut.sizes:
        pairs = zip(counts, cut.sizes, strict=False)
        return inner + sum(-(-n // s[0]) + FEW * (len(s) - 1) for n, s in pairs if s)
    return inner + prod(counts[: cut.level]) * -(-counts[cut.level] // cut.rounds)
