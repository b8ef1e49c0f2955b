"""How far running sums are from the exact ones, and what infinities and NaN do to them."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.dtype import DTYPES

MOST_UNITS = 4  # of eps * (the sum of magnitudes so far), whatever the length
MOST_OF_EQUALS = 8  # equal elements are rounded in the same direction all along a block
SHAPES = [((1000,), 0), ((5000,), 0), ((100_000,), 0), ((3, 30_000), 1), ((30_000, 5), 0)]


def running(shape: tuple[int, ...], dim: int, *, reverse: bool = False, dtype: str = "f32") -> str:
    length, array = shape[dim], f"{dtype}[{','.join(map(str, shape))}]"
    size = "x".join(str(length) if d == dim else "1" for d in range(len(shape)))
    edge = f"0_{length - 1}" if reverse else f"{length - 1}_0"
    pad = "x".join(edge if d == dim else "0_0" for d in range(len(shape)))
    zero = "(-0.0, -0.0)" if dtype[0] == "c" else "-0.0"
    return f"""HloModule m
f {{ a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT r = {dtype}[] add(a, b) }}
ENTRY e {{ x = {array} parameter(0)
  z = {dtype}[] constant({zero})
  ROOT r = {array} reduce-window(x, z), window={{size={size} pad={pad}}}, to_apply=f }}"""


def made(text: str, x: np.ndarray) -> np.ndarray:
    return np.asarray(driver.compile(driver.parse(text))(x))


def summed(x: np.ndarray, dim: int, *, reverse: bool) -> np.ndarray:
    if reverse:
        return np.flip(np.cumsum(np.flip(x, dim), dim), dim)
    return np.cumsum(x, dim)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["normal", "positive", "constant"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_errors_do_not_grow_with_the_length(
    shape: tuple[int, ...], dim: int, kind: str, *, reverse: bool
) -> None:
    x = np.random.default_rng(1).standard_normal(shape)
    if kind != "normal":
        x = abs(x) if kind == "positive" else np.full(shape, 0.1)
    x = x.astype(np.float32)
    found = made(running(shape, dim, reverse=reverse), x)
    wide = x.astype(float)
    exact, magnitudes = (summed(v, dim, reverse=reverse) for v in (wide, abs(wide)))
    worst = (abs(found - exact) / (2.0**-23 * magnitudes)).max()
    assert worst <= (MOST_OF_EQUALS if kind == "constant" else MOST_UNITS)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "digits"), [("bf16", 8), ("f16", 11)])
@pytest.mark.parametrize(("shape", "dim"), [((333, 128), 0), ((40, 500), 1), ((30, 17, 5), 0)])
def test_sums_of_narrow_floats_are_rounded_once(
    shape: tuple[int, ...], dim: int, dtype: str, digits: int, *, reverse: bool
) -> None:
    kind = DTYPES[dtype].numpy
    x = np.random.default_rng(2).standard_normal(shape).astype(kind)
    found = made(running(shape, dim, reverse=reverse, dtype=dtype), x).astype(float)
    wide = x.astype(float)
    exact, magnitudes = (summed(v, dim, reverse=reverse) for v in (wide, abs(wide)))
    allowed = 2.0**-digits * abs(exact) + MOST_UNITS * 2.0**-23 * magnitudes
    assert (abs(found - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES[1:])
def test_infinities_and_nan_stay_as_they_are(shape: tuple[int, ...], dim: int, dtype: str) -> None:
    x = np.ones(shape, np.complex64 if dtype == "c64" else np.float32)
    along = np.moveaxis(x, dim, -1)
    along[..., 700] = np.inf
    along[..., 3000] = -np.inf
    with np.errstate(invalid="ignore"):
        want = np.cumsum(x.real, dim)
    np.testing.assert_array_equal(made(running(shape, dim, dtype=dtype), x).real, want)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_sums_of_negative_zeros_are_negative(shape: tuple[int, ...], dim: int) -> None:
    found = made(running(shape, dim), np.full(shape, -0.0, np.float32))
    assert np.signbit(found).all()
