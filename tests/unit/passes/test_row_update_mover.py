"""Rows that a loop takes, updates and puts elsewhere are updated where they go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.passes.catalogue import CATALOGUE
from hlo.runtime.native_calls import flattened

MOVE = CATALOGUE["row-update-mover"]
TEXT = (Path(__file__).parents[2] / "golden/passes/row-update-mover.hlo").read_text()


@pytest.mark.parametrize("place", [-1, 0, 2, 7])
def test_results_stay(place: int) -> None:
    rng = np.random.default_rng(3)
    x, h = rng.standard_normal((3, 4, 2)).astype(np.float32), np.array([0.5, -2], np.float32)
    given = x, h, np.array(place, np.int32)
    want = list(flattened(hlo.evaluate(hlo.parse(TEXT), *given)))
    module = hlo.parse(TEXT)
    assert MOVE(module)
    hlo.verify(module)
    for found in (hlo.evaluate(module, *given), hlo.compile(hlo.parse(TEXT)).run_guarded(*given)):
        for a, b in zip(flattened(found), want, strict=True):
            assert a is not None
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_caches_that_are_wanted_afterwards_stay() -> None:
    text = TEXT.replace("tuple(y, v)", "tuple(x, v)")
    x, h = np.ones((3, 4, 2), np.float32), np.ones(2, np.float32)
    found, _ = flattened(hlo.compile(hlo.parse(text))(x, h, np.array(1, np.int32)))
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constant(3)", "constant(2)"),  # a row is left
        ("dynamic-slice(x, i,", "dynamic-slice(x, p,"),  # another row
        ("dynamic-slice(x, i,", "dynamic-slice(x, j,"),
        ("dot(sums, updated)", "dot(sums, cache)"),  # what it was before is read too
        ("tuple(j, u, x, v, p)", "tuple(j, u, u, v, p)"),  # rows of which some are new
        ("reshape(h)\n", "slice(cache), slice={[1:2], [0:2]}\n"),
    ],
)
def test_rows_that_are_not_the_same(old: str, new: str) -> None:
    assert old in TEXT
    assert not MOVE(hlo.parse(TEXT.replace(old, new)))
