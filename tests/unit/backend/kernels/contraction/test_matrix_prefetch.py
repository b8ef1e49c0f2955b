"""Which dots of a matrix's rows ask for the next ones, and that each line is asked for once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

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


@pytest.mark.parametrize(("batches", "is_asked"), [(2, False), (16, True)])
def test_many_matrices_come_from_as_far_as_one_of_their_size(
    batches: int, *, is_asked: bool
) -> None:
    """Each of which a core's cache holds: keys of a cache by their heads."""
    lhs, rhs = Shape.array(dt.F32, (batches, 8, 600)), Shape.array(dt.F32, (batches, 100, 600))
    along = {f"{s}_contracting_dims": (2,) for s in ("lhs", "rhs")}
    batch = {f"{s}_batch_dims": (0,) for s in ("lhs", "rhs")}
    lines = fetches(contraction_kernels(dot(lhs, rhs, dt.F32, **along, **batch),
                                        Target(NAMED["znver4"])))  # fmt: skip
    assert (lines > 0) is is_asked


LARGE = """HloModule m
ENTRY e {{
  x = bf16[{rows},4096] parameter(0)
  w = f32[4096,3,9000] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  own = f32[4096,1,9000] dynamic-slice(w, z, i, z), dynamic_slice_sizes={{4096,1,9000}}
  flat = f32[4096,9000] reshape(own)
  {made}
  ROOT r = bf16[{rows},9000] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
CONVERTED = "y = bf16[4096,9000] convert(flat)"
SCALED = """s = f32[9000] parameter(3)
  scales = f32[4096,9000] broadcast(s), dimensions={1}
  both = f32[4096,9000] multiply(flat, scales)
  y = bf16[4096,9000] convert(both)"""


@pytest.mark.parametrize("made", [CONVERTED, SCALED])
@pytest.mark.parametrize("rows", [2, 7])
def test_what_rows_are_computed_of_is_asked_for(rows: int, made: str) -> None:
    """A layer's rows, as far apart as three layers': those of the next 8 depths at least."""
    module = hlo.driver.optimize(hlo.parse(LARGE.format(rows=rows, made=made)))
    shown = hlo.driver.emit_stage(module, "asm", machine=NAMED["znver4"])
    ahead = [int(n) for n in re.findall(r"prefetcht1\s+(\d+)", shown)]
    assert ahead
    assert all(n >= 8 * 3 * 9000 * 4 for n in ahead)


SMALL = """HloModule m
ENTRY e {
  x = bf16[2,3,37] parameter(0)
  w = f32[2,37,150] parameter(1)
  y = bf16[2,37,150] convert(w)
  ROOT r = f32[2,3,150] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}
}
"""


def test_hints_for_what_rows_are_computed_of_change_nothing() -> None:
    """On a machine with caches that are soon too small."""
    near = [replace(cache, bytes=1 << 11) for cache in hlo.driver.host_machine().caches]
    machine = replace(hlo.driver.host_machine(), caches=tuple(near))
    numbers = np.random.default_rng(0)
    module = hlo.driver.optimize(hlo.parse(SMALL))
    x, w = (numbers.integers(-4, 5, p.shape.dims).astype(p.shape.dtype.numpy)
            for p in module.entry.parameters)  # fmt: skip
    assert "prefetch" in hlo.driver.emit_stage(module, "asm", machine=machine)
    exe = hlo.compile(module, threads=1, cache=False, machine=machine)
    expected = np.einsum("bmk,bkn->bmn", x.astype(np.float32), w)
    np.testing.assert_array_equal(exe.run_guarded(x, w), expected)
