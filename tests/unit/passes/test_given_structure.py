"""What passes leave as it is: control dependences, given fusions, execution threads."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver

TIED = """HloModule tied
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
body { s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  invariant = f32[4] cosine(x)
  twice = f32[4] multiply(y, y), control-predecessors={invariant}
  z = f32[4] add(twice, invariant)
  ROOT r = (s32[], f32[4], f32[4]) tuple(j, x, z) }
condition { s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT }
dotted { p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  ROOT d = f32[] dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={0} }
ENTRY e {
  p = f32[4] parameter(0)
  q = f32[4] parameter(1)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  pair = (f32[4], f32[4]) tuple(p, q)
  first = f32[4] get-tuple-element(pair), index=0
  same = f32[4] subtract(first, zeros)
  again = f32[4] subtract(first, zeros)
  u = f32[4] negate(same), control-predecessors={first}
  v = f32[4] exponential(u), control-predecessors={same, again}
  two = f32[] constant(2)
  folded = f32[] negate(two)
  w = f32[4] cosine(v), control-predecessors={folded}
  f = f32[] fusion(p, q), kind=kOutput, calls=dotted
  flat = f32[2,2] reshape(v)
  flat2 = f32[2,2] reshape(w)
  moved = f32[2,2] add(flat, flat2)
  x = f32[2,2] sine(flat), control-predecessors={f, moved}
  total = f32[] reduce(w, zero), dimensions={0}, to_apply=sum
  i0 = s32[] constant(0)
  start = (s32[], f32[4], f32[4]) tuple(i0, v, w), control-predecessors={total}
  loop = (s32[], f32[4], f32[4]) while(start), condition=condition, body=body
  after = f32[4] get-tuple-element(loop), index=2
  end = f32[4] tanh(v), control-predecessors={loop}
  ROOT r = (f32[4], f32[2,2], f32[], f32[4], f32[4]) tuple(w, x, f, after, end)
}
"""
PASSES = (
    "call-inliner", "tuple-simplifier", "dce", "algsimp", "constant_folding", "cse",
    "reshape-mover", "while-loop-invariant-code-motion", "while-loop-unroller", "sharding-remover",
    "fusion", "default", "fast",
)  # fmt: skip


@pytest.mark.parametrize("passes", PASSES)
def test_awaited_instructions_survive_a_pass(passes: str) -> None:
    module = driver.parse(TIED)
    optimized = driver.optimize(module, passes)  # verified after every pass
    arguments = [np.array([1, 2, 3, 4], np.float32), np.array([4, 3, 2, 1], np.float32)]
    expected, found = driver.evaluate(module, *arguments), driver.evaluate(optimized, *arguments)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_tied_module_compiles() -> None:
    module = driver.parse(TIED)
    arguments = [np.array([1, 2, 3, 4], np.float32), np.array([4, 3, 2, 1], np.float32)]
    found = driver.compile(module, cache=False)(*arguments)
    for a, b in zip(driver.evaluate(module, *arguments), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5)


def test_fusions_of_the_input_stay_whole() -> None:
    module = driver.parse("""HloModule m
fused { p = f32[2,3] parameter(0)
  q = f32[2,3] parameter(1)
  t = (f32[2,3], f32[2,3]) tuple(p, q)
  a = f32[2,3] get-tuple-element(t), index=0
  one = f32[] constant(1)
  two = f32[] constant(2)
  three = f32[] add(one, two)
  x = f32[3,2] reshape(a)
  y = f32[3,2] reshape(q)
  z = f32[3,2] add(x, y)
  spread = f32[3,2] broadcast(three), dimensions={}
  b = f32[2,3] get-tuple-element(t), index=1
  w = f32[3,2] reshape(b)
  s = f32[3,2] multiply(z, spread)
  ROOT r = f32[3,2] add(s, w) }
ENTRY e { a = f32[2,3] parameter(0)
  b = f32[2,3] parameter(1)
  ROOT f = f32[3,2] fusion(a, b), kind=kLoop, calls=fused }
""")
    p, q = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    optimized = driver.optimize(module, "simplify,reshape-mover,fusion")
    np.testing.assert_array_equal(driver.evaluate(optimized, p, q), ((p + q) * 3 + q).reshape(3, 2))
    compiled = driver.compile(module, cache=False)
    np.testing.assert_array_equal(compiled(p, q), ((p + q) * 3 + q).reshape(3, 2))


def test_fusions_are_on_the_thread_of_their_caller() -> None:
    module = driver.parse("""HloModule m
work { p = f32[8] parameter(0)
  n = f32[8] negate(p)
  ROOT e = f32[8] exponential(n)
}, execution_thread="other"
ENTRY e { a = f32[8] parameter(0)
  s = ((f32[8]), f32[8], u32[]) async-start(a), calls=work, async_execution_thread="other"
  ROOT d = f32[8] async-done(s) }
""")
    threads = {c.name: c.execution_thread for c in driver.optimize(module).computations}
    assert threads == {"fused_computation": "other", "work": "other", "e": "main"}
    a = np.arange(8, dtype=np.float32)
    np.testing.assert_allclose(driver.compile(module, cache=False)(a), np.exp(-a), rtol=1e-6)


def test_inlined_async_work_is_each_copy_its_own() -> None:
    module = driver.parse("""HloModule m
work { p = f32[3] parameter(0)
  ROOT n = f32[3] negate(p)
}, execution_thread="other"
inner { q = f32[3] parameter(0)
  s = ((f32[3]), f32[3], u32[]) async-start(q), calls=work, async_execution_thread="other"
  ROOT d = f32[3] async-done(s) }
ENTRY e { a = f32[3] parameter(0)
  b = f32[3] call(a), to_apply=inner
  c = f32[3] exponential(b)
  d = f32[3] call(c), to_apply=inner
  ROOT r = f32[3] add(b, d) }
""")
    optimized = driver.optimize(module, "call-inliner,dce")
    starts = [i for i in optimized.entry.instructions if i.opcode == "async-start"]
    assert len({c for s in starts for c in s.called_computations()}) == 2
    a = np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(driver.compile(module, cache=False)(a), -a - np.exp(-a), rtol=1e-6)


def test_slices_by_a_vector_of_indices_compile() -> None:
    module = driver.parse("""HloModule m
ENTRY e { i = s32[] parameter(0)
  x = f32[20,20] parameter(1)
  zero = s32[1] constant({0})
  j = s32[1] bitcast(i)
  both = s32[2] concatenate(zero, j), dimensions={0}
  column = f32[20,1] dynamic-slice(x, both), dynamic_slice_sizes={20,1}
  flat = f32[20] bitcast(column)
  one = f32[1] dynamic-slice(flat, j), dynamic_slice_sizes={1}
  ROOT r = f32[] bitcast(one) }
""")
    x = np.arange(400, dtype=np.float32).reshape(20, 20)
    for i in (0, 7, 30):
        k = min(i, 19)
        assert driver.compile(module, cache=False)(np.int32(i), x) == x[k, k]


def test_wrapped_calls_stay_alone() -> None:
    module = driver.parse("""HloModule m
work { p = f32[3] parameter(0)
  n = f32[3] negate(p)
  ROOT e = f32[3] exponential(n) }
ENTRY e { a = f32[3] parameter(0)
  s = ((f32[3]), f32[3], u32[]) call-start(a), to_apply=work
  ROOT d = f32[3] call-done(s) }
""")
    a = np.arange(3, dtype=np.float32)
    driver.optimize(module)  # verified after every pass
    np.testing.assert_allclose(driver.compile(module, cache=False)(a), np.exp(-a), rtol=1e-6)


WRAPPED_FUSION = """HloModule m
work { p = f32[3,3] parameter(0)
  d = f32[3,3] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[3,3] dot(d, p), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
w { p = f32[3,3] parameter(0)
  ROOT f = f32[3,3] fusion(p), kind=kCustom, calls=work }
ENTRY e { a = f32[3,3] parameter(0)
  s = ((f32[3,3]), f32[3,3], u32[]) async-start(a), calls=w
  ROOT d = f32[3,3] async-done(s) }
"""
WRAPPED_REDUCE = """HloModule m
sum { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
w { p = f32[100000] parameter(0)
  z = f32[] parameter(1)
  ROOT r = f32[] reduce(p, z), dimensions={0}, to_apply=sum }
ENTRY e { a = f32[100000] parameter(0)
  z = f32[] parameter(1)
  s = ((f32[100000], f32[]), f32[], u32[]) async-start(a, z), calls=w
  ROOT d = f32[] async-done(s) }
"""


def test_wrapped_fusions_and_reductions_stay_one_operation() -> None:
    rng = np.random.default_rng(3)
    a, long = rng.standard_normal((3, 3)).astype("f"), rng.standard_normal(100000).astype("f")
    for text, given, wanted in (
        (WRAPPED_FUSION, (a,), a @ a @ a),
        (WRAPPED_REDUCE, (long, np.float32(0)), long.sum(dtype=np.float64)),
    ):
        module = driver.parse(text)
        driver.optimize(module)  # verified after every pass
        found = driver.compile(module, cache=False)(*given)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)


def test_a_loop_with_a_sharding_for_each_element_takes_further_ones() -> None:
    module = driver.parse("""HloModule m
body { s = (s32[], f32[300]) parameter(0), sharding={{replicated}, {devices=[2]<=[2]}}
  i = s32[] get-tuple-element(s), index=0
  x = f32[300] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  steps = f32[300] iota(), iota_dimension=0
  sines = f32[300] sine(steps)
  y = f32[300] add(x, sines)
  ROOT r = (s32[], f32[300]) tuple(j, y), sharding={{replicated}, {devices=[2]<=[2]}} }
condition { s = (s32[], f32[300]) parameter(0), sharding={{replicated}, {devices=[2]<=[2]}}
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(50)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { i = s32[] constant(0)
  x = f32[300] parameter(0)
  s = (s32[], f32[300]) tuple(i, x)
  w = (s32[], f32[300]) while(s), condition=condition, body=body,
    sharding={{replicated}, {devices=[2]<=[2]}}
  ROOT y = f32[300] get-tuple-element(w), index=1 }
""")
    driver.verify(module)
    x = np.zeros(300, np.float32)
    driver.optimize(module)  # verified after every pass
    found = driver.compile(module, cache=False)(x)
    np.testing.assert_allclose(np.asarray(found), 50 * np.sin(np.arange(300)), rtol=1e-3, atol=1e-3)
