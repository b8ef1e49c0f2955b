"""Powers by and of a number in the code: within the op's budget, C99's cases, every tail alike."""

import numpy as np
import pytest

import hlo
from hlo.driver import emit_stage, optimize
from tests.support.covering import covering

TEXT = """HloModule m
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  c = {kind}[] constant({exponent})
  y = {kind}[{n}] broadcast(c), dimensions={{}}
  ROOT z = {kind}[{n}] power(x, y)
}}
"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -2.0, 1e-45, 3e38, -3e38, -1e-45]
EXPONENTS = [0.5, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, -3.0, -3.5, 4.0, -4.0]


def power(kind: str, x: np.ndarray, exponent: float) -> np.ndarray:
    text = TEXT.format(kind=kind, n=x.size, exponent=exponent)
    return np.asarray(hlo.compile(hlo.parse(text), cache=False)(x))


@pytest.mark.parametrize(("exponent", "kind"), covering(EXPONENTS, ["f32", "f64"], strength=1))
def test_power_by_a_multiple_of_a_half(kind: str, exponent: float) -> None:
    form, wide = (np.float32, np.float64) if kind == "f32" else (np.float64, np.longdouble)
    rng = np.random.default_rng(5)
    codes = rng.integers(0, np.iinfo(f"u{form().itemsize}").max, 5000, dtype=f"u{form().itemsize}")
    with np.errstate(all="ignore"):
        x = np.concatenate([
            np.array(SPECIAL).astype(form), codes.view(form),
            np.exp(rng.standard_normal(5000) * 5).astype(form),
        ])  # fmt: skip
        exponents = np.full(x.size, exponent, wide)  # an array: NumPy takes roots for a scalar
        exact = np.power(x.astype(wide), exponents)
        expected = exact.astype(form)
        found = power(kind, x, exponent)
        unit = np.spacing(np.abs(expected)).astype(wide)
        error = np.abs(found.astype(wide) - exact) / unit
    finite = np.isfinite(expected) & np.isfinite(found)
    assert error[finite].max() < (0.51 if kind == "f32" else 0.8)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(found[number]), np.signbit(expected[number]))
    for count in (1, 3, 17):
        assert np.array_equal(power(kind, x[12 : 12 + count], exponent), found[12 : 12 + count],
                              equal_nan=True)  # fmt: skip


BASES = [2.0, 0.5, 10.0, 10000.0, 0.9, 1.0, 1.0000001, 1e-30, 3e38, 1e-40]


def text_of_base(kind: str, n: int, base: float) -> str:
    return TEXT.format(kind=kind, n=n, exponent=base).replace("power(x, y)", "power(y, x)")


def power_of(kind: str, base: float, y: np.ndarray) -> np.ndarray:
    return np.asarray(hlo.compile(hlo.parse(text_of_base(kind, y.size, base)), cache=False)(y))


@pytest.mark.parametrize(("base", "kind"), covering(BASES, ["f32", "f64"], strength=1))
def test_power_of_a_positive_number(kind: str, base: float) -> None:
    form, wide = (np.float32, np.float64) if kind == "f32" else (np.float64, np.longdouble)
    rng = np.random.default_rng(6)
    with np.errstate(all="ignore"):
        y = np.concatenate([
            np.array([*SPECIAL, -149.0, 128.0, 1e300, -1e300]).astype(form),
            (rng.standard_normal(5000) * 30).astype(form), np.arange(-400, 400, 7).astype(form),
        ])  # fmt: skip
        exact = np.power(np.full(y.size, form(base), wide), y.astype(wide))
        expected = exact.astype(form)
        found = power_of(kind, base, y)
        error = np.abs(found.astype(wide) - exact) / np.spacing(np.abs(expected)).astype(wide)
    finite = np.isfinite(expected) & np.isfinite(found)
    assert error[finite].max() < (0.51 if kind == "f32" else 0.8)
    assert np.array_equal(found[~finite], expected[~finite], equal_nan=True)
    for count in (1, 3, 17):
        part = slice(16, 16 + count)
        assert np.array_equal(power_of(kind, base, y[part]), found[part], equal_nan=True)


def test_power_of_a_number_divides_nothing() -> None:
    """The logarithm is a number in the code: neither its division nor a call is left."""
    code = emit_stage(optimize(hlo.parse(text_of_base("f32", 64, 3.0))), "llvm")
    assert "fdiv" not in code
    assert "hlo.pow" not in code
