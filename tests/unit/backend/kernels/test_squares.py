"""Large transposes: blocks of squares, whole lines past the cache, alike for all threads."""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering

DTYPES = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "u8": np.uint8,
    "f64": np.float64,
    "pred": np.bool_,
}


def braces(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def transpose(name: str, dims: tuple[int, ...], permutation: tuple[int, ...]) -> str:
    result = tuple(dims[d] for d in permutation)
    return f"""HloModule t
ENTRY e {{
  x = {name}[{braces(dims)}] parameter(0)
  ROOT t = {name}[{braces(result)}] transpose(x), dimensions={{{braces(permutation)}}}
}}"""


def numbers(dims: tuple[int, ...], name: str, *, offset: int = 0) -> np.ndarray:
    """Distinct enough values, `offset` elements away from an aligned address."""
    size = int(np.prod(dims))
    whole = np.empty(size + offset, DTYPES[name])
    whole[offset:] = (np.arange(size) * 37 % 251).astype(DTYPES[name])
    return whole[offset:].reshape(dims)


@pytest.mark.parametrize(
    ("name", "dims", "permutation"),
    covering(
        DTYPES,
        [
            ((1040, 2112), (1, 0)),  # whole lines, the last block is cut short
            ((1001, 2100), (1, 0)),  # rows that are no whole lines
            ((128, 33, 520), (2, 1, 0)),
            ((16, 131072), (1, 0)),
            ((131072, 16), (1, 0)),
            ((4, 130, 64, 72), (3, 0, 2, 1)),
        ],
        strength=1,
        several=(1,),
    ),
)
def test_large_transposes_move_every_element(
    name: str, dims: tuple[int, ...], permutation: tuple[int, ...]
) -> None:
    x = numbers(dims, name)
    executable = driver.compile(
        driver.parse(transpose(name, dims, permutation)), threads=2, cache=False
    )
    assert np.array_equal(executable(x), x.transpose(permutation))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_large_transpose_fused_with_arithmetic_for_all_threads(threads: int) -> None:
    text = """HloModule t
ENTRY e {
  x = f32[700,1024] parameter(0)
  y = f32[1024,700] parameter(1)
  t = f32[1024,700] transpose(x), dimensions={1,0}
  s = f32[1024,700] add(t, y)
  n = f32[1024,700] negate(t)
  ROOT r = (f32[1024,700], f32[1024,700]) tuple(s, n)
}"""
    x, y = numbers((700, 1024), "f32", offset=1), numbers((1024, 700), "f32", offset=3)
    executable = driver.compile(driver.parse(text), threads=threads, cache=False)
    total, negative = executable(x, y)
    assert np.array_equal(total, x.T + y)
    assert np.array_equal(negative, -x.T)


@pytest.mark.parametrize(("part", "whole"), [("f32", "c64"), ("f64", "c128")])
def test_large_transposes_of_parts_of_complex_numbers(part: str, whole: str) -> None:
    text = f"""HloModule t
ENTRY e {{
  x = {part}[704,1024] parameter(0)
  y = {part}[704,1024] parameter(1)
  z = {whole}[704,1024] complex(x, y)
  ROOT t = {whole}[1024,704] transpose(z), dimensions={{1,0}}
}}"""
    assert "nontemporal" in driver.emit_stage(driver.optimize(driver.parse(text)), "llvm")
    x, y = numbers((704, 1024), part), numbers((704, 1024), part, offset=3)
    executable = driver.compile(driver.parse(text), threads=2, cache=False)
    assert np.array_equal(executable(x, y), (x + 1j * y).T)
    assert np.array_equal(executable.run_guarded(x, y), (x + 1j * y).T)


def test_a_large_transpose_bypasses_the_cache_and_a_small_one_does_not() -> None:
    def text(n: int) -> str:
        module = driver.parse(transpose("f32", (n, n), (1, 0)))
        return driver.emit_stage(module, "llvm")

    assert "nontemporal" in text(1024)
    assert "nontemporal" not in text(256)
