"""while-loop-state-splitting: the same bits, one kernel, and what it must leave alone."""

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.while_loops.while_loop_state_splitting import while_loop_state_splitting

TEXT = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
body {{
  s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[{n}] get-tuple-element(s), index=1
{step}
  ROOT t = (s32[], f32[{n}]) tuple(next, z)
}}
condition {{
  s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  y = f32[{n}] parameter(0)
  i = s32[] constant(0)
  start = (s32[], f32[{n}]) tuple(i, y)
  loop = (s32[], f32[{n}]) while(start), condition=condition, body=body
  ROOT z = f32[{n}] get-tuple-element(loop), index=1
}}
"""
STACKED = """  a = f32[1,40] slice(y), slice={[0:1], [0:40]}
  b = f32[2,40] slice(y), slice={[1:3], [0:40]}
  c = f32[1,40] negate(a)
  z = f32[3,40] concatenate(b, c), dimensions={0}"""
LAST = """  a = f32[40,1] slice(y), slice={[0:40], [0:1]}
  b = f32[40,1] slice(y), slice={[0:40], [1:2]}
  c = f32[40,2] concatenate(b, a), dimensions={1}
  z = f32[40,2] subtract(y, c)"""
TURNED = """  v = f32[2,40] transpose(y), dimensions={1,0}
  w = f32[1,40] slice(v), slice={[0:1], [0:40]}
  u = f32[40] reshape(w)
  a = f32[1,40] reshape(u)
  b = f32[1,40] slice(v), slice={[1:2], [0:40]}
  c = f32[2,40] concatenate(b, a), dimensions={0}
  d = f32[40,2] transpose(c), dimensions={1,0}
  z = f32[40,2] add(y, d)"""
SUMMED = """  zero = f32[] constant(0)
  k = f32[3] constant({1, 0.5, -2})
  each = f32[3,40] broadcast(k), dimensions={0}
  w = f32[3,40] multiply(y, each)
  sum = f32[40] reduce(w, zero), dimensions={0}, to_apply=add
  all = f32[3,40] broadcast(sum), dimensions={1}
  z = f32[3,40] subtract(w, all)"""
EVERY_OTHER = """  a = f32[2,40] slice(y), slice={[0:4:2], [0:40]}
  b = f32[2,40] slice(y), slice={[1:4:2], [0:40]}
  c = f32[2,40] multiply(a, b)
  z = f32[4,40] concatenate(c, a), dimensions={0}"""
WHOLE = """  m = f32[2,2] constant({{1, 2}, {3, 4}})
  z = f32[2,40] dot(m, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
ACROSS = """  a = f32[2,39] slice(y), slice={[0:2], [0:39]}
  b = f32[2,1] slice(y), slice={[0:2], [39:40]}
  z = f32[2,40] concatenate(b, a), dimensions={1}"""
SHORT = """  a = f32[1,4] slice(y), slice={[0:1], [0:4]}
  b = f32[1,4] slice(y), slice={[1:2], [0:4]}
  z = f32[2,4] concatenate(b, a), dimensions={0}"""
ALONE = "  z = f32[2,40] multiply(y, y)"


def made(step: str, n: str) -> Module:
    return driver.parse(TEXT.format(step=step, n=n))


@pytest.mark.parametrize(
    ("step", "dims"),
    [
        pytest.param(STACKED, (3, 40), id="stacked"),
        pytest.param(LAST, (40, 2), id="last-dimension"),
        pytest.param(TURNED, (40, 2), id="transposed"),
        pytest.param(SUMMED, (3, 40), id="reduced"),
        pytest.param(EVERY_OTHER, (4, 40), id="strided"),
    ],
)
def test_rows_apart(step: str, dims: tuple[int, ...]) -> None:
    module = made(step, ",".join(map(str, dims)))
    value = np.random.default_rng(3).integers(-3, 4, dims).astype(np.float32)
    expected = np.asarray(driver.evaluate(module, value))
    apart = driver.optimize(module, "while-loop-state-splitting,tuple-simplifier,dce")
    driver.verify(apart)
    (loop,) = (i for i in apart.entry.instructions if i.opcode == "while")
    assert len(loop.shape.elements) == 2 + min(dims)
    np.testing.assert_array_equal(np.asarray(driver.evaluate(apart, value)), expected)
    np.testing.assert_array_equal(np.asarray(driver.compile(module)(value)), expected)
    opcodes = {i.opcode for i in driver.optimize(module, "default").entry.instructions}
    assert "fusion" in opcodes
    assert "while" not in opcodes


@pytest.mark.parametrize(
    ("step", "dims"),
    [
        pytest.param(WHOLE, (2, 40), id="dot"),
        pytest.param(ACROSS, (2, 40), id="rows-cut"),
        pytest.param(SHORT, (2, 4), id="short-rows"),
        pytest.param(ALONE, (2, 40), id="elementwise-as-it-is"),
    ],
)
def test_left_alone(step: str, dims: tuple[int, ...]) -> None:
    assert not while_loop_state_splitting(made(step, ",".join(map(str, dims))))
