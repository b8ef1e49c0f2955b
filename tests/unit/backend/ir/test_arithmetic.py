"""Shares of a count: all of it, in order, as even as can be, in any half of the blocks too."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hlo.backend.ir.arithmetic import shared
from hlo.backend.ir.writer import Value, Writer


def share(count: int, blocks: int, block: int) -> tuple[int, int]:
    first, last = shared(Writer(), Value(str(block), "i64"), count, blocks)
    assert first.integer is not None
    assert last.integer is not None
    return first.integer, last.integer


@pytest.mark.parametrize(("count", "blocks"), [
    (43, 16), (43, 1), (16, 16), (48, 16), (7, 3), (8, 3), (31, 30), (1000, 7), (5, 4),
])  # fmt: skip
def test_blocks_share_evenly_and_so_does_each_half_of_them(count: int, blocks: int) -> None:
    shares = [share(count, blocks, block) for block in range(blocks)]
    assert shares[0][0] == 0
    assert shares[-1][1] == count
    assert all(before[1] == after[0] for before, after in pairwise(shares))
    sizes = [last - first for first, last in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) == -(-count // blocks), "scratch holds the largest"
    if blocks % 2 == 0:
        half = sum(sizes[: blocks // 2])
        assert abs(2 * half - count) <= 1, "one of two threads has half of the blocks"
