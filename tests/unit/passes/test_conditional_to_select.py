"""Branches in what is applied to elements: no host call, the reference's values."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.tools.cases.inputs import made_up_inputs

COMPUTATIONS = """HloModule m
yes { a = f32[] parameter(0)
  ROOT r = f32[] negate(a) }
no { b = f32[] parameter(0)
  ROOT r = f32[] add(b, b) }
f { a = f32[] parameter(0)
  b = f32[] parameter(1)
  less = pred[] compare(a, b), direction=LT
  ROOT r = f32[] conditional(less, a, b), true_computation=yes, false_computation=no }
always { t = () parameter(0)
  ROOT r = pred[] constant(true) }
equal { t = (f32[], f32[]) parameter(0)
  a = f32[] get-tuple-element(t), index=0
  b = f32[] get-tuple-element(t), index=1
  ROOT r = pred[] compare(a, b), direction=EQ }
order { a = f32[] parameter(0)
  b = f32[] parameter(1)
  less = pred[] compare(a, b), direction=GT
  nothing = () tuple()
  both = (f32[], f32[]) tuple(b, a)
  ROOT r = pred[] conditional(less, nothing, both), true_computation=always,
    false_computation=equal }
two { a = s32[] parameter(0)
  s = s32[] multiply(a, a)
  ROOT r = (s32[], s32[]) tuple(s, a) }
one { a = s32[] parameter(0)
  ROOT r = (s32[], s32[]) tuple(a, a) }
three { a = s32[] parameter(0)
  n = s32[] negate(a)
  ROOT r = (s32[], s32[]) tuple(n, n) }
several { k = s32[] parameter(0)
  c = (s32[], s32[]) conditional(k, k, k, k), branch_computations={one, two, three}
  x = s32[] get-tuple-element(c), index=0
  y = s32[] get-tuple-element(c), index=1
  ROOT r = s32[] subtract(x, y) }
ENTRY e { x = f32[4,6] parameter(0)
  k = s32[40] parameter(1)
  z = f32[] constant(0)
  i = s32[2,1] constant({{1},{2}})
  u = f32[2,6] broadcast(z), dimensions={}
"""
BODIES = {
    "reduce": "f32[4] reduce(x, z), dimensions={1}, to_apply=f",
    "reduce-window": "f32[4,5] reduce-window(x, z), window={size=1x2}, to_apply=f",
    "scatter": "f32[4,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f",
    "sort": "f32[4,6] sort(x), dimensions={1}, to_apply=order",
    "map": "s32[40] map(k), dimensions={0}, to_apply=several",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_branches_are_selected(body: str) -> None:
    module = hlo.parse(COMPUTATIONS + f"  ROOT r = {body} }}")
    optimised = hlo.optimize(module)
    opcodes = {i.opcode for c in optimised.computations for i in c.instructions}
    assert "conditional" not in opcodes
    assert "while" not in opcodes
    assert not Compilation(optimised, passes="", threads=1).program.hosts
    x, _ = made_up_inputs(module, "normal", 3)
    k = np.arange(-20, 20, dtype=np.int32) // 3
    expected = hlo.evaluate(module, x, k)
    np.testing.assert_allclose(hlo.compile(module, cache=False)(x, k), expected, rtol=1e-6)
