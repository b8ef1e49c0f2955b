"""Arg-max and arg-min as compiled: every shape, NaNs, ties and zeros, any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.driver import optimize
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from tests.support.covering import covering

# Of two NaNs the left one, else the better value, else the smaller index: as JAX writes it.
TEXT = """HloModule m
best {{
  a = {v}[] parameter(0)
  i = s32[] parameter(1)
  b = {v}[] parameter(2)
  j = s32[] parameter(3)
  better = pred[] compare(a, b), direction={better}
  lost = pred[] compare(a, a), direction=NE
  c = pred[] or(better, lost)
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  d = pred[] or(c, tie)
  v = {v}[] select(c, a, b)
  k = s32[] select(d, i, j)
  ROOT t = ({v}[], s32[]) tuple(v, k)
}}
ENTRY e {{
  x = {v}[{dims}] parameter(0)
  z = {v}[] parameter(1)
  n = s32[] constant(0)
  places = s32[{dims}] iota(), iota_dimension={d}
  ROOT r = ({v}[{kept}], s32[{kept}]) reduce(x, places, z, n), dimensions={{{d}}}, to_apply=best
}}"""


def text(dims: tuple[int, ...], d: int, kind: str = "f32", better: str = "GT") -> str:
    kept = [n for k, n in enumerate(dims) if k != d]
    return TEXT.format(
        v=kind, d=d, better=better, dims=",".join(map(str, dims)), kept=",".join(map(str, kept))
    )


def samples(dims: tuple[int, ...], content: str, rng: np.random.Generator) -> np.ndarray:
    if content == "zeros":
        return np.where(rng.integers(0, 2, dims) == 1, 0.0, -0.0)
    x = rng.integers(-3, 4, dims).astype(np.float64)
    if content == "nans":
        x[rng.random(dims) < 0.1] = np.nan
    if content == "one nan" and x.size:
        x.flat[x.size // 3] = np.nan
    if content == "infinities":
        x = np.full(dims, -np.inf)
    return x


SHAPES = [
    ((1,), 0), ((7,), 0), ((16,), 0), ((33,), 0), ((1000,), 0), ((40000,), 0), ((65536,), 0),
    ((5, 17), 1), ((5, 17), 0), ((3, 300), 1), ((64, 3), 1), ((300, 40), 0), ((4, 9, 33), 1),
    ((2, 20000), 1), ((20000, 2), 0), ((3, 0), 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "dims", "d"),
    covering(["ties", "nans", "one nan", "zeros", "infinities"], SHAPES, strength=1, several=(1,)),
)
def test_argmax_compiled_is_argmax_interpreted(dims: tuple[int, ...], d: int, content: str) -> None:
    module = parse(text(dims, d))
    rng = np.random.default_rng(len(dims) + d)
    x = samples(dims, content, rng).astype(np.float32)
    start = np.float32(-np.inf)
    want = evaluate(module, x, start)
    results = [
        Compilation(optimize(parse(text(dims, d))), threads=t, passes="").executable(x, start)
        for t in (1, 2, 3, 7)
    ]
    for value, index in results:
        np.testing.assert_array_equal(index, want[1])
        np.testing.assert_array_equal(value, want[0])  # of two zeros, either
        assert value.tobytes() == results[0][0].tobytes()


@pytest.mark.parametrize(
    ("kind", "dims", "d"),
    covering(
        ["f64", "bf16", "f16", "f8e5m2", "s32", "u8"],
        [((333,), 0), ((5, 130), 1), ((40, 5), 0), ((50000,), 0)],
        strength=1,
        several=(1,),
    ),
)
def test_argmin_of_other_types(kind: str, dims: tuple[int, ...], d: int) -> None:
    source = text(dims, d, kind, "LT")
    dtype = parse(source).entry.parameters[0].shape.dtype
    rng = np.random.default_rng(3)
    x = samples(dims, "nans" if dtype.is_float else "ties", rng)
    if not dtype.is_float:
        x = np.abs(x)
    x = x.astype(dtype.numpy)
    for start in (np.asarray(3).astype(dtype.numpy), np.asarray(0).astype(dtype.numpy)):
        want = evaluate(parse(source), x, start)
        value, index = Compilation(optimize(parse(source)), threads=2, passes="").executable(
            x, start
        )
        np.testing.assert_array_equal(index, want[1])
        np.testing.assert_array_equal(
            np.asarray(value).astype(np.float64), np.asarray(want[0]).astype(np.float64)
        )


def test_a_start_that_is_nan_is_kept() -> None:
    source = text((3000,), 0)
    start = np.float32(np.nan)
    x = np.arange(3000, dtype=np.float32)
    value, index = Compilation(optimize(parse(source)), threads=2, passes="").executable(x, start)
    assert np.isnan(value)
    assert index == 0
