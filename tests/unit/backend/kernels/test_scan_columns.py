"""Scans along columns: several side by side, the last ones again past the end."""

from __future__ import annotations

import numpy as np
import pytest

import hlo


def program(rows: int, columns: int) -> str:
    window = f"{{size={rows}x1 pad={rows - 1}_0x0_0}}"
    return f"""HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[{rows},{columns}] reduce-window(x, zero), window={window}, to_apply=add
}}
"""


@pytest.mark.parametrize("columns", [3, 64, 512, 531, 700])
@pytest.mark.parametrize("threads", [1, 2])
def test_columns_side_by_side_are_reduced_each_alone(columns: int, threads: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (301, columns)).astype(np.float32)
    found = hlo.compile(hlo.parse(program(301, columns)), threads=threads)(x)
    assert found.tobytes() == np.cumsum(x, axis=0, dtype=np.float32).tobytes()
