"""Which dots of a matrix's rows ask for the next ones, and that each line is asked for once."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.support.contraction_harness import fetches
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot

ALONG = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (1,)}
AT_ONCE = {1: 8, 4: 4, 8: 4, 12: 4}  # columns that dots of so many rows read side by side


def hints(rows: int, columns: int, depth: int) -> int:
    root = dot(Shape.array(dt.F32, (rows, depth)), Shape.array(dt.F32, (columns, depth)), dt.F32,
               **ALONG)  # fmt: skip
    return fetches(contraction_kernels(root, Target(NAMED["znver4"])))


@pytest.mark.parametrize("rows", AT_ONCE)
def test_each_line_of_the_next_columns_is_asked_for_once(rows: int) -> None:
    """By one of the groups of rows, whichever meets the line's column."""
    assert hints(rows, 8192, 4096) == AT_ONCE[rows]


@pytest.mark.parametrize(("rows", "columns", "is_asked"), [
    (1, 1024, False),  # comes fast enough from the last cache
    (8, 1024, True),  # but not beside so many products
    (8, 100, False),  # the second cache has it
])  # fmt: skip
def test_what_a_cache_delivers_is_not(rows: int, columns: int, *, is_asked: bool) -> None:
    assert (hints(rows, columns, 2048) > 0) is is_asked


def test_hints_lie_behind_the_matrix_and_change_nothing() -> None:
    """Of the last columns; numbers are integers, whose sums have one value."""
    numbers = np.random.default_rng(0)
    x, y = (numbers.integers(-4, 5, dims).astype(np.float32) for dims in ((7, 1000), (530, 1000)))
    text = """HloModule m
ENTRY e {
  x = f32[7,1000] parameter(0)
  y = f32[530,1000] parameter(1)
  ROOT r = f32[7,530] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
"""
    for threads in (1, 3):
        exe = hlo.compile(hlo.parse(text), threads=threads, cache=False)
        np.testing.assert_array_equal(exe.run_guarded(x, y), x @ y.T)
