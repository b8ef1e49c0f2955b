"""Arrays shorter than a vector are worked on in short vectors without masks."""

import numpy as np
import pytest

import hlo
from hlo import driver
from tests.support.covering import covering

LOOP = """HloModule m
body {{
  s = (s32[], {t}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {t}[{n}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  half = {t}[] constant(0.5)
  halves = {t}[{n}] broadcast(half), dimensions={{}}
  y = {t}[{n}] multiply(x, halves)
  z = {t}[{n}] add(y, halves)
  j = s32[] add(i, one)
  ROOT r = (s32[], {t}[{n}]) tuple(j, z)
}}
condition {{
  s = (s32[], {t}[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = s32[] constant(100)
  ROOT p = pred[] compare(i, c), direction=LT
}}
ENTRY e {{
  x = {t}[{n}] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], {t}[{n}]) tuple(zero, x)
  w = (s32[], {t}[{n}]) while(s), condition=condition, body=body
  ROOT r = {t}[{n}] get-tuple-element(w), index=1
}}
"""


@pytest.mark.parametrize(
    ("n", "element"),
    covering(
        [1, 2, 3, 5, 7, 8, 12, 13, 15, 16, 17, 24, 31, 33, 63, 65],
        ["f32", "f64", "bf16", "f16"],
        strength=1,
    ),
)
def test_short_state_is_the_interpreters(n: int, element: str) -> None:
    module = hlo.parse(LOOP.format(t=element, n=n))
    (x,) = (np.arange(n) / 3 - 1,)
    argument = x.astype(module.entry.parameters[0].shape.dtype.numpy)
    expected = np.asarray(hlo.evaluate(module, argument))
    assert np.array_equal(np.asarray(hlo.compile(module, cache=False)(argument)), expected)


@pytest.mark.parametrize("n", [2, 3, 6, 8, 12, 24])
def test_no_mask_stands_between_iterations(n: int) -> None:
    module = driver.optimize(hlo.parse(LOOP.format(t="f32", n=n)), "default")
    assert "llvm.masked" not in driver.emit_stage(module, "llvm")


def test_a_sum_of_few_elements_takes_a_short_vector() -> None:
    text = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add
}
"""
    module = hlo.parse(text)
    assert "llvm.masked" not in driver.emit_stage(driver.optimize(module, "default"), "llvm")
    x = np.arange(8, dtype=np.float32) / 7
    assert np.array_equal(hlo.compile(module, cache=False)(x), np.sum(x, dtype=np.float32))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("element", ["f32", "f64", "bf16", "s32"])
def test_folds_over_few_columns_are_the_interpreters(n: int, element: str) -> None:
    text = f"""HloModule m
add {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT c = {element}[] add(a, b) }}
ENTRY e {{
  x = {element}[5,37,{n}] parameter(0)
  y = {element}[5,37] parameter(1)
  z = {element}[] constant(0)
  ys = {element}[5,37,{n}] broadcast(y), dimensions={{0,1}}
  q = {element}[5,37,{n}] divide(x, ys)
  ROOT r = {element}[5,{n}] reduce(q, z), dimensions={{1}}, to_apply=add
}}
"""
    module = hlo.parse(text)
    kind = module.entry.parameters[0].shape.dtype.numpy
    x = (np.arange(5 * 37 * n).reshape(5, 37, n) % 11 * 4).astype(kind)
    y = (2 ** (np.arange(5 * 37).reshape(5, 37) % 3)).astype(kind)
    expected = np.asarray(hlo.evaluate(module, x, y)).astype(np.float64)
    found = np.asarray(hlo.compile(module, cache=False)(x, y)).astype(np.float64)
    assert np.allclose(found, expected, rtol=1e-2 if element == "bf16" else 1e-6)
