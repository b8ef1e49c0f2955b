"""Columns along depth that a loop keeps: panels of them, made before the loop, for several rows."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver


def program(rows: int, size: int) -> str:
    """for i in 5: h = tanh(h w^T)"""
    state = f"(s32[], f32[{rows},{size}], f32[{size},{size}])"
    return f"""HloModule m
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[{rows},{size}] get-tuple-element(s), index=1
  w = f32[{size},{size}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[{rows},{size}] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  t = f32[{rows},{size}] tanh(p)
  ROOT r = {state} tuple(j, t, w)
}}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  h = f32[{rows},{size}] parameter(0)
  w = f32[{size},{size}] parameter(1)
  zero = s32[] constant(0)
  start = {state} tuple(zero, h, w)
  loop = {state} while(start), condition=condition, body=body
  ROOT r = f32[{rows},{size}] get-tuple-element(loop), index=1
}}
"""


@pytest.mark.parametrize(
    ("rows", "size", "are_panels"),
    [(1, 64, False), (2, 64, True), (7, 33, True), (16, 128, True), (4, 1024, False)],
)
def test_several_rows_meet_panels(rows: int, size: int, *, are_panels: bool) -> None:
    """One row, or a large matrix, is read as it lies."""
    module = driver.parse(program(rows, size))
    shown = str(driver.emit_stage(driver.optimize(module), "loops"))
    assert ("panels of" in shown) is are_panels
    random = np.random.default_rng(rows)
    h = random.standard_normal((rows, size)).astype(np.float32)
    w = (random.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)
    found = np.asarray(driver.compile(module, threads=2)(h, w))
    for _ in range(5):
        h = np.tanh(h.astype(np.float64) @ w.T)
    np.testing.assert_allclose(found, h, rtol=2e-5, atol=2e-6)
