"""Few rows by a large matrix: the first tile of rows packs the columns that all tiles meet."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.driver import emit_stage
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

TEXT = """HloModule m
ENTRY e {{
  a = {dtype}[{lhs}] parameter(0)
  b = {dtype}[{k},{n}] parameter(1)
  ROOT c = {dtype}[{m},{n}] dot(a, b), lhs_contracting_dims={{{depth}}}, rhs_contracting_dims={{0}}
}}
"""
MACHINES = that_run_here("x86-64-v3", "x86-64-v4")


def text_of(dtype: str, m: int, n: int, k: int, *, across: bool = False) -> str:
    lhs = f"{k},{m}" if across else f"{m},{k}"
    return TEXT.format(dtype=dtype, lhs=lhs, m=m, n=n, k=k, depth=1 - across)


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "across", "machine"),
    covering(
        ["f32", "f64"],
        [13, 14, 15, 17, 33, 128],  # one tile of 14 rows, tiles that overlap
        [1040, 1056, 1101, 3072],  # columns that end with a panel, with a vector, within one
        [1024, 1031, 1152],  # depths that end with a block and within one
        [False, True],
        MACHINES,
    ),
)
def test_sums_are_exact_and_nothing_is_written_beside_them(
    dtype: str, m: int, n: int, k: int, machine: str, *, across: bool
) -> None:
    """Of integers, so that the order of additions is none of its business."""
    numbers = np.random.default_rng(0)
    scalar = np.float32 if dtype == "f32" else np.float64
    a, b = (numbers.integers(-4, 5, size).astype(scalar) for size in ((m, k), (k, n)))
    module = hlo.parse(text_of(dtype, m, n, k, across=across))
    given = np.ascontiguousarray(a.T) if across else a
    for threads in (1, 3):
        exe = hlo.compile(module, threads=threads, cache=False, machine=named(machine))
        np.testing.assert_array_equal(exe.run_guarded(given, b), a @ b)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_infinities_and_nans_come_through(threads: int) -> None:
    numbers = np.random.default_rng(1)
    a, b = (numbers.standard_normal(s).astype(np.float32) for s in ((40, 1100), (1100, 1001)))
    b[1099, 1000], b[0, 17], a[39, 5] = np.inf, np.nan, -np.inf
    exe = hlo.compile(hlo.parse(text_of("f32", 40, 1001, 1100)), threads=threads, cache=False)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(np.asarray(exe(a, b)), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("machine", "dtype", "m", "packs"),
    [
        ("x86-64-v4", "f32", 64, True),
        ("x86-64-v4", "f64", 16, True),
        ("x86-64-v3", "f32", 64, True),
        ("x86-64-v4", "f32", 12, False),  # the matrix goes by as it is read
        ("x86-64-v4", "f32", 129, False),  # rows come to columns that wait
        ("x86-64-v4", "f16", 64, False),  # its numbers are converted while they are packed
        ("armv8-a", "f32", 64, False),  # no tiles of assembly
    ],
)
def test_which_products_pack_so(machine: str, dtype: str, m: int, *, packs: bool) -> None:
    text = emit_stage(hlo.parse(text_of(dtype, m, 2048, 1152)), "loops", machine=named(machine))
    assert ("fills rhs" in text) is packs


def test_the_lines_of_the_next_block_are_asked_for() -> None:
    text = emit_stage(
        hlo.parse(text_of("f32", 64, 2048, 1152)), "loops", machine=named("x86-64-v4")
    )
    assert text.count(f"prefetch p1, {128 * 2048 * 4} bytes ahead") == 2
