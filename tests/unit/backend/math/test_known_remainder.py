"""Remainders by a power of two in the code: fmod bit by bit, on machines with and without FMA."""

import numpy as np
import pytest

import hlo
from hlo.machine import named
from tests.support.covering import covering

TEXT = """HloModule m
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  c = {kind}[] constant({divisor})
  y = {kind}[{n}] broadcast(c), dimensions={{}}
  ROOT z = {kind}[{n}] remainder(x, y)
}}
"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, -2.5, 1e-45, 3e38, -3e38, -1e-45]
DIVISORS = [1.0, -1.0, 2.0, 0.5, -0.25, 1024.0, 2.0**-32, 2.0**33, 2.0**100, 2.0**-100, 3.0]


@pytest.mark.parametrize(
    ("machine", "divisor", "kind"),
    covering([None, "x86-64", "x86-64-v3"], DIVISORS, ["f32", "f64"]),
)
def test_remainder_by_a_power_of_two(kind: str, divisor: float, machine: str | None) -> None:
    target = None if machine is None else named(machine)
    form = np.float32 if kind == "f32" else np.float64
    rng = np.random.default_rng(5)
    codes = rng.integers(0, np.iinfo(f"u{form().itemsize}").max, 5000, dtype=f"u{form().itemsize}")
    with np.errstate(all="ignore"):
        x = np.concatenate([
            np.array(SPECIAL).astype(form), codes.view(form),
            np.round(rng.standard_normal(3000) * 5, 1).astype(form),
            (rng.integers(-9, 9, 500) * divisor).astype(form),
        ])  # fmt: skip
        expected = np.fmod(x, form(divisor))
    text = TEXT.format(kind=kind, n=x.size, divisor=divisor)
    found = np.asarray(hlo.compile(hlo.parse(text), cache=False, machine=target)(x))
    assert np.array_equal(found, expected, equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[number]), np.signbit(expected[number]))
