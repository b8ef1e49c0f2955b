"""Lookups of channels that lie first: the numbers are those of the reference, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest

import hlo

BEHIND = {
    "slice": "offset_dims={0}, collapsed_slice_dims={1,2}",
    "middle": "offset_dims={1}, collapsed_slice_dims={1,2}",
}


def sampled(form: str, dtype: str) -> str:
    """Two samples of 17 channels, weighted by place and by channel, reduced by two and two."""
    wide, places = ("17,12,10", "1,2") if form == "slice" else ("12,17,10", "0,2")
    channel = "0" if form == "slice" else "1"
    pair = "17,6,2,5,2" if form == "slice" else "6,2,17,5,2"
    result, dims = ("17,6,5", "2,4") if form == "slice" else ("6,17,5", "1,4")
    how = f"{BEHIND[form]}, start_index_map={{1,2}}, index_vector_dim=2, slice_sizes={{17,1,1}}"
    t = dtype
    return f"""HloModule m
max {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b)
}}
ENTRY e {{
  x = {t}[17,9,8] parameter(0)
  i = s32[12,10,2] parameter(1)
  j = s32[12,10,2] parameter(2)
  w = {t}[12,10] parameter(3)
  b = {t}[17] parameter(4)
  d = {t}[10,17] parameter(5)
  low = {t}[] constant(-inf)
  zero = {t}[] constant(0)
  zeros = {t}[{wide}] broadcast(zero), dimensions={{}}
  g = {t}[{wide}] gather(x, i), {how}
  h = {t}[{wide}] gather(x, j), {how}
  v = {t}[{wide}] broadcast(w), dimensions={{{places}}}
  u = {t}[{wide}] broadcast(b), dimensions={{{channel}}}
  p = {t}[{wide}] multiply(g, v)
  q = {t}[{wide}] multiply(h, u)
  is = pred[{wide}] compare(p, q), direction=LT
  o = {t}[{wide}] select(is, p, zeros)
  s = {t}[{wide}] add(o, q)
  y = {t}[{wide}] broadcast(d), dimensions={{2,{channel}}}
  z = {t}[{wide}] subtract(s, y)
  r = {t}[{pair}] reshape(z)
  m = {t}[{result}] reduce(r, low), dimensions={{{dims}}}, to_apply=max
  ROOT t = ({t}[{result}], {t}[{wide}]) tuple(m, g)
}}"""


@pytest.mark.parametrize("form", BEHIND)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_turned_lookups_are_the_same_numbers(form: str, dtype: str) -> None:
    module = hlo.parse(sampled(form, dtype))
    rng = np.random.default_rng(5)
    kind = module.entry.parameters[0].shape.dtype.numpy
    floats = [rng.standard_normal(n).astype(kind) for n in ((17, 9, 8), (12, 10), (17,), (10, 17))]
    places = [rng.integers(-3, 12, (12, 10, 2)).astype(np.int32) for _ in range(2)]
    arrays = (floats[0], *places, *floats[1:])
    expected = hlo.evaluate(module, *arrays)
    for machine in (None, "x86-64-v3"):
        found = hlo.compile(module, threads=2, cache=False, machine=machine)(*arrays)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_channels_lie_last_where_they_are_looked_up() -> None:
    optimized = hlo.optimize(hlo.parse(sampled("slice", "f32")))
    lookups = [i for c in optimized.computations for i in c.instructions if i.opcode == "gather"]
    assert {i.shape.dims[-1] for i in lookups} == {17}
