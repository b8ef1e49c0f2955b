"""Rows side by side: norms whose reductions end in waits take several rows at a time."""

import numpy as np
import pytest

from hlo import driver
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.ir.instruction import Instruction

PROGRAM = """HloModule m
sum {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  p = {type}[{n},{m}] parameter(0)
  x = f32[{n},{m}] convert(p)
  zero = f32[] constant(0)
  share = f32[] constant({share})
  shares = f32[{n}] broadcast(share), dimensions={{}}
  s = f32[{n}] reduce(x, zero), dimensions={{1}}, to_apply=sum
  mean = f32[{n}] multiply(s, shares)
  means = f32[{n},{m}] broadcast(mean), dimensions={{0}}
  d = f32[{n},{m}] subtract(x, means)
  q = f32[{n},{m}] multiply(d, d)
  sq = f32[{n}] reduce(q, zero), dimensions={{1}}, to_apply=sum
  var = f32[{n}] multiply(sq, shares)
  r = f32[{n}] rsqrt(var)
  rs = f32[{n},{m}] broadcast(r), dimensions={{0}}
  y = f32[{n},{m}] multiply(d, rs)
  ex = f32[{n},{m}] exponential(y)
  total = f32[{n}] reduce(ex, zero), dimensions={{1}}, to_apply=sum
  totals = f32[{n},{m}] broadcast(total), dimensions={{0}}
  o = f32[{n},{m}] divide(ex, totals)
  out = {type}[{n},{m}] convert(o)
  ROOT t = ({type}[{n},{m}], f32[{n}]) tuple(out, mean)
}}"""
SHAPES = [(1021, 40), (1024, 65), (513, 64), (259, 200), (131, 1000), (64, 40), (3, 70)]


def normed(n: int, m: int, type: str = "f32") -> str:
    return PROGRAM.format(n=n, m=m, type=type, share=1 / m)


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize("type", ["f32", "bf16"])
def test_rows_side_by_side_are_the_reference(n: int, m: int, type: str) -> None:
    module = driver.parse(normed(n, m, type))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    x = np.random.default_rng(0).standard_normal((n, m)).astype(dtype)
    found = [driver.compile(module, threads=k, cache=False)(x) for k in (1, 2, 3)]
    wanted = driver.evaluate(module, x)
    for got in found:
        assert [a.tobytes() for a in got] == [a.tobytes() for a in found[0]]
    for a, b in zip(found[0], wanted, strict=True):
        rtol = 1e-5 if a.dtype == np.float32 else 1e-2
        assert np.allclose(a.astype(np.float32), b.astype(np.float32), rtol=rtol, atol=1e-6)


def _fused(text: str) -> Instruction:
    module = driver.optimize(driver.parse(text), "fusion")
    return next(i for i in module.entry.instructions if i.opcode == "fusion")


def test_rows_side_by_side_are_fewer_units() -> None:
    assert fused_kernel(_fused(normed(1024, 64)), host_target()).units <= 1024 // 2


def test_rows_stay_alone_where_they_are_long_or_few() -> None:
    assert fused_kernel(_fused(normed(128, 20000)), host_target()).units == 128
    assert fused_kernel(_fused(normed(70, 64)), host_target()).units == 70


def test_a_row_computed_again_past_the_end_may_lie_over_its_operand() -> None:
    text = normed(1021, 72).replace(
        "HloModule m", "HloModule m, input_output_alias={ {0}: (0, {}) }"
    )
    module = driver.parse(text)
    x = np.random.default_rng(2).standard_normal((1021, 72)).astype(np.float32)
    got = driver.compile(module, threads=1, cache=False)(x.copy())
    assert np.allclose(got[0], driver.evaluate(module, x)[0], rtol=1e-5)


def test_rows_of_more_dimensions_keep_what_two_stages_read() -> None:
    flat = normed(4096, 64)
    deep = flat.replace("[4096,64]", "[8,512,64]").replace("[4096]", "[8,512]")
    deep = deep.replace("dimensions={1}", "dimensions={2}").replace("={0}", "={0,1}")
    texts = [fused_kernel(_fused(text), host_target()).text for text in (flat, deep)]
    assert len({text.count(" = fmul ") for text in texts}) == 1
