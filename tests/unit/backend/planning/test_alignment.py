"""Arguments that loops multiply by are found where a cache line begins."""

import numpy as np
import pytest

import hlo
from hlo import driver

LOOP = """HloModule m
body {{
  s = (s32[], f32[1,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1,64] get-tuple-element(s), index=1
  w = f32[64,64] get-tuple-element(s), index=2
  one = s32[] constant(1)
  y = f32[1,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[1,64] tanh(y)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[1,64], f32[64,64]) tuple(j, z, w)
}}
condition {{
  s = (s32[], f32[1,64], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = s32[] constant({trips})
  ROOT p = pred[] compare(i, c), direction=LT
}}
ENTRY e {{
  x = f32[1,64] parameter(0)
  w = f32[64,64] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[1,64], f32[64,64]) tuple(zero, x, w)
  l = (s32[], f32[1,64], f32[64,64]) while(s), condition=condition, body=body
  y = f32[1,64] get-tuple-element(l), index=1
  v = f32[64,64] get-tuple-element(l), index=2
  ROOT r = (f32[1,64], f32[64,64]) tuple(y, v)
}}
"""


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy that begins so many bytes behind a line."""
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("cache", [False, True])
def test_results_do_not_depend_on_where_arguments_begin(*, cache: bool) -> None:
    module = hlo.parse(LOOP.format(trips=20))
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 64), np.float32)
    w = random.standard_normal((64, 64), np.float32) / 8
    run = hlo.compile(module, cache=cache)
    first, _ = run(x, placed(w, 0))
    for offset in (16, 4, 0, 60, 0):
        y, v = run(placed(x, offset), placed(w, offset))
        assert np.array_equal(y, first)
        assert np.array_equal(v, w)


def test_a_loop_of_many_rounds_aligns_what_it_multiplies() -> None:
    module = driver.optimize(hlo.parse(LOOP.format(trips=20)), "default")
    program = driver.emit_stage(module, "program")
    assert program.count("align c") == 1
    assert "aligned(c" in driver.emit_stage(module, "buffers")
    assert hlo.compile(module, cache=False).memory.spare_bytes == 64 * 64 * 4
    assert "of arguments not aligned" in hlo.compile(module, cache=False).memory_report()


def test_a_short_loop_does_not() -> None:
    module = driver.optimize(hlo.parse(LOOP.format(trips=3)), "default")
    assert "align c" not in driver.emit_stage(module, "program")
