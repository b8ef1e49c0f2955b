"""bitcast that changes the element type, inside a fusion and inside a comparator."""

from __future__ import annotations

import numpy as np

from hlo import driver

FUSED = """HloModule m
f {
  p = f32[4,8] parameter(0)
  n = f32[4,8] negate(p)
  b = s32[4,8] bitcast(n)
  one = s32[] constant(1)
  ones = s32[4,8] broadcast(one), dimensions={}
  c = s32[4,8] add(b, ones)
  d = s32[32] bitcast(c)
  ROOT e = f32[32] bitcast(d)
}
ENTRY e {
  x = f32[4,8] parameter(0)
  ROOT s = f32[32] fusion(x), kind=kLoop, calls=f
}
"""
COMPARED = """HloModule m
cmp {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] bitcast(a)
  j = s32[] bitcast(b)
  ROOT r = pred[] compare(i, j), direction=LT
}
ENTRY e {
  x = f32[50] parameter(0)
  ROOT s = f32[50] sort(x), dimensions={0}, to_apply=cmp
}
"""


def test_in_a_fusion() -> None:
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    got = np.asarray(driver.compile(driver.parse(FUSED))(x))
    want = ((-x).view(np.int32) + 1).view(np.float32).reshape(32)
    np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_in_a_comparator() -> None:
    x = np.random.default_rng(0).normal(size=50).astype(np.float32)
    got = np.asarray(driver.compile(driver.parse(COMPARED))(x))
    np.testing.assert_array_equal(got.view(np.int32), np.sort(x.view(np.int32)))
