"""while-loop-dot-batching: the same numbers, either side, and what it must leave alone."""

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.while_loops.while_loop_dot_batching import while_loop_dot_batching

TEXT = """HloModule m
body {{
  s = (s32[], f32[2,3], f32[{rows},5,2], f32[5,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[2,3] get-tuple-element(s), index=1
  x = f32[{rows},5,2] get-tuple-element(s), index=2
  w = f32[5,3] get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant({step})
  next = s32[] add(i, one)
  row = f32[1,5,2] dynamic-slice(x, i, z, z), dynamic_slice_sizes={{1,5,2}}
  r = f32[5,2] reshape(row)
  {dot}
  ROOT t = (s32[], f32[2,3], f32[{rows},5,2], f32[5,3]) tuple(next, sum, x, w)
}}
condition {{
  s = (s32[], f32[2,3], f32[{rows},5,2], f32[5,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[{rows},5,2] parameter(0)
  w = f32[5,3] parameter(1)
  h = f32[2,3] parameter(2)
  i = s32[] constant({first})
  start = (s32[], f32[2,3], f32[{rows},5,2], f32[5,3]) tuple(i, h, x, w)
  loop = (s32[], f32[2,3], f32[{rows},5,2], f32[5,3]) while(start), condition=condition, body=body
  ROOT y = f32[2,3] get-tuple-element(loop), index=1
}}
"""
LHS = """d = f32[2,3] dot(r, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  sum = f32[2,3] add(h, d)"""
RHS = """d = f32[3,2] dot(w, r), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  back = f32[2,3] transpose(d), dimensions={1,0}
  sum = f32[2,3] add(h, back)"""


def made(dot: str, rows: int = 7, trips: int = 7, step: int = 1, first: int = 0) -> Module:
    text = TEXT.format(dot=dot, rows=rows, trips=trips, step=step, first=first)
    return driver.parse(text)


@pytest.mark.parametrize("dot", [LHS, RHS], ids=["lhs", "rhs"])
@pytest.mark.parametrize("first", [0, 2])
def test_numbers_stay(dot: str, first: int) -> None:
    module = made(dot, first=first)
    generator = np.random.default_rng(5)
    shapes = ((7, 5, 2), (5, 3), (2, 3))
    values = [generator.integers(-4, 5, s).astype(np.float32) for s in shapes]
    expected = driver.evaluate(module, *values)
    assert while_loop_dot_batching(module, least_bytes=0)
    driver.verify(module)
    dots = [i for i in module.entry.instructions if i.opcode == "dot"]
    assert len(dots) == 1
    np.testing.assert_array_equal(driver.evaluate(module, *values), expected)
    np.testing.assert_array_equal(driver.compile(module)(*values), expected)


@pytest.mark.parametrize(
    "changes",
    [{"rows": 6}, {"step": 2}, {"first": -1}, {"trips": 3}],
    ids=["rows beyond the input", "steps of two", "a negative start", "few iterations"],
)
def test_left_alone(changes: dict[str, int]) -> None:
    assert not while_loop_dot_batching(made(LHS, **changes), least_bytes=0)


def test_options_limit_rows_and_memory() -> None:
    assert not while_loop_dot_batching(made(LHS))
    assert not while_loop_dot_batching(made(LHS), least_bytes=0, max_rows=1, max_ops=59)
    assert while_loop_dot_batching(made(LHS), least_bytes=0, max_rows=1, max_ops=60)
    assert not while_loop_dot_batching(made(LHS), least_bytes=0, max_bytes=167)
    assert while_loop_dot_batching(made(LHS), least_bytes=0, max_bytes=168)


SHORT = """HloModule short
body {
  s = (s32[], f32[512], f32[9,8], f32[512,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[512] get-tuple-element(s), index=1
  us = f32[9,8] get-tuple-element(s), index=2
  w = f32[512,8] get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  row = f32[1,8] dynamic-slice(us, i, z), dynamic_slice_sizes={1,8}
  u = f32[8] reshape(row)
  d = f32[512] dot(w, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[512] tanh(h)
  sum = f32[512] add(t, d)
  ROOT r = (s32[], f32[512], f32[9,8], f32[512,8]) tuple(next, sum, us, w)
}
condition {
  s = (s32[], f32[512], f32[9,8], f32[512,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  us = f32[9,8] parameter(0)
  w = f32[512,8] parameter(1)
  h = f32[512] parameter(2)
  i = s32[] constant(0)
  start = (s32[], f32[512], f32[9,8], f32[512,8]) tuple(i, h, us, w)
  loop = (s32[], f32[512], f32[9,8], f32[512,8]) while(start), condition=condition, body=body
  ROOT y = f32[512] get-tuple-element(loop), index=1
}
"""


def test_short_products_leave_loops_before_they_are_sums() -> None:
    module = driver.parse(SHORT)
    optimised = driver.optimize(module)
    opcodes = [i.opcode for c in optimised.computations for i in c.instructions]
    assert opcodes.count("dot") == 1
    assert "reduce" not in opcodes
    (dot,) = (i for i in optimised.entry.instructions if i.opcode == "dot")
    assert dot.shape.dims == (9, 512)
    assert str(driver.optimize(optimised)) == str(optimised)
    generator = np.random.default_rng(7)
    shapes = ((9, 8), (512, 8), (512,))
    values = [generator.integers(-4, 5, s).astype(np.float32) for s in shapes]
    expected = driver.evaluate(module, *values)
    assert np.allclose(driver.evaluate(optimised, *values), expected, rtol=1e-6)
