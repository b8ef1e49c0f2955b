"""Which parameters a program gives back as multiples of themselves."""

import numpy as np
import pytest

import hlo
from hlo.analysis.moving_averages import averages
from hlo.analysis.underflow import high_powers
from hlo.driver import emit_stage
from tests.support.other_machines import assisting

STEP = """HloModule m
ENTRY e {{
  m = f32[12000] parameter(0)
  g = f32[12000] parameter(1)
  c = f32[] constant({by})
  b = f32[12000] broadcast(c), dimensions={{}}
{lines}
  ROOT t = (f32[12000], f32[12000]) tuple({first}, {second})
}}
"""
AVERAGE = """  d = f32[12000] multiply(b, m)
  n = f32[12000] add(d, g)"""
WEIGHTS = """  d = f32[12000] multiply(b, g)
  n = f32[12000] subtract(m, d)"""
SQUARE = """  d = f32[12000] multiply(m, m)
  n = f32[12000] add(d, g)"""
SUM = """  d = f32[12000] multiply(b, m)
  n = f32[12000] exponential(d)"""


@pytest.mark.parametrize(
    ("lines", "by", "expected"),
    [
        (AVERAGE, "0.9", {"m", "d", "n"}),
        (AVERAGE, "-0.5", {"m", "d", "n"}),
        (AVERAGE, "0.1", set()),
        (AVERAGE, "1.5", set()),
        (AVERAGE, "0", set()),
        (WEIGHTS, "0.01", set()),
        (SQUARE, "0.9", set()),
        (SUM, "0.9", set()),
        ("  n = f32[12000] multiply(b, m)", "0.9", set()),
        ("  d = f32[12000] multiply(b, m)\n  n = f32[12000] add(d, m)", "0.9", set()),
    ],
)
def test_multiples_that_are_results(lines: str, by: str, expected: set[str]) -> None:
    module = hlo.parse(STEP.format(lines=lines, by=by, first="n", second="g"))
    assert {i.name for i, path in averages(module.entry) if not path} == expected


def test_what_is_no_result() -> None:
    module = hlo.parse(STEP.format(lines=AVERAGE, by="0.9", first="g", second="g"))
    assert not averages(module.entry)


def test_averages_have_the_bits_of_each_op_alone() -> None:
    """In fusions, too, after many steps without input."""
    rng = np.random.default_rng(5)
    m = (rng.standard_normal(12000) * 1e-40).astype(np.float32)
    g = np.where(rng.random(12000) < 0.1, rng.standard_normal(12000), 0.0).astype(np.float32)
    module = hlo.parse(STEP.format(lines=AVERAGE, by="0.9", first="n", second="d"))
    machine = assisting()
    assert "vfpclass" in emit_stage(module, "asm", machine=machine)
    run = hlo.compile(module, cache=False, machine=machine)
    n, d = (np.asarray(a) for a in run(m, g))
    assert np.array_equal(d, m * np.float32(0.9))
    assert np.array_equal(n, d + g)


@pytest.mark.parametrize(
    "square",
    [
        "  q = f32[12000] multiply(g, g)\n  a = f32[12000] multiply(q, k)",
        "  q = f32[12000] multiply(g, k)\n  a = f32[12000] multiply(q, g)",
    ],
)
def test_squares_that_are_averaged(square: str) -> None:
    """Of gradients so small that they underflow, though no number given is subnormal."""
    lines = f"""  s = f32[] constant(0.001)
  k = f32[12000] broadcast(s), dimensions={{}}
{square}
  d = f32[12000] multiply(b, m)
  n = f32[12000] add(d, a)"""
    module = hlo.parse(STEP.format(lines=lines, by="0.999", first="n", second="a"))
    squares = {i.name for i in high_powers(module.entry)}
    assert squares & {"q", "a"}
    rng = np.random.default_rng(7)
    m = rng.random(12000).astype(np.float32)
    g = (rng.standard_normal(12000) * 10.0 ** rng.uniform(-24, -16, 12000)).astype(np.float32)
    run = hlo.compile(module, cache=False, machine=assisting())
    n, a = (np.asarray(x) for x in run(m, g))
    by = np.float32(0.001)
    assert np.array_equal(a, g * g * by if "(g, g)" in square else (g * by) * g)
    assert np.array_equal(n, m * np.float32(0.999) + a)
