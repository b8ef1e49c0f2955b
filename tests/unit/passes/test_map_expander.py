"""Maps of computations with control flow: native loops, the reference's values."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.tools.cases.inputs import made_up_inputs

CONDITIONAL = """HloModule m
yes {{ a = {t}[] parameter(0)
  ROOT r = {t}[] negate(a) }}
no {{ b = {t}[] parameter(0)
  ROOT r = {t}[] add(b, b) }}
f {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  less = pred[] compare(a, b), direction=LT
  ROOT r = {t}[] conditional(less, a, b), true_computation=yes, false_computation=no }}
ENTRY e {{ x = {t}[{dims}]{layout} parameter(0)
  y = {t}[{dims}] parameter(1)
  ROOT r = {t}[{dims}]{layout} map(x, y), dimensions={{{all}}}, to_apply=f }}
"""
LOOP = """HloModule m
c { s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  z = s32[] constant(0)
  ROOT r = pred[] compare(n, z), direction=GT }
b { s = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  p = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] subtract(n, one)
  q = s32[] add(p, p)
  ROOT r = (s32[], s32[]) tuple(m, q) }
power { n = s32[] parameter(0)
  one = s32[] constant(1)
  s = (s32[], s32[]) tuple(n, one)
  w = (s32[], s32[]) while(s), condition=c, body=b
  ROOT r = s32[] get-tuple-element(w), index=1 }
outer { n = s32[] parameter(0)
  ROOT r = s32[] call(n), to_apply=power }
ENTRY e { x = s32[3,5] parameter(0)
  ROOT r = s32[3,5] map(x), dimensions={0,1}, to_apply=outer }
"""


def check(text: str, seed: int = 0) -> None:
    module = hlo.parse(text)
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    arguments = made_up_inputs(module, "ints", seed)
    expected = hlo.evaluate(module, *arguments)
    actual = hlo.compile(module, cache=False)(*arguments)
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("t", ["f32", "bf16", "s8", "s64", "f8e4m3fn"])
def test_maps_of_branches(t: str) -> None:
    check(CONDITIONAL.format(t=t, dims="4,7", layout="{0,1}", all="0,1"))
    check(CONDITIONAL.format(t=t, dims="", layout="", all=""))


def test_maps_of_loops_in_calls() -> None:
    check(LOOP)


def test_maps_of_arithmetic_stay_maps() -> None:
    text = "HloModule m\nf { a = f32[] parameter(0)\n  ROOT r = f32[] negate(a) }\n" \
        "ENTRY e { x = f32[4] parameter(0)\n" \
        "  ROOT r = f32[4] map(x), dimensions={0}, to_apply=f }"  # fmt: skip
    optimised = hlo.optimize(hlo.parse(text), "map-expander")
    assert optimised.entry.root.opcode == "map"
