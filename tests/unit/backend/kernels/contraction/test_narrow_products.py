"""Many rows along depth by few columns: a row in each lane, results put together in registers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.driver import emit_stage
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

TEXT = """HloModule m
ENTRY e {{
  a = {dtype}[{batch}{m},{k}] parameter(0)
  b = {dtype}[{batch}{rhs}] parameter(1)
  {root}d = {out}[{batch}{m},{n}] dot(a, b), {batches}lhs_contracting_dims={{{depth}}},
    rhs_contracting_dims={{{across}}}
{tail}}}
"""
SCALARS = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s32": np.int32,
    "s8": np.int8,
}
MACHINES = that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4")


def text_of(
    dtype: str, m: int, n: int, k: int, *, out: str = "", tail: str = "", batch: int = 0,
    is_turned: bool = False,
) -> str:  # fmt: skip
    first = int(batch > 0)
    return TEXT.format(
        dtype=dtype, m=m, n=n, k=k, out=out or dtype, tail=tail,
        rhs=f"{n},{k}" if is_turned else f"{k},{n}",
        root="" if tail else "ROOT ",
        batch=f"{batch}," if batch else "",
        batches="lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else "",
        depth=1 + first, across=first + is_turned,
    )  # fmt: skip


def whole(numbers: np.random.Generator, dtype: str, *sizes: int) -> np.ndarray:
    """Integers, so that the order of additions is none of its business."""
    return numbers.integers(-3, 4, sizes).astype(SCALARS[dtype])


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "batch", "is_turned", "machine"),
    covering(
        ["f32", "f16", "bf16", "s32", "s8"],
        [256, 304, 1000, 1021],  # rows that end with a panel, with a vector, within one
        [2, 3, 4, 5, 6, 7, 8],
        [2, 3, 4, 7, 12, 13, 16, 31],
        [0, 3],
        [False, True],
        MACHINES,
    ),
)
def test_sums_are_exact_and_nothing_is_written_beside_them(
    dtype: str, m: int, n: int, k: int, batch: int, machine: str, *, is_turned: bool
) -> None:
    numbers = np.random.default_rng(0)
    out = "s32" if dtype == "s8" else dtype
    module = hlo.parse(text_of(dtype, m, n, k, out=out, batch=batch, is_turned=is_turned))
    some = (batch,) if batch else ()
    a, b = whole(numbers, dtype, *some, m, k), whole(numbers, dtype, *some, k, n)
    given = np.ascontiguousarray(np.swapaxes(b, -1, -2)) if is_turned else b
    expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(SCALARS[out])
    found = [
        hlo.compile(module, threads=threads, cache=False, machine=named(machine))
        .run_guarded(a, given)
        for threads in (1, 3)
    ]  # fmt: skip
    for one in found:
        np.testing.assert_array_equal(np.asarray(one), expected)


BIAS = """  c = f32[{n}] parameter(2)
  cc = f32[{m},{n}] broadcast(c), dimensions={{1}}
  s = f32[{m},{n}] add(d, cc)
  ROOT r = f32[{m},{n}] tanh(s)
"""
RESIDUAL = """  c = f32[{m},{n}] parameter(2)
  ROOT r = f32[{m},{n}] subtract(c, d)
"""
WIDENED = """  c = bf16[{m},{n}] parameter(2)
  w = f32[{m},{n}] convert(c)
  ROOT r = f32[{m},{n}] subtract(w, d)
"""
TWO = """  c = f32[{m},{n}] parameter(2)
  x = f32[{m},{n}] subtract(c, d)
  y = f32[{m},{n}] exponential(x)
  ROOT r = (f32[{m},{n}], f32[{m},{n}]) tuple(x, y)
"""
COMPARED = """  c = f32[{n}] parameter(2)
  cc = f32[{m},{n}] broadcast(c), dimensions={{1}}
  ROOT r = pred[{m},{n}] compare(d, cc), direction=GT
"""
NARROWED = """  c = f32[{n}] parameter(2)
  cc = f32[{m},{n}] broadcast(c), dimensions={{1}}
  s = f32[{m},{n}] multiply(d, cc)
  ROOT r = s8[{m},{n}] convert(s)
"""
WIDE = """  c = f32[{n}] parameter(2)
  cc = f32[{m},{n}] broadcast(c), dimensions={{1}}
  s = f32[{m},{n}] multiply(d, cc)
  ROOT r = f64[{m},{n}] convert(s)
"""


@pytest.mark.parametrize(
    ("tail", "n", "m", "machine"),
    covering(
        [BIAS, RESIDUAL, WIDENED, TWO, COMPARED, NARROWED, WIDE],
        [2, 3, 4, 5, 7, 8],
        [512, 777],
        MACHINES,
    ),
)
def test_what_is_done_to_the_sums(tail: str, n: int, m: int, machine: str) -> None:
    numbers = np.random.default_rng(1)
    module = hlo.parse(text_of("f32", m, n, 9, tail=tail.format(m=m, n=n)))
    dtype = module.entry.parameters[2].shape.dtype.numpy
    a, b = whole(numbers, "f32", m, 9), whole(numbers, "f32", 9, n)
    c = whole(numbers, "f32", *module.entry.parameters[2].shape.dims).astype(dtype)
    exe = hlo.compile(module, threads=2, cache=False, machine=named(machine))
    found, expected = exe.run_guarded(a, b, c), hlo.evaluate(module, a, b, c)
    pairs = zip(found, expected, strict=True) if tail is TWO else [(found, expected)]
    for one, other in pairs:
        x, y = np.asarray(one), np.asarray(other)
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=3e-7)


@pytest.mark.parametrize("n", [3, 7])
def test_infinities_nans_and_subnormal_numbers_come_through(n: int) -> None:
    numbers = np.random.default_rng(2)
    a, b = (numbers.random(s).astype(np.float32) for s in ((1000, 20), (20, n)))
    a[5, 3], a[999, 19], a[17, 0], b[4, 1] = np.inf, np.nan, -np.inf, 1e-40
    a[30:40] *= np.float32(1e-38)
    exe = hlo.compile(hlo.parse(text_of("f32", 1000, n, 20)), cache=False)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(np.asarray(exe(a, b)), expected, rtol=1e-4, atol=1e-43)


@pytest.mark.parametrize(
    ("machine", "dtype", "m", "n", "k", "is_shown"),
    [
        ("x86-64-v4", "f32", 4096, 7, 12, True),
        ("x86-64-v4", "f32", 4096, 3, 4, True),
        ("x86-64-v4", "f16", 4096, 8, 40, True),
        ("x86-64-v3", "f32", 4096, 6, 20, True),
        ("x86-64-v3", "f32", 4096, 7, 20, False),  # seven of eight lanes are in use
        ("x86-64-v3", "f32", 4096, 4, 3, False),  # too few depths to be turned
        ("x86-64-v4", "f32", 255, 7, 20, False),  # few rows
        ("x86-64-v4", "f32", 4096, 3, 100, False),  # sums over lanes are faster
        ("x86-64-v4", "f32", 4096, 9, 20, False),  # many columns
        ("x86-64-v4", "f64", 4096, 3, 12, False),  # wide numbers
        ("x86-64-v4", "c64", 4096, 3, 12, False),  # two parts
        ("armv8-a", "f32", 4096, 2, 6, True),
    ],
)
def test_which_products_are_made_so(
    machine: str, dtype: str, m: int, n: int, k: int, *, is_shown: bool
) -> None:
    text = emit_stage(hlo.parse(text_of(dtype, m, n, k)), "loops", machine=named(machine))
    assert ("squares turned" in text and f"for i in {n} by {n}" in text) is is_shown, text


def test_what_is_done_to_the_sums_is_written_once() -> None:
    """Hyperbolic tangents of seven columns are no more code than those of three."""

    def signs(n: int) -> int:
        module = hlo.parse(text_of("f32", 4096, n, 9, tail=BIAS.format(m=4096, n=n)))
        made = Compilation(module, machine=named("x86-64-v4"), threads=1, cache=False)
        return sum(m.text.count("call <16 x float> @llvm.copysign") for m in made.ir)

    assert signs(7) == signs(3) == 1
