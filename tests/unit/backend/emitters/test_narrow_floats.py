"""All codes of all types narrower than f32, each op: the correctly rounded code, on every engine.

Here: unary ops, conversions to every type, moves and pairs of ops of all codes, and binary ops of
all pairs of codes up to 8 bits, on the engine that shows most. All of it on every engine, three
minutes: pytest -m slow tests/unit/backend/emitters/test_narrow_floats.py
"""

import numpy as np
import pytest

from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from tests.support.narrow import (
    BINARY_OPS,
    ENGINES,
    NARROW_FLOATS,
    NARROW_INTEGERS,
    RUNS,
    SHORT_FLOATS,
    UNARY_OPS,
    chain_faults,
    conversion_faults,
    every_code,
    every_pair,
    faults,
    movement_faults,
    of_codes,
    rounded_codes,
)

NARROW = [*NARROW_FLOATS, *NARROW_INTEGERS]
SHORT = [t for t in NARROW if t.bits <= 8]


def unary_faults(engine: str, dtype: DType) -> list[str]:
    return faults(engine, UNARY_OPS, [of_codes(every_code(dtype), dtype)], dtype)


def binary_faults(engine: str, dtype: DType) -> list[str]:
    return faults(engine, BINARY_OPS, every_pair(dtype), dtype)


def test_the_rule_itself() -> None:
    """Halves to even, saturation, overflow to infinity or NaN, zeros without a sign."""
    x = np.array([464.0, 465.0, -np.inf, 0.0, -0.0, np.nan, 2.0**-10, 1.0625])
    assert rounded_codes(x, dt.F8E4M3FN).tolist() == [126, 127, 127, 0, 128, 127, 0, 56]
    assert rounded_codes(x, dt.F8E5M2FNUZ).tolist()[2:6] == [128, 0, 0, 128]
    assert rounded_codes(x, dt.F4E2M1FN).tolist() == [7, 7, 15, 0, 8, 8, 0, 2]
    assert rounded_codes(np.array([1.5, 1.4, 0, -1, 3e38]), dt.F8E8M0FNU).tolist() == [
        128, 127, 255, 255, 255,
    ]  # fmt: skip
    assert rounded_codes(np.array([61439.0, 61440.0]), dt.F8E5M2).tolist() == [0x7B, 0x7C]


@pytest.mark.parametrize("dtype", NARROW_FLOATS, ids=str)
@pytest.mark.parametrize("engine", ["compiled", "sse", "interpreted"])
def test_functions_of_every_code(engine: str, dtype: DType) -> None:
    assert unary_faults(engine, dtype) == []


@pytest.mark.parametrize("dtype", SHORT_FLOATS, ids=str)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_every_pair_of_codes(engine: str, dtype: DType) -> None:
    assert binary_faults(engine, dtype) == []


@pytest.mark.parametrize("source", NARROW, ids=str)
def test_conversions_of_every_code(source: DType) -> None:
    assert conversion_faults("sse", source) == []
    assert source.bits > 8 or conversion_faults("interpreted", source) == []


@pytest.mark.parametrize("dtype", NARROW_FLOATS, ids=str)
@pytest.mark.parametrize("engine", RUNS)
def test_moves_keep_every_bit(engine: str, dtype: DType) -> None:
    assert movement_faults(engine, dtype) == []


@pytest.mark.parametrize("dtype", NARROW_FLOATS, ids=str)
@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_two_ops_after_each_other(engine: str, dtype: DType) -> None:
    assert chain_faults(engine, dtype) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_everything_on_every_engine(engine: str, dtype: DType) -> None:
    found = conversion_faults(engine, dtype)
    if dtype.is_float:
        found += unary_faults(engine, dtype)
        found += binary_faults(engine, dtype) if dtype in SHORT else []
        found += chain_faults(engine, dtype) if engine in RUNS else []
    assert found == []
