"""Results that are not rounded: every code gives what rounding would."""

import numpy as np
import pytest

import hlo
from hlo.ir import dtype as dt

TEXT = """HloModule m
ENTRY e {{
  x = {t}[65536] parameter(0)
  i = s8[65536] parameter(1)
  c = {t}[] constant({c})
  b = {t}[65536] broadcast(c), dimensions={{}}
  sum = {t}[65536] add(x, x)
  product = {t}[65536] multiply(x, b)
  floor = {t}[65536] floor(x)
  ceil = {t}[65536] ceil(x)
  even = {t}[65536] round-nearest-even(x)
  away = {t}[65536] round-nearest-afz(x)
  rest = {t}[65536] remainder(x, b)
  number = {t}[65536] convert(i)
  ROOT r = ({types}) tuple(sum, product, floor, ceil, even, away, rest, number)
}}
"""


def away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


@pytest.mark.parametrize("constant", [2.0, -4.0, 0.5, 3.0])
@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_results_are_of_their_type(name: str, constant: float) -> None:
    kind = {"bf16": dt.BF16, "f16": dt.F16}[name].numpy
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    i = np.arange(1 << 16).astype(np.int8)
    types = ", ".join([f"{name}[65536]"] * 8)
    text = TEXT.format(t=name, c=constant, types=types)
    found = hlo.compile(hlo.parse(text), cache=False)(x, i)
    assert isinstance(found, tuple)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32)
        expected = [
            *(wide + wide, wide * np.float32(constant), np.floor(wide), np.ceil(wide)),
            *(np.round(wide), away(wide), np.fmod(wide, np.float32(constant)), i),
        ]
        for got, want in zip(found, (e.astype(kind) for e in expected), strict=True):
            nan = np.isnan(want)
            np.testing.assert_array_equal(np.isnan(got), nan)
            np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])
