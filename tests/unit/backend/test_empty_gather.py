"""A gather from an array without elements gives zeros, alone and fused."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver

GATHER = """HloModule m
ENTRY e {
  x = f32[0,2] parameter(0)
  i = s32[3] parameter(1)
  g = f32[3,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={0,2}
  one = f32[] constant(1)
  ones = f32[3,2] broadcast(one), dimensions={}
  sum = f32[3,2] add(g, ones)
  ROOT r = (f32[3,2], f32[3,2]) tuple(g, sum)
}
"""


@pytest.mark.parametrize("passes", ["", "default"])
def test_gather_from_nothing_gives_zeros(passes: str) -> None:
    executable = driver.compile(driver.parse(GATHER), passes=passes, cache=False)
    zeros, ones = executable(np.zeros((0, 2), np.float32), np.arange(3, dtype=np.int32))
    np.testing.assert_array_equal(zeros, np.zeros((3, 2)))
    np.testing.assert_array_equal(ones, np.ones((3, 2)))
