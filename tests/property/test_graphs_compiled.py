"""Random graphs of fusible ops through the whole pipeline: the interpreter's bits, for 1 to 3
threads.
"""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from tests.support.by_threads import for_threads
from tests.support.graph_draws import Graph


def disagreements(seed: int) -> list[str]:
    """Which results differ from the interpreter's, and for how many threads."""
    graph = Graph(seed)
    for _ in range(3 + seed % 12):
        graph.grow()
    module = graph.module()
    expected = hlo.evaluate(module, *graph.arguments)
    found = []
    for threads in (1, 2, 3):
        actual = for_threads(module, threads=threads)(*graph.arguments)
        found += [
            f"{threads} threads, result {k}: {describe(a, e)}\n{module}"
            for k, (a, e) in enumerate(zip(actual, expected, strict=True))
            if not np.array_equal(a, e)
        ]
    return found


def describe(actual: np.ndarray, expected: np.ndarray) -> str:
    where = np.argwhere(actual != expected)
    at = tuple(where[0])
    return f"{len(where)} differ, {actual[at]} instead of {expected[at]} at {at}"


@pytest.mark.parametrize("seed", range(40))
def test_graphs_agree_for_every_number_of_threads(seed: int) -> None:
    assert disagreements(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1600))
def test_many_graphs_agree_for_every_number_of_threads(seed: int) -> None:
    assert disagreements(seed) == []
