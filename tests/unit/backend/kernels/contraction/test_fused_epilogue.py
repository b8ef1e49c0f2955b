"""Output fusions: compiled beside the reference, for every form that a contraction takes."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.by_threads import for_threads
from tests.support.covering import covering

BODY = """HloModule finished
ENTRY e {{
  x = {t}[{m},{k}] parameter(0)
  w = {t}[{k},{n}] parameter(1)
  b = {t}[{n}] parameter(2)
  r = {t}[{m},{n}] parameter(3)
  d = {t}[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  bb = {t}[{m},{n}] broadcast(b), dimensions={{1}}
  a = {t}[{m},{n}] add(d, bb)
  p = pred[{m},{n}] compare(a, r), direction=GT
  s = {t}[{m},{n}] select(p, a, r)
  ROOT c = {out}[{m},{n}] convert(s)
}}
"""

BATCHED = """HloModule finished
ENTRY e {
  x = f32[3,20,5,16] parameter(0)
  w = f32[3,5,16,33] parameter(1)
  r = f32[3,5,20,33] parameter(2)
  b = f32[3,5] parameter(3)
  d = f32[3,5,20,33] dot(x, w), lhs_batch_dims={0,2}, rhs_batch_dims={0,1},
    lhs_contracting_dims={3}, rhs_contracting_dims={2}
  bb = f32[3,5,20,33] broadcast(b), dimensions={0,1}
  m = f32[3,5,20,33] multiply(d, bb)
  f = f32[15,660] reshape(m)
  rr = f32[15,660] reshape(r)
  ROOT s = f32[15,660] subtract(f, rr)
}
"""

CONVOLUTION = """HloModule finished
ENTRY e {
  x = f32[2,9,9,6] parameter(0)
  w = f32[3,3,6,20] parameter(1)
  b = f32[20] parameter(2)
  d = f32[2,7,7,20] convolution(x, w), window={size=3x3}, dim_labels=b01f_01io->b01f
  bb = f32[2,7,7,20] broadcast(b), dimensions={3}
  a = f32[2,7,7,20] add(d, bb)
  ROOT t = f32[2,7,7,20] tanh(a)
}
"""

TWO_USES = """HloModule finished
ENTRY e {
  x = f32[24,24] parameter(0)
  d = f32[24,24] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[24,24] multiply(d, d)
  ROOT t = f32[24,24] add(s, x)
}
"""


def assert_alike(text: str, tolerance: float) -> None:
    module = driver.parse(text)
    assert "kind=kOutput" in driver.to_text(driver.optimize(module))
    arguments = made_up_inputs(module, "normal", 0)
    expected = np.asarray(driver.evaluate(module, *arguments)).astype(np.float64)
    for threads in (1, 2):
        got = for_threads(module, threads=threads)(*arguments)
        got = np.asarray(got).astype(np.float64)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("m", "n", "k", "type", "out"),
    covering(
        [
            (40, 50, 60),
            (1, 300, 2000),
            (300, 1, 40),
            (5, 17, 5000),
            (33, 90, 192),
            (7, 4, 13),
        ],
        [("f32", "bf16"), ("bf16", "f32"), ("f64", "f64")],
        strength=1,
        several=(0, 1),
    ),
)
def test_finished_dot(m: int, n: int, k: int, type: str, out: str) -> None:
    tolerance = 0.05 if "bf16" in (type, out) else 1e-9
    assert_alike(BODY.format(m=m, n=n, k=k, t=type, out=out), tolerance)


@pytest.mark.parametrize("text", [BATCHED, CONVOLUTION, TWO_USES])
def test_finished_contraction(text: str) -> None:
    assert_alike(text, 2e-5)


def test_what_moves_elements_is_left_outside() -> None:
    text = TWO_USES.replace("multiply(d, d)", "reverse(d), dimensions={1}")
    assert "kind=kOutput" not in driver.to_text(driver.optimize(driver.parse(text)))


@pytest.mark.parametrize(("m", "k", "n"), [(7, 101, 16), (1, 64, 40), (4, 70000, 4)])
def test_functions_of_the_module_come_with_the_kernel(m: int, k: int, n: int) -> None:
    """The product of a sine, in the forms of a product, of a vector and of partial sums."""
    module = driver.parse(f"""ENTRY e {{
      x = f32[{m},{k}] parameter(0)
      w = f32[{k},{n}] parameter(1)
      d = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
      ROOT s = f32[{m},{n}] sine(d)
    }}""")
    rng = np.random.default_rng(7)
    x, w = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (k, n))
    found = driver.compile(module, threads=2, cache=False)(x.astype("f"), w.astype("f"))
    np.testing.assert_allclose(np.asarray(found), np.sin(x @ w), rtol=1e-5, atol=1e-6)
