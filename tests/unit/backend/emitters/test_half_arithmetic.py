"""f16 sums and products on whichever registers: the bits of the f32 result, rounded once."""

import numpy as np
import pytest

import hlo

TEXT = """HloModule m
ENTRY e {{
  x = f16[{n}] parameter(0)
  y = f16[{n}] parameter(1)
  s = f16[] parameter(2)
  b = f16[{n}] broadcast(s), dimensions={{}}
  c = f16[] constant(0.3333)
  d = f16[{n}] broadcast(c), dimensions={{}}
  first = f16[{n}] {opcode}(x, y)
  second = f16[{n}] {opcode}(first, b)
  third = f16[{n}] {opcode}(d, x)
  ROOT t = (f16[{n}], f16[{n}], f16[{n}]) tuple(first, second, third)
}}
"""
OPS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    nan = np.isnan(expected)
    return bool(
        np.array_equal(np.isnan(found), nan)
        and np.array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
    )


@pytest.mark.parametrize("opcode", OPS)
@pytest.mark.parametrize("n", [1, 7, 65539])
def test_arithmetic_of_any_bits(opcode: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.integers(0, 65536, n).astype(np.uint16).view(np.float16) for _ in range(2))
    with np.errstate(all="ignore"):
        y[: n // 3] = (x[: n // 3].astype(np.float32) * 1.01).astype(np.float16)
    scalar = np.array(2.7, np.float16)

    def rounded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(OPS[opcode](a.astype(np.float32), b.astype(np.float32)), np.float16)

    run = hlo.compile(hlo.parse(TEXT.format(n=n, opcode=opcode)), cache=False)
    first, second, third = run(x, y, scalar)
    with np.errstate(all="ignore"):
        assert same(first, rounded(x, y))
        assert same(second, rounded(first, scalar))
        assert same(third, rounded(np.array(0.3333, np.float16), x))
