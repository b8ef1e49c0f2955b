"""Windows reduced by a loop: all vectors of a batch in one, with the bits of one at a time."""

import numpy as np
import pytest

from hlo import driver
from hlo.interpreter.evaluate import evaluate

SUMS = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[5,300] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[5,WIDTH] reduce-window(x, z), window={WINDOW}, to_apply=sum }"""
PAIRS = """HloModule m
first { v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(v, w), direction=GE
  a = f32[] select(p, v, w)
  b = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(a, b) }
ENTRY e { x = f32[5,300] parameter(0)
  n = s32[5,300] iota(), iota_dimension=1
  z = f32[] constant(-inf)
  k = s32[] constant(-1)
  ROOT r = (f32[5,261], s32[5,261]) reduce-window(x, n, z, k), window={size=1x40},
    to_apply=first }"""


@pytest.mark.parametrize(
    ("window", "width"),
    [
        ("size=1x50", 251),
        ("size=1x50 pad=0_0x25_24", 300),
        ("size=1x40 stride=1x3", 87),
        ("size=5x11 pad=2_2x5_5", 300),
        ("size=1x40 rhs_dilate=1x2 pad=0_0x3_0", 225),
    ],
)
def test_sums_of_large_windows(window: str, width: int) -> None:
    text = SUMS.replace("WINDOW", window).replace("WIDTH", str(width))
    module = driver.parse(text)
    x = np.random.default_rng(0).integers(-50, 50, (5, 300)).astype(np.float32)
    np.testing.assert_array_equal(driver.compile(module, cache=False)(x), evaluate(module, x))


def test_pairs_of_large_windows() -> None:
    module = driver.parse(PAIRS)
    x = np.random.default_rng(1).integers(-9, 9, (5, 300)).astype(np.float32)
    for a, b in zip(driver.compile(module, cache=False)(x), evaluate(module, x), strict=True):
        np.testing.assert_array_equal(a, b)
