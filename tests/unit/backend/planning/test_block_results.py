"""Results of blocks: sums over blocks beside a member of several results lie where they belong."""

from __future__ import annotations

import numpy as np
import pytest

import hlo

BLOCKED = """HloModule m
both {
  h = f32[1280,16] parameter(0)
  one = f32[] constant(1)
  all = f32[1280,16] broadcast(one), dimensions={}
  a = f32[1280,16] add(h, all)
  b = f32[1280,16] multiply(h, h)
  ROOT t = (f32[1280,16], f32[1280,16]) tuple(a, b)
}
block {
  x = f32[1280,16] parameter(0)
  w = f32[16,16] parameter(1)
  h = f32[1280,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = (f32[1280,16], f32[1280,16]) fusion(h), kind=kLoop, calls=both
  a = f32[1280,16] get-tuple-element(t), index=0
  b = f32[1280,16] get-tuple-element(t), index=1
  p = f32[16,16] dot(h, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  q = f32[16,16] dot(h, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  r = f32[16,16] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT all = (f32[16,16], (f32[1280,16], f32[1280,16]), f32[16,16], f32[16,16]) tuple(p, t, q, r)
}
ENTRY e {
  x = f32[1280,16] parameter(0)
  w = f32[16,16] parameter(1)
  ROOT f = (f32[16,16], (f32[1280,16], f32[1280,16]), f32[16,16], f32[16,16]) fusion(x, w),
    kind=kCustom, calls=block, backend_config={"hlo":{"block":[SIZE]}}
}
"""


@pytest.mark.parametrize("size", [1280, 640, 320, 500])
def test_sums_behind_a_tuple_are_their_own(size: int) -> None:
    """Small integers, whose sums are exact. A size that does not divide has blocks that overlap."""
    module = hlo.parse(BLOCKED.replace("SIZE", str(size)))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, s).astype(np.float32) for s in ((1280, 16), (16, 16)))
    p, (a, b), q, r = hlo.evaluate(module, x, w)
    found = hlo.compile(module, passes="", cache=False)(x, w)
    for one, wanted in zip((found[0], *found[1], *found[2:]), (p, a, b, q, r), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(wanted))
