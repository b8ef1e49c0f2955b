"""Norms over middle dimensions, one kernel each: against the interpreter, for any thread count."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.driver import optimize
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from tests.support.by_threads import for_threads
from tests.support.covering import covering

REDUCERS = """HloModule m
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
max {{
  a = {v}[] parameter(0)
  b = {v}[] parameter(1)
  ROOT c = {v}[] maximum(a, b)
}}
"""
# A dimension of one is kept on the way, as JAX's keepdims does.
SOFTMAX = """ENTRY e {{
  x = {v}[{a},{n},{c}] parameter(0)
  least = {v}[] constant(-inf)
  zero = f32[] constant(0)
  m = {v}[{a},{c}] reduce(x, least), dimensions={{1}}, to_apply=max
  mb = {v}[{a},{n},{c}] broadcast(m), dimensions={{0,2}}
  d = {v}[{a},{n},{c}] subtract(x, mb)
  e = {v}[{a},{n},{c}] exponential(d)
  w = f32[{a},{n},{c}] convert(e)
  s = f32[{a},{c}] reduce(w, zero), dimensions={{1}}, to_apply=sum
  sk = f32[{a},1,{c}] reshape(s)
  tk = {v}[{a},1,{c}] convert(sk)
  t = {v}[{a},{c}] reshape(tk)
  tb = {v}[{a},{n},{c}] broadcast(t), dimensions={{0,2}}
  ROOT r = {v}[{a},{n},{c}] divide(e, tb)
}}"""
NORM = """ENTRY e {{
  x = f32[{a},{n},{c}] parameter(0)
  g = f32[{n}] parameter(1)
  zero = f32[] constant(0)
  size = f32[] constant({n})
  sizes = f32[{a},{c}] broadcast(size), dimensions={{}}
  s = f32[{a},{c}] reduce(x, zero), dimensions={{1}}, to_apply=sum
  mean = f32[{a},{c}] divide(s, sizes)
  meanb = f32[{a},{n},{c}] broadcast(mean), dimensions={{0,2}}
  d = f32[{a},{n},{c}] subtract(x, meanb)
  q = f32[{a},{n},{c}] multiply(d, d)
  v = f32[{a},{c}] reduce(q, zero), dimensions={{1}}, to_apply=sum
  small = f32[] constant(0.01)
  smalls = f32[{a},{c}] broadcast(small), dimensions={{}}
  u = f32[{a},{c}] add(v, smalls)
  i1 = f32[{a},1,{c}] reshape(u)
  i2 = f32[{a},1,{c}] rsqrt(i1)
  i = f32[{a},{c}] reshape(i2)
  ib = f32[{a},{n},{c}] broadcast(i), dimensions={{0,2}}
  y = f32[{a},{n},{c}] multiply(d, ib)
  gb = f32[{a},{n},{c}] broadcast(g), dimensions={{1}}
  ROOT r = f32[{a},{n},{c}] multiply(y, gb)
}}"""
SHAPES = [(1, 1, 16), (3, 2, 17), (2, 7, 31), (4, 9, 64), (2, 33, 100), (1, 300, 65), (5, 1000, 33)]


def outcomes(source: str, *values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(compiled, interpreted); compiled has the same bits for every number of threads."""
    found = [
        Compilation(optimize(parse(source)), threads=t, passes="").executable(*values)
        for t in (1, 2, 3, 7)
    ]
    assert len({f.tobytes() for f in found}) == 1
    return found[0].astype(np.float64), np.asarray(evaluate(parse(source), *values), np.float64)


@pytest.mark.parametrize(
    ("kind", "rtol", "a", "n", "c"),
    covering([("f32", 3e-6), ("bf16", 2e-2), ("f16", 3e-3)], SHAPES, strength=1, several=(0, 1)),
)
def test_softmax_of_a_middle_dimension(a: int, n: int, c: int, kind: str, rtol: float) -> None:
    source = (REDUCERS + SOFTMAX).format(v=kind, a=a, n=n, c=c)
    rng = np.random.default_rng(n)
    x = rng.standard_normal((a, n, c)) * 3
    x[0, :, 0] = -np.inf  # every term of one reduction is NaN
    x[0, 0, c - 1] = np.nan
    dtype = parse(source).entry.parameters[0].shape.dtype.numpy
    got, want = outcomes(source, x.astype(dtype))
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol / 100)


@pytest.mark.parametrize(("a", "n", "c"), SHAPES)
def test_norm_of_a_middle_dimension(a: int, n: int, c: int) -> None:
    source = (REDUCERS + NORM).format(v="f32", a=a, n=n, c=c)
    rng = np.random.default_rng(c)
    x = rng.standard_normal((a, n, c)).astype(np.float32) + 1
    g = rng.standard_normal(n).astype(np.float32)
    got, want = outcomes(source, x, g)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["softmax", "norm"])
def test_they_are_one_kernel(name: str) -> None:
    entry = {"softmax": SOFTMAX, "norm": NORM}[name]
    module = optimize(parse((REDUCERS + entry).format(v="f32", a=4, n=30, c=64)))
    assert [i.opcode for i in module.entry.instructions].count("fusion") == 1
    assert module.entry.root.opcode == "fusion"


def fusion_count(source: str) -> int:
    module = optimize(parse(source))
    return [i.opcode for i in module.entry.instructions].count("fusion")


def test_cheap_columns_that_share_cache_sets_are_several_kernels() -> None:
    assert fusion_count((REDUCERS + NORM).format(v="f32", a=1, n=1024, c=2048)) > 1


@pytest.mark.parametrize(("n", "c", "is_one"), [(1024, 2048, True), (9000, 2048, False)])
def test_exponentials_are_kept_wherever_their_columns_lie(n: int, c: int, *, is_one: bool) -> None:
    found = fusion_count((REDUCERS + SOFTMAX).format(v="f32", a=1, n=n, c=c))
    assert (found == 1) == is_one


def test_kept_columns_share_one_scratch_memory() -> None:
    module = optimize(parse((REDUCERS + SOFTMAX).format(v="f32", a=1, n=1024, c=2048)))
    (fusion,) = [i for i in module.entry.instructions if i.opcode == "fusion"]
    target = host_target()
    kernel = fused_kernel(fusion, target)
    assert kernel.scratch_bytes == 1024 * 4 * target.vector_bytes  # four vectors of columns
    assert kernel.bytes_moved == 2 * 1024 * 2048 * 4


@pytest.mark.parametrize(("n", "c"), [(1024, 257), (1100, 1024), (4096, 130)])
def test_softmax_of_long_columns(n: int, c: int) -> None:
    source = (REDUCERS + SOFTMAX).format(v="f32", a=1, n=n, c=c)
    x = np.random.default_rng(n).standard_normal((1, n, c)).astype(np.float32) * 4
    module = parse(source)
    results = [for_threads(module, threads=t)(x) for t in (1, 2, 3)]
    whole = np.exp((x - x.max(1, keepdims=True)).astype(np.float64))
    np.testing.assert_allclose(results[0], whole / whole.sum(1, keepdims=True), rtol=3e-6)
    assert all(np.array_equal(results[0], other) for other in results[1:])
