"""bf16 divided by one bf16 per row: the bits of the rounded quotient, for all divisors."""

import ml_dtypes
import numpy as np
import pytest

import hlo

TEXT = """HloModule m
ENTRY e {
  x = bf16[64,128] parameter(0)
  y = bf16[64] parameter(1)
  b = bf16[64,128] broadcast(y), dimensions={0}
  ROOT q = bf16[64,128] divide(x, b)
}
"""


@pytest.fixture(scope="module")
def divide() -> object:
    return hlo.compile(hlo.parse(TEXT), cache=False)


@pytest.mark.parametrize("part", range(16))
def test_every_divisor(divide: object, part: int) -> None:
    rng = np.random.default_rng(part)
    for block in range(64):
        start = part * 4096 + block * 64
        y = np.arange(start, start + 64, dtype=np.uint16).view(ml_dtypes.bfloat16)
        bits = rng.integers(0, 65536, (64, 128)).astype(np.uint16)
        bits[:, :8] = np.uint16([0, 0x8000, 0x7F80, 0xFF80, 1, 0x7F7F, 0x0080, 0x3F80])
        x = bits.view(ml_dtypes.bfloat16)
        with np.errstate(all="ignore"):
            exact = x.astype(np.float64) / y.astype(np.float64)[:, None]
            expected = exact.astype(np.float64).astype(ml_dtypes.bfloat16)
        found = divide(x, y)  # type: ignore[operator]  # a compiled function
        nan = np.isnan(expected)
        assert np.array_equal(np.isnan(found), nan)
        assert np.array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
