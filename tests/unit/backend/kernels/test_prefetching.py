"""Prefetching and rows stored in turn: in large kernels of rows, with the same bits."""

import re

import numpy as np
import pytest

from hlo import driver
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from tests.support.covering import covering

PROGRAM = """HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  p = {type}[{n},{m}] parameter(0)
  g = {type}[{m}] parameter(1)
  x = f32[{n},{m}] convert(p)
  zero = f32[] constant(0)
  q = f32[{n},{m}] multiply(x, x)
  s = f32[{n}] reduce(q, zero), dimensions={{1}}, to_apply=sum
  r = f32[{n}] rsqrt(s)
  rs = f32[{n},{m}] broadcast(r), dimensions={{0}}
  y = f32[{n},{m}] multiply(x, rs)
  gs = {type}[{n},{m}] broadcast(g), dimensions={{1}}
  w = f32[{n},{m}] convert(gs)
  ROOT out = f32[{n},{m}] {finish}
}}"""
SCALED, PLAIN = "multiply(y, w)", "negate(y)"


@pytest.mark.parametrize(
    ("type", "finish", "n", "m"),
    covering(
        ["f32", "bf16", "f16"],
        [SCALED, PLAIN],
        [(1024, 300), (4097, 67), (4096, 40), (257, 1025)],
        several=(2,),
    ),
)
def test_rows_from_memory_are_the_reference(n: int, m: int, finish: str, type: str) -> None:
    module = driver.parse(PROGRAM.format(n=n, m=m, type=type, finish=finish))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    random = np.random.default_rng(0)
    x, g = (random.standard_normal(s).astype(dtype) for s in ((n, m), (m,)))
    found = [driver.compile(module, threads=k, cache=False)(x, g) for k in (1, 3)]
    assert found[0].tobytes() == found[1].tobytes()
    assert np.allclose(found[0], driver.evaluate(module, x, g), rtol=1e-5, atol=1e-6)


def test_rows_in_turn_may_lie_over_their_operand() -> None:
    text = PROGRAM.format(n=4096, m=72, type="f32", finish=PLAIN)
    text = text.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}) }")
    module = driver.parse(text)
    x = np.random.default_rng(2).standard_normal((4096, 72)).astype(np.float32)
    g = np.ones(72, np.float32)
    got = driver.compile(module, threads=1, cache=False)(x.copy(), g)
    assert np.allclose(got, driver.evaluate(module, x, g), rtol=1e-5)


MOMENTS = """HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  p = {type}[{n},{m}] parameter(0)
  x = f32[{n},{m}] convert(p)
  zero = f32[] constant(0)
  s = f32[{n}] reduce(x, zero), dimensions={{1}}, to_apply=sum
  ss = f32[{n},{m}] broadcast(s), dimensions={{0}}
  d = f32[{n},{m}] subtract(x, ss)
  q = f32[{n},{m}] multiply(d, d)
  v = f32[{n}] reduce(q, zero), dimensions={{1}}, to_apply=sum
  ROOT out = f32[{n}] subtract(v, s)
}}"""


def reductions_text(n: int, m: int, type: str) -> str:
    module = driver.optimize(driver.parse(MOMENTS.format(n=n, m=m, type=type)), "fusion")
    fused = next(i for i in module.entry.instructions if i.opcode == "fusion")
    return fused_kernel(fused, host_target()).text


def test_rows_that_are_only_reduced_are_fetched_ahead_by_the_last_reduction() -> None:
    text = reductions_text(512, 2048, "f32")
    first_reduction, _, rest = text.partition(" = shufflevector ")  # the joining of its lanes
    assert "llvm.prefetch" not in first_reduction
    assert "llvm.prefetch" in rest
    assert "llvm.prefetch" not in reductions_text(4, 2048, "f32")


def test_a_line_is_asked_for_once() -> None:
    counts = [
        reductions_text(512, 2048, type).count("call void @llvm.prefetch")
        for type in ("f32", "bf16")
    ]
    assert counts[1] <= counts[0]


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize(("n", "m"), [(512, 2048), (1021, 301), (9000, 40)])
def test_folds_of_rows_from_memory_are_the_reference(n: int, m: int, type: str) -> None:
    module = driver.parse(MOMENTS.format(n=n, m=m, type=type))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    x = np.random.default_rng(1).random((n, m)).astype(dtype)
    found = [driver.compile(module, threads=k, cache=False)(x) for k in (1, 3)]
    assert found[0].tobytes() == found[1].tobytes()
    assert np.allclose(found[0], driver.evaluate(module, x), rtol=1e-4)


def test_rows_behind_a_run_time_index_have_no_hints() -> None:
    module = driver.parse("""HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  p = f32[2048,300] parameter(0)
  k = s32[] parameter(1)
  zero = f32[] constant(0)
  x = f32[1024,300] dynamic-slice(p, k, k), dynamic_slice_sizes={1024,300}
  s = f32[1024] reduce(x, zero), dimensions={1}, to_apply=sum
  b = f32[1024,300] broadcast(s), dimensions={0}
  ROOT out = f32[1024,300] subtract(x, b)
}""")
    p = np.random.default_rng(5).integers(-9, 9, (2048, 300)).astype(np.float32)
    found = driver.compile(module, cache=False)(p, np.int32(700))
    np.testing.assert_array_equal(found, driver.evaluate(module, p, np.int32(700)))


@pytest.mark.parametrize(("n", "m", "is_asked"), [(4096, 1600, True), (512, 4096, False)])
def test_one_reduction_of_long_rows_asks_for_nothing(n: int, m: int, *, is_asked: bool) -> None:
    """Pages of such a row follow each other; hints a row ahead would push it out of the cache."""
    module = driver.parse(
        f"""HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{n},{m}] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[{n}] reduce(x, zero), dimensions={{1}}, to_apply=sum
}}"""
    )
    assert ("llvm.prefetch" in fused_kernel(module.entry.root, host_target()).text) is is_asked


@pytest.mark.parametrize(("type", "zero"), [("f32", "0"), ("c64", "(0, 0)"), ("c128", "(0, 0)")])
def test_hints_lie_rows_ahead_of_what_is_loaded(type: str, zero: str) -> None:
    """Of complex numbers too, whose places count two parts each."""
    module = driver.parse(f"""HloModule m
sum {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] add(a, b) }}
ENTRY e {{
  x = {type}[4096,96] parameter(0)
  zero = {type}[] constant({zero})
  s = {type}[4096] reduce(x, zero), dimensions={{1}}, to_apply=sum
  b = {type}[4096,96] broadcast(s), dimensions={{0}}
  ROOT d = {type}[4096,96] subtract(x, b)
}}""")
    text = fused_kernel(driver.optimize(module, "fusion").entry.root, host_target()).text
    hint = r"(%\w+) = getelementptr i8, ptr (%\w+), i64 \d+\n.*call void @llvm.prefetch.*ptr \1"
    hinted = {found[2] for found in re.finditer(hint, text)}
    loaded = set(re.findall(r"load <[^>]*>, ptr (%\w+)", text))
    assert hinted
    assert hinted <= loaded
