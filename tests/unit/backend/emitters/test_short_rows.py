"""Reductions over short rows: several vectors are halved together, bytes are picked by shuffles."""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

PROGRAM = """HloModule m
f {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] {op}(a, b) }}
ENTRY e {{
  x = {type}[{n},{m}] parameter(0)
  z = {type}[] constant({start})
  ROOT r = {type}[{n}] reduce(x, z), dimensions={{1}}, to_apply=f
}}"""
SHAPES = [(515, 2), (515, 5), (515, 7), (130, 8), (517, 13), (259, 16), (131, 40), (70, 100)]
TYPES = {
    "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
    "s32": np.int32, "u16": np.uint16, "s8": np.int8, "c64": np.complex64,
}  # fmt: skip


def _compiled(type: str, op: str, start: str, x: np.ndarray) -> np.ndarray:
    n, m = x.shape
    module = driver.parse(PROGRAM.format(type=type, op=op, start=start, n=n, m=m))
    found = [driver.compile(module, threads=k, cache=False)(x) for k in (1, 3)]
    assert found[0].tobytes() == found[1].tobytes()
    return np.asarray(found[0])


@pytest.mark.parametrize(("n", "m", "type"), covering(SHAPES, TYPES, strength=1, several=(0,)))
def test_sums_of_short_rows(type: str, n: int, m: int) -> None:
    x = (np.random.default_rng(0).standard_normal((n, m)) * 9).astype(TYPES[type])
    found = _compiled(type, "add", "(2, 1)" if type == "c64" else "3", x)
    if np.issubdtype(x.dtype, np.integer):
        assert np.array_equal(found, (x.astype(np.int64).sum(1) + 3).astype(x.dtype))
        return
    wide = np.complex128 if type == "c64" else np.float64
    wanted = x.astype(wide).sum(1) + (2 + 1j if type == "c64" else 3)
    eps = 1e-6 if type in ("f32", "f64", "c64") else float(ml_dtypes.finfo(x.dtype).eps)
    assert (np.abs(found.astype(wide) - wanted) <= eps * (np.abs(x.astype(wide)).sum(1) + 3)).all()


@pytest.mark.parametrize(
    ("n", "m", "type"), covering(SHAPES, [t for t in TYPES if t != "c64"], strength=1, several=(0,))
)
def test_greatest_of_short_rows(type: str, n: int, m: int) -> None:
    x = (np.random.default_rng(1).standard_normal((n, m)) * 9).astype(TYPES[type])
    if not np.issubdtype(x.dtype, np.integer):
        x[::5, -1] = np.nan
        x[1::5] = -0.0
        x[2::5] = -0.0
        x[2::5, 1] = 0.0
    found = _compiled(type, "maximum", "-0.0" if type[0] in "fb" else "0", x)
    wanted = np.maximum(x.astype(np.float64).max(1), 0).astype(x.dtype)
    assert np.array_equal(found.astype(np.float64), wanted.astype(np.float64), equal_nan=True)
    if not np.issubdtype(x.dtype, np.integer):
        assert np.signbit(found[1::5].astype(np.float64)).all()
        assert not np.signbit(found[2::5].astype(np.float64)).any()


@pytest.mark.parametrize(("n", "m"), SHAPES)
@pytest.mark.parametrize(("op", "start"), [("or", "false"), ("and", "true"), ("xor", "false")])
def test_truths_of_short_rows(op: str, start: str, n: int, m: int) -> None:
    x = np.random.default_rng(2).random((n, m)) < (0.5 if op == "xor" else 1 / m)
    x = ~x if op == "and" else x
    wanted = {"or": x.any(1), "and": x.all(1), "xor": x.sum(1) % 2 == 1}[op]
    assert np.array_equal(_compiled("pred", op, start, x), wanted)


ENDED = """HloModule m
f {{ a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT c = {type}[] add(a, b) }}
ENTRY e {{
  x = {type}[{rows},{n},{depth}] parameter(0)
  y = {type}[{rows},{n}] parameter(1)
  is_sum = pred[{rows},{n}] parameter(2)
  w = {type}[{rows},{n}] parameter(3)
  z = {type}[] constant(1)
  sums = {type}[{rows},{n}] reduce(x, z), dimensions={{2}}, to_apply=f
  chosen = {type}[{rows},{n}] select(is_sum, sums, y)
  ROOT r = {type}[{rows},{n}] subtract(chosen, w)
}}"""


@pytest.mark.parametrize("machine", that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize("depth", [0, 5, 70, 400])  # none, written out, a loop, in blocks
def test_rows_of_sums_that_end_in_shorter_vectors(depth: int, machine: str) -> None:
    """Narrow arrays on a machine without masks for them: 4 and 2 lanes side by side."""
    rng = np.random.default_rng(depth)
    for type, rows, n in (("bf16", 6, 6), ("s8", 1, 13), ("f16", 6, 5), ("s8", 6, 5)):
        module = driver.parse(ENDED.format(type=type, rows=rows, n=n, depth=depth))
        shapes = (rows, n, depth), (rows, n), (rows, n)
        x, y, w = (rng.integers(-1, 2, shape).astype(TYPES[type]) for shape in shapes)
        is_sum = rng.random((rows, n)) < 0.5
        found = driver.compile(module, machine=machine, cache=False)(x, y, is_sum, w)
        wanted = driver.evaluate(module, x, y, is_sum, w)
        np.testing.assert_array_equal(found, wanted)
