"""Parallel moves in sequence: as if all sources had been read before any target was written."""

from __future__ import annotations

import random

import pytest

from hlo.backend.planning.moves import in_sequence


def run(moves: list[tuple[int, int, int]]) -> tuple[dict[int, int], int]:
    """Memory after the sequence (allocation -> first value), and the number of copies."""
    memory = {n: n for n in range(100)}
    spares = iter(range(100, 200))
    copies = 0
    for source, target, _ in in_sequence(moves, lambda _: next(spares)):
        memory[target] = memory[source]
        copies += 1
    return memory, copies


@pytest.mark.parametrize("seed", range(20))
def test_any_moves(seed: int) -> None:
    rng = random.Random(seed)
    targets = rng.sample(range(12), rng.randrange(1, 12))
    moves = [(rng.randrange(12), t, 4) for t in targets]
    moves = [m for m in moves if m[0] != m[1]]
    memory, _ = run(moves)
    assert all(memory[target] == source for source, target, _ in moves)


def test_swap_takes_three_copies() -> None:
    memory, copies = run([(0, 1, 4), (1, 0, 4)])
    assert (memory[0], memory[1], copies) == (1, 0, 3)


def test_rotation_takes_one_spare() -> None:
    memory, copies = run([(n, (n + 1) % 5, 4) for n in range(5)])
    assert copies == 6
    assert [memory[n] for n in range(5)] == [4, 0, 1, 2, 3]
