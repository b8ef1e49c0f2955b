"""Functions of reductions that call others: what is called stands behind what reads it."""

from __future__ import annotations

import numpy as np

import hlo

PAIRS = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
least {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] call(a, b), to_apply=less
  x = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(x, k)
}
ENTRY e {
  x = f32[20,300] parameter(0)
  n = s32[300] iota(), iota_dimension=0
  i = s32[20,300] broadcast(n), dimensions={1}
  most = f32[] constant(inf)
  none = s32[] constant(-1)
  ROOT r = (f32[20], s32[20]) reduce(x, i, most, none), dimensions={1}, to_apply=least
}
"""

WINDOWS = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = f32[] call(a, b), to_apply=add
  ROOT n = f32[] negate(s)
}
ENTRY e {
  x = f32[9,40] parameter(0)
  z = f32[] constant(0)
  ROOT w = f32[9,40] reduce-window(x, z), window={size=9x1 pad=8_0x0_0}, to_apply=sum
}
"""


def test_the_least_of_pairs() -> None:
    """As `jax.lax.approx_min_k` writes it."""
    x = np.random.default_rng(0).permutation(6000).reshape(20, 300).astype(np.float32)
    least, place = hlo.compile(hlo.parse(PAIRS), cache=False)(x)
    np.testing.assert_array_equal(least, x.min(axis=1))
    np.testing.assert_array_equal(place, x.argmin(axis=1))


def test_windows() -> None:
    x = np.random.default_rng(0).integers(-8, 8, (9, 40)).astype(np.float32)
    module = hlo.parse(WINDOWS)
    found = hlo.compile(module, cache=False)(x)
    np.testing.assert_array_equal(found, hlo.evaluate(module, x))
