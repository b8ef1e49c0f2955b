"""Made-up inputs: what a program asks of its arguments, and that they are such."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.ir.dtype import ARRAY_TYPES
from hlo.tools.cases import arrays
from hlo.tools.cases.demands import demands
from hlo.tools.cases.inputs import FLOATS, made_up_array, made_up_inputs

LOSS = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  p = f32[50] parameter(0)
  y = f32[50] parameter(1)
  one = f32[] constant(1)
  ones = f32[50] broadcast(one), dimensions={}
  q = f32[50] subtract(ones, p)
  lp = f32[50] log(p)
  lq = f32[50] log(q)
  yp = f32[50] multiply(y, lp)
  l = f32[50] add(yp, lq)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(l, z), dimensions={0}, to_apply=add
}
"""
NORM = """HloModule m
ENTRY e {
  x = f32[4,64] parameter(0)
  v = f32[64] parameter(1)
  g = f32[64] parameter(2)
  b = f32[64] parameter(3)
  eps = f32[] constant(1e-5)
  es = f32[64] broadcast(eps), dimensions={}
  ve = f32[64] add(v, es)
  i = f32[64] rsqrt(ve)
  ib = f32[4,64] broadcast(i), dimensions={1}
  n = f32[4,64] multiply(x, ib)
  gb = f32[4,64] broadcast(g), dimensions={1}
  s = f32[4,64] multiply(n, gb)
  bb = f32[4,64] broadcast(b), dimensions={1}
  ROOT r = f32[4,64] add(s, bb)
}
"""
# 24 layers in a loop: without regard to the fan-in the activations grow eightfold in each.
LAYERS = """HloModule m
body {
  s = (s32[], f32[8,64], bf16[24,64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[8,64] get-tuple-element(s), index=1
  w = bf16[24,64,64] get-tuple-element(s), index=2
  z = s32[] constant(0)
  wi = bf16[1,64,64] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,64,64}
  wr = bf16[64,64] reshape(wi)
  wt = bf16[64,64] transpose(wr), dimensions={1,0}
  wc = f32[64,64] convert(wt)
  d = f32[8,64] dot(h, wc), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[8,64], bf16[24,64,64]) tuple(j, d, w)
}
cond {
  s = (s32[], f32[8,64], bf16[24,64,64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(24)
  ROOT c = pred[] compare(i, n), direction=LT
}
inner {
  h = f32[8,64] parameter(0)
  w = bf16[24,64,64] parameter(1)
  z = s32[] constant(0)
  t = (s32[], f32[8,64], bf16[24,64,64]) tuple(z, h, w)
  l = (s32[], f32[8,64], bf16[24,64,64]) while(t), condition=cond, body=body
  ROOT r = f32[8,64] get-tuple-element(l), index=1
}
ENTRY e {
  h = f32[8,64] parameter(0)
  w = bf16[24,64,64] parameter(1)
  ROOT c = f32[8,64] call(h, w), to_apply=inner
}
"""
GATHER = """HloModule m
ENTRY e {
  t = f32[9,4] parameter(0)
  i = s32[30,1] parameter(1)
  ROOT g = f32[30,4] gather(t, i), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}, indices_are_sorted=true
}
"""
# The middle of an interval is looked at, and halves the interval.
SEARCH = """HloModule m
body {
  s = (s32[], s32[], f32[100], f32[]) parameter(0)
  low = s32[] get-tuple-element(s), index=0
  high = s32[] get-tuple-element(s), index=1
  keys = f32[100] get-tuple-element(s), index=2
  x = f32[] get-tuple-element(s), index=3
  sum = s32[] add(low, high)
  two = s32[] constant(2)
  mid = s32[] divide(sum, two)
  at = f32[1] dynamic-slice(keys, mid), dynamic_slice_sizes={1}
  key = f32[] reshape(at)
  less = pred[] compare(key, x), direction=LT
  one = s32[] constant(1)
  next = s32[] add(mid, one)
  l = s32[] select(less, next, low)
  h = s32[] select(less, high, mid)
  ROOT t = (s32[], s32[], f32[100], f32[]) tuple(l, h, keys, x)
}
cond {
  s = (s32[], s32[], f32[100], f32[]) parameter(0)
  low = s32[] get-tuple-element(s), index=0
  high = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(low, high), direction=LT
}
ENTRY e {
  keys = f32[100] parameter(0)
  x = f32[] parameter(1)
  low = s32[] constant(0)
  high = s32[] constant(100)
  t = (s32[], s32[], f32[100], f32[]) tuple(low, high, keys, x)
  w = (s32[], s32[], f32[100], f32[]) while(t), condition=cond, body=body
  ROOT r = s32[] get-tuple-element(w), index=0
}
"""
CHOLESKY = """HloModule m
ENTRY e {
  a = f32[3,8,8] parameter(0)
  t = f32[3,8,8] transpose(a), dimensions={0,2,1}
  s = f32[3,8,8] add(a, t)
  ROOT c = f32[3,8,8] cholesky(s), lower=true
}
"""


def made(text: str, kind: str = "model") -> list[np.ndarray]:
    return [np.asarray(a) for a in arrays.leaves(tuple(made_up_inputs(hlo.parse(text), kind)))]


def result(text: str, kind: str = "model") -> np.ndarray:
    module = hlo.parse(text)
    return np.asarray(hlo.evaluate(module, *made_up_inputs(module, kind)))


def test_probabilities_lie_between_0_and_1() -> None:
    p, y = made(LOSS)
    assert 0 < p.min() < p.max() < 1
    assert y.min() < 0  # nothing is asked of it
    assert np.isfinite(result(LOSS))
    assert np.isnan(result(LOSS, "normal"))


def test_variances_scales_and_biases() -> None:
    x, v, g, b = made(NORM)
    assert v.min() > 0
    assert abs(g.mean() - 1) < 0.1
    assert g.std() < 0.2
    assert b.std() < 0.2
    assert 0.8 < x.std() < 1.2


@pytest.mark.parametrize("kind", ["normal", "small", "ints"])
def test_a_variance_is_never_negative(kind: str) -> None:
    values = made(NORM, kind)
    assert values[1].min() >= 0
    assert values[0].min() < 0


def test_weights_in_a_loop_of_a_call_keep_activations_in_range() -> None:
    h, w = made(LAYERS)
    assert w.astype(np.float32).std() == pytest.approx(1 / 8, rel=0.1)
    assert h.std() == pytest.approx(1, rel=0.2)
    assert 0.1 < result(LAYERS).std() < 10
    assert np.abs(result(LAYERS, "normal")).max() > 1e15


def test_indices_are_in_range_and_in_order() -> None:
    for kind in ("normal", "model", "zeros"):
        _, indices = made(GATHER, kind)
        assert indices.min() >= 0
        assert indices.max() <= 8
        assert (np.diff(indices[:, 0]) >= 0).all()


def test_what_a_loop_bisects_is_in_order() -> None:
    keys, x = made(SEARCH)
    assert (np.diff(keys) >= 0).all()
    assert result(SEARCH) == np.searchsorted(keys, x)


@pytest.mark.parametrize("kind", ["model", "normal"])
def test_no_indices_and_a_single_one_are_in_order(kind: str) -> None:
    """Sorted indices that are a number, and index vectors of nothing."""
    text = """HloModule m
ENTRY e {
  t = f32[9] parameter(0)
  i = s32[] parameter(1)
  j = s32[5,0] parameter(2)
  a = f32[] gather(t, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=0, slice_sizes={1}, indices_are_sorted=true
  b = f32[5,9] gather(t, j), offset_dims={1}, collapsed_slice_dims={}, start_index_map={},
    index_vector_dim=1, slice_sizes={9}, indices_are_sorted=true
  ROOT r = (f32[], f32[5,9]) tuple(a, b)
}
"""
    _, one, none = made_up_inputs(hlo.parse(text), kind)
    assert np.shape(one) == ()
    assert np.shape(none) == (5, 0)


def test_matrices_that_are_decomposed_are_definite() -> None:
    assert np.isfinite(result(CHOLESKY)).all()


def test_an_interval_through_arithmetic() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  c = f32[4] constant({-4,-4,-4,-4})
  m = f32[4] multiply(x, c)
  o = f32[4] constant({2,2,2,2})
  s = f32[4] subtract(m, o)
  n = f32[4] negate(s)
  ROOT l = f32[4] log-plus-one(n)
}
"""
    module = hlo.parse(text)  # 2 + 4 x > -1
    demand = demands(module)[module.entry.parameters[0]][()]
    assert demand.low == -0.75
    assert demand.high == np.inf
    assert made(text)[0].min() > -0.75


@pytest.mark.parametrize("kind", FLOATS)
def test_every_kind_makes_every_type(kind: str) -> None:
    for dtype in ARRAY_TYPES:
        for dims in ((), (3, 5), (2, 0)):
            made = made_up_array(hlo.Shape.array(dtype, dims), kind, np.random.default_rng(0))
            assert (made.shape, made.dtype) == (dims, dtype.numpy)


def test_ramps_of_integers_are_whole_numbers_modulo_their_range() -> None:
    rng = np.random.default_rng(0)
    for name, period in (("u64", 32), ("s64", 32), ("s4", 8), ("u2", 4)):
        made = made_up_array(hlo.Shape.array(name, (32,)), "ramp", rng)
        assert [int(n) for n in made] == [n % period for n in range(32)]
