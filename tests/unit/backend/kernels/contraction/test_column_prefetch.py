"""Column prefetch: a unit's last tiles ask for the columns that the next unit packs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import hlo
from hlo.driver import emit_stage
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

TEXT = """HloModule m
ENTRY e {{
  a = {dtype}[{m},{k}] parameter(0)
  b = {dtype}[{columns}] parameter(1)
  ROOT c = {out}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{depth}}}
}}
"""
MACHINES = that_run_here("x86-64-v3", "x86-64-v4")


def text_of(dtype: str, m: int, n: int, k: int, *, across: bool = False, out: str = "") -> str:
    columns = f"{n},{k}" if across else f"{k},{n}"
    sizes = {"m": m, "n": n, "k": k, "columns": columns, "depth": 1 * across}
    return TEXT.format(dtype=dtype, out=out or dtype, **sizes)


def asked(text: str, machine: str) -> list[int]:
    """How many bytes ahead columns are asked for, by tiles."""
    loops = emit_stage(hlo.parse(text), "loops", machine=named(machine))
    lines = [line.split() for line in loops.splitlines()]
    return [
        int(line[2])
        for line, following in pairwise(lines)
        if line[:2] == ["prefetch", "p1,"] and "products" in following
    ]


@pytest.mark.parametrize(
    ("machine", "dtype", "sizes", "asks"),
    [
        ("znver4", "f32", (300, 1024, 1024), True),
        ("znver4", "f64", (300, 1024, 512), True),
        ("x86-64-v3", "f32", (300, 1024, 1024), True),
        ("znver4", "bf16", (300, 1024, 1024), True),  # two rows of memory in each depth
        ("znver4", "f32", (300, 256, 512), False),  # what the second cache holds
        ("armv8-a", "f32", (300, 1024, 1024), False),  # no tiles of assembly
    ],
)
def test_which_products_ask(
    machine: str, dtype: str, sizes: tuple[int, int, int], *, asks: bool
) -> None:
    m, n, k = sizes
    out = "f32" if dtype == "bf16" else dtype
    assert bool(asked(text_of(dtype, m, n, k, out=out), machine)) is asks


def test_columns_along_depth_are_not_asked_for() -> None:
    assert not asked(text_of("f32", 300, 1024, 1024, across=True), "znver4")


def test_what_is_asked_for_is_the_next_block() -> None:
    """Of columns, or, where depth is in blocks, of depths."""
    (ahead,) = asked(text_of("f32", 300, 1024, 1024), "znver4")
    assert ahead < 1024 * 4
    (ahead,) = asked(text_of("f32", 1024, 1024, 2304), "znver4")
    assert ahead == 768 * 1024 * 4


@pytest.mark.parametrize(
    ("dtype", "m", "n", "k", "machine"),
    covering(
        ["f32", "f64"],
        [129, 300, 517],  # few tiles, tiles that overlap, blocks of rows
        [1024, 1101, 1537],  # columns that end with a panel and within one
        [512, 1000, 2304],  # depths in one block and in several
        MACHINES,
    ),
)
def test_sums_are_exact_and_nothing_is_touched_beside_them(
    dtype: str, m: int, n: int, k: int, machine: str
) -> None:
    """Of integers, so that the order of additions is none of its business."""
    numbers = np.random.default_rng(0)
    scalar = np.float32 if dtype == "f32" else np.float64
    a, b = (numbers.integers(-4, 5, size).astype(scalar) for size in ((m, k), (k, n)))
    module = hlo.parse(text_of(dtype, m, n, k))
    for threads in (1, 3):
        exe = hlo.compile(module, threads=threads, cache=False, machine=named(machine))
        np.testing.assert_array_equal(exe.run_guarded(a, b), a @ b)
