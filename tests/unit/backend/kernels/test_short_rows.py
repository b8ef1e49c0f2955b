"""Reductions of short rows, one in each lane: against NumPy, alike for all numbers of threads."""

import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from tests.support.by_threads import for_threads
from tests.support.covering import covering

DTYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "s8": np.int8, "f16": np.float16}

MAXIMUM = """HloModule m
max {{ a = {v}[] parameter(0)
  b = {v}[] parameter(1)
  ROOT c = {v}[] maximum(a, b) }}
ENTRY e {{
  x = {v}[{n},{k}] parameter(0)
  least = {v}[] constant({least})
  ROOT m = {v}[{n}] reduce(x, least), dimensions={{1}}, to_apply=max
}}"""

ARGMAX = """HloModule m
pick {{ a = {v}[] parameter(0)
  i = s32[] parameter(1)
  b = {v}[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  left = pred[] or(more, tie)
  c = {v}[] select(more, a, b)
  k = s32[] select(left, i, j)
  ROOT r = ({v}[], s32[]) tuple(c, k) }}
ENTRY e {{
  x = {v}[{n},{k}] parameter(0)
  i = s32[{n},{k}] iota(), iota_dimension=1
  least = {v}[] constant({least})
  none = s32[] constant(0)
  both = ({v}[{n}], s32[{n}]) reduce(x, i, least, none), dimensions={{1}}, to_apply=pick
  ROOT r = s32[{n}] get-tuple-element(both), index=1
}}"""


def values(name: str, n: int, k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(-99, 99, (n, k)).astype(DTYPES[name])


def filled(source: str, name: str, n: int, k: int) -> str:
    least = "-inf" if name.startswith("f") else "-100"
    return source.format(v=name, n=n, k=k, least=least)


@pytest.mark.parametrize(("name", "k"), covering(DTYPES, [4, 5, 8, 10, 13, 16, 17, 24], strength=1))
def test_the_place_of_the_greatest(name: str, k: int) -> None:
    x = values(name, 333, k)
    module = driver.parse(filled(ARGMAX, name, 333, k))
    for threads in (1, 2):
        got = for_threads(module, threads=threads)(x)
        assert np.array_equal(got, x.argmax(1))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("n", "k"), [(64, 5), (333, 8), (9000, 10), (40, 16)])
def test_the_greatest(name: str, n: int, k: int) -> None:
    x = values(name, n, k)
    module = driver.parse(filled(MAXIMUM, name, n, k))
    assert np.array_equal(driver.compile(module, threads=1, cache=False)(x), x.max(1))


@pytest.mark.parametrize("source", [MAXIMUM, ARGMAX])
def test_rows_are_loaded_and_turned_not_gathered(source: str) -> None:
    module = driver.optimize(driver.parse(filled(source, "f32", 4096, 10)))
    (text, *_) = [m.text for m in Compilation(module, passes="", threads=1).ir if "@k_" in m.text]
    assert "load <4 x float>" in text
    assert "gather" not in text


def test_a_last_vector_that_overlaps_needs_no_mask() -> None:
    module = driver.optimize(driver.parse(filled(MAXIMUM, "f32", 4099, 10)))
    texts = [m.text for m in Compilation(module, passes="", threads=1).ir]
    assert not any("masked" in text for text in texts)
