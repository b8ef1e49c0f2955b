"""Images made larger, of few colours: lanes take a row of several pixels each, which are turned in
registers. Every element size, rows that fill no vector, nothing written beyond the result.
"""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering

KINDS = {
    "u8": np.uint8, "s16": np.int16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "c64": np.complex64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("times", "colours", "width", "kind"),
    covering(
        [(2, 3), (3, 2), (2, 4), (4, 2), (5, 1), (3, 3)], [16, 37, 128], sorted(KINDS), several=(0,)
    ),
)
def test_pixels_are_repeated(kind: str, width: int, times: int, colours: int) -> None:
    rng = np.random.default_rng(width)
    x = rng.integers(0, 100, (5, width, colours)).astype(KINDS[kind])
    text = f"""HloModule m
    ENTRY e {{
      x = {kind}[5,{width},{colours}] parameter(0)
      b = {kind}[5,{width},{times},{colours}] broadcast(x), dimensions={{0,1,3}}
      r = {kind}[5,{width * times},{colours}] reshape(b)
      ROOT s = {kind}[5,{width * times},{colours}] add(r, r)
    }}"""
    found = driver.compile(driver.parse(text), cache=False)(x)
    assert np.array_equal(found, np.repeat(x + x, times, axis=1))


def test_pixels_of_joined_planes() -> None:
    """Each place in a row is another array's: brightness for each pixel, colour for two."""
    rng = np.random.default_rng(0)
    y, u = rng.standard_normal((6, 74)).astype(np.float32), rng.standard_normal((6, 37))
    text = """HloModule m
    ENTRY e {
      y = f32[6,74] parameter(0)
      u = f32[6,37] parameter(1)
      b = f32[6,37,2] broadcast(u), dimensions={0,1}
      c = f32[6,74] reshape(b)
      red = f32[6,74] add(y, c)
      blue = f32[6,74] subtract(y, c)
      r = f32[6,74,1] reshape(red)
      g = f32[6,74,1] reshape(y)
      d = f32[6,74,1] reshape(blue)
      ROOT j = f32[6,74,3] concatenate(r, g, d), dimensions={2}
    }"""
    u = u.astype(np.float32)
    wide = np.repeat(u, 2, axis=1)
    found = driver.compile(driver.parse(text), cache=False)(y, u)
    assert np.array_equal(found, np.stack([y + wide, y, y - wide], -1))
