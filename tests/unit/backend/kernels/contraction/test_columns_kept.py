"""Columns that a loop keeps, or that are constants: panels of them, made once."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import bind, driver


def program(rows: int, size: int, along: int = 1) -> str:
    """for i in 5: h = tanh(h w^T); along: the dimension of w that is summed over."""
    state = f"(s32[], f32[{rows},{size}], f32[{size},{size}])"
    return f"""HloModule m
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[{rows},{size}] get-tuple-element(s), index=1
  w = f32[{size},{size}] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[{rows},{size}] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{along}}}
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
    check_loop(rows, size, 1, are_panels=are_panels)


@pytest.mark.parametrize(
    ("rows", "size", "are_panels"),
    [(1, 64, False), (1, 100, False), (1, 300, True), (3, 256, True), (4, 1024, True)],
)
def test_rows_that_are_read_in_parts_are_panels(rows: int, size: int, *, are_panels: bool) -> None:
    """What the first cache holds, or a tile reads from end to end, is read as it lies."""
    check_loop(rows, size, 0, are_panels=are_panels)


def check_loop(rows: int, size: int, along: int, *, are_panels: bool) -> None:
    module = driver.parse(program(rows, size, along))
    shown = str(driver.emit_stage(driver.optimize(module), "loops"))
    assert ("panels of" in shown) is are_panels
    random = np.random.default_rng(rows)
    h = random.standard_normal((rows, size)).astype(np.float32)
    w = (random.standard_normal((size, size)) / np.sqrt(size)).astype(np.float32)
    found = np.asarray(driver.compile(module, threads=2)(h, w))
    for _ in range(5):
        h = np.tanh(h.astype(np.float64) @ (w.T if along else w))
    np.testing.assert_allclose(found, h, rtol=2e-5, atol=2e-6)


def test_constants_have_the_bits_of_parameters() -> None:
    """One row meets panels of a constant, and the matrix as it lies of a parameter."""
    text = """HloModule m
ENTRY e { x = f32[1,300] parameter(0)
  w = f32[300,290] parameter(1)
  ROOT r = f32[1,290] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    module = driver.parse(text)
    random = np.random.default_rng(0)
    x, w = (
        random.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters
    )
    bound = bind(module, {1: w})
    shown = [str(driver.emit_stage(driver.optimize(m), "loops")) for m in (module, bound)]
    assert ["panels of" in s for s in shown] == [False, True]
    plain, fast = driver.compile(module)(x, w), driver.compile(bound)(x)
    assert np.asarray(plain).tobytes() == np.asarray(fast).tobytes()
