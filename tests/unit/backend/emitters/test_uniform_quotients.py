"""Integers divided by one integer per row or per column, or by one number: exact, for all signs."""

import re

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.ir.module import Module
from hlo.machine import named
from tests.support.machines_here import that_run_here

TYPES = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
         "u32": np.uint32}  # fmt: skip
ROWS, COLUMNS = 256, 259
TEXT = """HloModule m
ENTRY e {{
  x = {t}[{rows},{columns}] parameter(0)
  y = {t}[{n}] parameter(1)
  b = {t}[{rows},{columns}] broadcast(y), dimensions={{{d}}}
  q = {t}[{rows},{columns}] divide(x, b)
  r = {t}[{rows},{columns}] remainder(x, b)
  ROOT both = ({t}[{rows},{columns}], {t}[{rows},{columns}]) tuple(q, r)
}}"""


def module(dtype: str, along: int, columns: int = COLUMNS) -> Module:
    n = (ROWS, columns)[along]
    return hlo.parse(TEXT.format(t=dtype, n=n, d=along, rows=ROWS, columns=columns))


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Of all sizes, both signs, with the ends of the type and what lies beside multiples."""
    rng, kind = np.random.default_rng(seed), TYPES[dtype]
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    wide = rng.integers(low, high, shape, kind, endpoint=True) >> rng.integers(
        0, np.iinfo(kind).bits, shape
    ).astype(kind)
    ends = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3, -1 if low else 7, high // 2], kind)
    wide.reshape(-1)[: ends.size] = ends
    return wide.astype(kind)


@pytest.mark.parametrize("machine", that_run_here("x86-64", "x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("dtype", TYPES)
def test_values(dtype: str, machine: str) -> None:
    for along in (0, 1):
        given = module(dtype, along)
        compiled = hlo.compile(given, machine=machine)
        for seed in range(4):
            y = numbers(dtype, ((ROWS, COLUMNS)[along],), seed)
            x = numbers(dtype, (ROWS, COLUMNS), seed + 9)
            spread = y[:, None] if along == 0 else y[None]
            x[20:60] = (x[20:60] // 4) * np.broadcast_to(spread, x.shape)[20:60]
            x[60:100] = x[20:60] - 1
            for made, expected in zip(compiled(x, y), hlo.evaluate(given, x, y), strict=True):
                np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_every_pair_of_bytes(dtype: str) -> None:
    given = module(dtype, 0)
    y = np.arange(ROWS).astype(TYPES[dtype])
    x = np.broadcast_to(np.arange(COLUMNS), (ROWS, COLUMNS)).astype(TYPES[dtype])
    for made, expected in zip(hlo.compile(given)(x, y), hlo.evaluate(given, x, y), strict=True):
        np.testing.assert_array_equal(made, expected)


def test_one_number_divides_once() -> None:
    """The division by a row's own number stands outside of the loop over the row's vectors."""
    text = "".join(map(str, Compilation(module("s32", 0, 256), machine=named("x86-64-v3")).ir))
    assert re.findall(r"fdiv double", text)
    assert not re.findall(r"fdiv <\d+ x double>", text)
