"""while-loop-rematerialization of slopes: a few additions on one kept row are computed again."""

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.ir.module import Module

# {slope}: what the first loop keeps beside s, of s or of its state x.
TEXT = """HloModule m
forward {{
  s = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64,64] get-tuple-element(s), index=1
  values = f32[{n},64,64] get-tuple-element(s), index=2
  slopes = f32[{n},64,64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  unit = f32[] constant(1)
  ones = f32[64,64] broadcast(unit), dimensions={{}}
  next = s32[] add(i, one)
  value = f32[64,64] logistic(x)
  rest = f32[64,64] subtract(ones, value)
  slope = f32[64,64] {slope}
  value.row = f32[1,64,64] reshape(value)
  slope.row = f32[1,64,64] reshape(slope)
  value.put = f32[{n},64,64] dynamic-update-slice(values, value.row, i, zero, zero)
  slope.put = f32[{n},64,64] dynamic-update-slice(slopes, slope.row, i, zero, zero)
  y = f32[64,64] cosine(value)
  ROOT r = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64])
    tuple(next, y, value.put, slope.put)
}}
under {{
  s = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT c = pred[] compare(i, n), direction=LT
}}
under.back {{
  s = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT c = pred[] compare(i, n), direction=LT
}}
backward {{
  s = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = f32[64,64] get-tuple-element(s), index=1
  values = f32[{n},64,64] get-tuple-element(s), index=2
  slopes = f32[{n},64,64] get-tuple-element(s), index=3
  one = s32[] constant(1)
  zero = s32[] constant(0)
  last = s32[] constant({last})
  next = s32[] add(i, one)
  back = s32[] subtract(last, i)
  value.row = f32[1,64,64] dynamic-slice(values, back, zero, zero), dynamic_slice_sizes={{1,64,64}}
  slope.row = f32[1,64,64] dynamic-slice(slopes, back, zero, zero), dynamic_slice_sizes={{1,64,64}}
  value = f32[64,64] reshape(value.row)
  slope = f32[64,64] reshape(slope.row)
  sine = f32[64,64] sine(value)
  down = f32[64,64] multiply(g, slope)
  new = f32[64,64] add(down, sine)
  ROOT r = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) tuple(next, new, values, slopes)
}}
ENTRY e {{
  x = f32[64,64] parameter(0)
  g = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  empty = f32[{n},64,64] broadcast(none), dimensions={{}}
  start = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) tuple(zero, x, empty, empty)
  first = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64])
    while(start), condition=under, body=forward
  values = f32[{n},64,64] get-tuple-element(first), index=2
  slopes = f32[{n},64,64] get-tuple-element(first), index=3
  again = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64]) tuple(zero, g, values, slopes)
  second = (s32[], f32[64,64], f32[{n},64,64], f32[{n},64,64])
    while(again), condition=under.back, body=backward
  ROOT d = f32[64,64] get-tuple-element(second), index=1
}}
"""
SLOPE = "multiply(value, rest)"


def rewritten(n: int, slope: str) -> Module:
    text = TEXT.format(n=n, last=n - 1, slope=slope)
    return driver.optimize(hlo.parse(text), "while-loop-rematerialization,tuple-simplifier,dce")


@pytest.mark.parametrize(
    ("n", "slope", "stacks"),
    [
        (64, SLOPE, 1),
        (64, "reshape(value)", 1),
        (16, SLOPE, 2),  # caches hold both
        (64, "tanh(value)", 2),  # more work than to read it
        (64, "multiply(value, x)", 2),  # no array has x
    ],
)
def test_rows_that_follow_from_one_are_not_kept(n: int, slope: str, stacks: int) -> None:
    module = rewritten(n, slope)
    loops = [i for i in module.entry.instructions if i.opcode == "while"]
    assert len(loops) == 2
    for loop in loops:
        assert [e.dims for e in loop.shape.elements].count((n, 64, 64)) == stacks


def test_the_bits_are_the_same() -> None:
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2)]
    text = TEXT.format(n=64, last=63, slope=SLOPE)
    expected = hlo.evaluate(hlo.parse(text), *inputs)
    found = hlo.evaluate(rewritten(64, SLOPE), *inputs)
    assert np.array_equal(np.asarray(found), np.asarray(expected))
