"""Windowed reductions inside staged kernels."""

from __future__ import annotations

import numpy as np

from hlo import driver


def test_the_window_of_a_scalar_may_be_left_out() -> None:
    module = driver.parse("""
    add { x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT s = f32[] add(x, y) }
    ENTRY e { p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT r = f32[] reduce-window(p, q), to_apply=add }""")
    found = driver.compile(module, cache=False)(np.float32(42), np.float32(1))
    assert found == driver.evaluate(module, np.float32(42), np.float32(1)) == 43
