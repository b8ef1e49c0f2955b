"""Reductions of what a mask leaves, beside the reference: bounds of all kinds, numbers outside."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering

TEXT = """HloModule m
f {{ a = {t}[] parameter(0)  b = {t}[] parameter(1)  ROOT r = {t}[] {op}(a, b) }}
ENTRY e {{
  x = {t}[{n}] parameter(0)
  low = {k}[] parameter(1)
  high = {k}[] parameter(2)
  i = {k}[{n}] iota(), iota_dimension=0
  lows = {k}[{n}] broadcast(low), dimensions={{}}
  highs = {k}[{n}] broadcast(high), dimensions={{}}
  after = pred[{n}] compare(i, lows), direction={after}
  before = pred[{n}] compare(highs, i), direction={before}
  mask = pred[{n}] {joined}(after, before)
  z = {t}[] constant({z})
  zs = {t}[{n}] broadcast(z), dimensions={{}}
  chosen = {t}[{n}] select(mask, {values})
  ROOT r = {t}[] reduce(chosen, z), dimensions={{0}}, to_apply=f
}}
"""
IDENTITIES = {"add": "0", "multiply": "1", "maximum": "-inf", "minimum": "inf"}
BOUNDS = [(0, 700), (-5, 7), (100, 90), (63, 65), (64, 128), (690, 9999), (0, 0), (17, 400)]
KINDS = {"s32": np.int32, "s64": np.int64, "u32": np.uint32}
TYPES: dict[str, type[np.floating]] = {"f32": np.float32, "f64": np.float64}


def values_of(dtype: type[np.floating], n: int) -> np.ndarray:
    """Numbers near 1, zeros of both signs among them."""
    found: np.ndarray = np.random.default_rng(n).normal(1, 0.01, size=n).astype(dtype)
    found[::97] = -0.0
    return found


@pytest.mark.parametrize(
    ("op", "t", "values", "k", "n"),
    covering(IDENTITIES, TYPES, ["x, zs", "zs, x"], KINDS, [700, 1024]),
)
def test_bounds_of_a_range(op: str, t: str, values: str, k: str, n: int) -> None:
    signs = ("GE", "GT", "and") if values == "x, zs" else ("LE", "LE", "or")
    after, before, joined = signs
    text = TEXT.format(
        t=t, n=n, k=k, op=op, z=IDENTITIES[op], after=after, before=before, joined=joined,
        values=values,
    )  # fmt: skip
    module = driver.parse(text)
    compiled = driver.compile(module)
    x = values_of(TYPES[t], n)
    for pair in BOUNDS:
        low, high = (np.array(max(v, 0) if k == "u32" else v, KINDS[k]) for v in pair)
        wanted = np.asarray(driver.evaluate(module, x, low, high))
        np.testing.assert_allclose(np.asarray(compiled(x, low, high)), wanted, rtol=1e-5)


LOOKED_UP = """HloModule m
ENTRY e {
  v = f32[600] parameter(0)
  x = f32[50] parameter(1)
  places = s32[600] parameter(2)
  high = s32[] parameter(3)
  i = s32[600] iota(), iota_dimension=0
  highs = s32[600] broadcast(high), dimensions={}
  mask = pred[600] compare(i, highs), direction=LT
  zero = f32[] constant(0)
  zeros = f32[600] broadcast(zero), dimensions={}
  masked = f32[600] select(mask, v, zeros)
  none = s32[] constant(3)
  nones = s32[600] broadcast(none), dimensions={}
  shown = s32[600] select(mask, places, nones)
  column = s32[600,1] reshape(shown)
  y = f32[600] gather(x, column), offset_dims={}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1}
  ROOT r = f32[] dot(masked, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize("outside", [1.0, -2.0, np.inf, np.nan])
def test_what_is_looked_up_outside_counts_where_it_is_not_finite(outside: float) -> None:
    module = driver.parse(LOOKED_UP)
    compiled = driver.compile(module)
    rng = np.random.default_rng(1)
    v, x = (rng.normal(size=n).astype(np.float32) for n in (600, 50))
    x[3] = outside
    places = rng.integers(4, 50, 600).astype(np.int32)
    for high in (0, 5, 300, 600):
        number = np.array(high, np.int32)
        wanted = np.asarray(driver.evaluate(module, v, x, places, number))
        ours = np.asarray(compiled(v, x, places, number))
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
        assert bool(np.isfinite(ours)) is (bool(np.isfinite(outside)) or high == 600)
