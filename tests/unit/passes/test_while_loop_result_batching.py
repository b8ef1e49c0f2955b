"""What loops multiply and add up moves behind them: the same numbers, and what must stay."""

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.while_loops.while_loop_result_batching import while_loop_result_batching
from hlo.passes.while_loops.while_loop_sum_batching import while_loop_sum_batching

TEXT = """HloModule m
body {{
  s = (s32[], f32[8], f32[6,2,9], f32[8,9], f32[9,2], f32[16,8], f32[6,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8] get-tuple-element(s), index=1
  ys = f32[6,2,9] get-tuple-element(s), index=2
  m = f32[8,9] get-tuple-element(s), index=3
  c = f32[9,2] get-tuple-element(s), index=4
  a = f32[16,8] get-tuple-element(s), index=5
  xs = f32[6,16] get-tuple-element(s), index=6
  zero = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant(5)
  back = s32[] subtract(last, i)
  next = s32[] add(i, one)
  two = f32[] constant(2)
  twos = f32[8] broadcast(two), dimensions={{}}
  z = f32[8] subtract(twos, h)
  pair = f32[2,8] broadcast(z), dimensions={{1}}
  {row}
  ys.next = f32[6,2,9] dynamic-update-slice(ys, row, {at}, zero, zero)
  x.row = f32[1,16] dynamic-slice(xs, {at}, zero), dynamic_slice_sizes={{1,16}}
  x = f32[16] reshape(x.row)
  {sum}
  a.next = f32[16,8] add(a, outer)
  ROOT r = (s32[], f32[8], f32[6,2,9], f32[8,9], f32[9,2], f32[16,8], f32[6,16]) tuple(next, z, ys.next, m, c, a.next, xs)
}}
condition {{
  s = (s32[], f32[8], f32[6,2,9], f32[8,9], f32[9,2], f32[16,8], f32[6,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  h = f32[8] parameter(0)
  m = f32[8,9] parameter(1)
  c = f32[9,2] parameter(2)
  a = f32[16,8] parameter(3)
  xs = f32[6,16] parameter(4)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  ys = f32[6,2,9] broadcast(none), dimensions={{}}
  start = (s32[], f32[8], f32[6,2,9], f32[8,9], f32[9,2], f32[16,8], f32[6,16]) tuple(zero, h, ys, m, c, a, xs)
  loop = (s32[], f32[8], f32[6,2,9], f32[8,9], f32[9,2], f32[16,8], f32[6,16]) while(start), condition=condition, body=body
  ys.end = f32[6,2,9] get-tuple-element(loop), index=2
  a.end = f32[16,8] get-tuple-element(loop), index=5
  ROOT r = (f32[6,2,9], f32[16,8]) tuple(ys.end, a.end)
}}
"""  # noqa: E501
LHS = """y = f32[2,9] dot(pair, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  row = f32[1,2,9] reshape(y)"""
RHS = """y = f32[9,2] dot(m, pair), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  sum = f32[9,2] add(y, c)
  row = f32[1,2,9] reshape(sum)"""
SEEN = """y = f32[2,9] dot(pair, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  turned = f32[9,2] transpose(y), dimensions={1,0}
  row = f32[1,2,9] reshape(turned)"""
DOWN = """x.down = f32[16,8] broadcast(x), dimensions={0}
  z.along = f32[16,8] broadcast(z), dimensions={1}
  outer = f32[16,8] multiply(x.down, z.along)"""
TURNED = """z.down = f32[8,16] broadcast(z), dimensions={0}
  x.along = f32[8,16] broadcast(x), dimensions={1}
  other = f32[8,16] multiply(x.along, z.down)
  outer = f32[16,8] transpose(other), dimensions={1,0}"""


def made(row: str = LHS, sum: str = DOWN, at: str = "i") -> Module:
    return driver.parse(TEXT.format(row=row, sum=sum, at=at))


def values() -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    shapes = ((8,), (8, 9), (9, 2), (16, 8), (6, 16))
    return [generator.integers(-4, 5, s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("at", ["i", "back"])
@pytest.mark.parametrize("row", [LHS, RHS], ids=["lhs", "rhs"])
def test_rows_stay(row: str, at: str) -> None:
    module = made(row, at=at)
    expected = driver.evaluate(module, *values())
    assert while_loop_result_batching(module, least_bytes=1)
    driver.verify(module)
    for one, other in zip(driver.evaluate(module, *values()), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("at", ["i", "back"])
@pytest.mark.parametrize("sum", [DOWN, TURNED], ids=["down", "turned"])
def test_sums_of_outer_products_stay(sum: str, at: str) -> None:
    module = made(sum=sum, at=at)
    expected = driver.evaluate(module, *values())
    assert while_loop_sum_batching(module)
    driver.verify(module)
    for one, other in zip(driver.evaluate(module, *values()), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_more_than_elementwise_is_left_alone() -> None:
    assert not while_loop_result_batching(made(SEEN), least_bytes=1)


def test_small_matrices_and_large_products_are_left_alone() -> None:
    assert not while_loop_result_batching(made())
    assert not while_loop_result_batching(made(), least_bytes=1, max_bytes=100)
    assert not while_loop_result_batching(made(), least_bytes=1, max_rows=1, max_ops=10)
