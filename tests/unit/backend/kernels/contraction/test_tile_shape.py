"""Tiles of few rows: as many vectors as leave few columns that two panels read."""

import numpy as np
import pytest

import hlo
from hlo.backend.kernels.contraction.microkernels.tile_shape import tile_shape
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.ir.dtype import C64, C128, F32
from tests.support.contraction_harness import target_of


@pytest.mark.parametrize(
    ("level", "columns", "vectors"),
    [
        ("avx512", 200, 7),  # 13 vectors: two panels, not of eight
        ("avx512", 72, 5),
        ("avx512", 400, 5),  # five panels, none read again
        ("avx512", 128, 8),
        ("avx512", 136, 3),  # nine vectors, as they are: two panels of five are ten
        ("avx2", 200, 5),
        ("avx2", 400, 6),  # ten panels of five would read a tenth less
    ],
)
def test_few_rows_leave_few_columns_that_are_read_again(
    level: str, columns: int, vectors: int
) -> None:
    ring = ring_of(F32, target_of(level))
    assert tile_shape(1, columns, ring)[1] == vectors


def test_more_rows_have_the_tiles_that_they_had() -> None:
    ring = ring_of(F32, target_of("avx512"))
    assert {tile_shape(64, n, ring)[1] for n in range(16, 700, 16)} <= {1, 2, 3, 4, 6, 8}


def test_tiles_of_complex_numbers_are_wide_where_they_multiply_as_much() -> None:
    """A number of lhs is two loads, of rhs a part of two."""
    for dtype in (C64, C128):
        ring = ring_of(dtype, target_of("avx512"))
        assert tile_shape(512, 512, ring) == (6, 2)
        assert tile_shape(14, 512, ring) == (14, 1)  # three tiles of six rows would make four more
    assert tile_shape(512, 512, ring_of(C64, target_of("avx2")))[1] == 1


@pytest.mark.parametrize(
    ("dtype", "depth", "rows"),
    [("c64", 512, 6), ("c64", 500, 8), ("c64", 64, 8), ("c128", 256, 6), ("f32", 1024, 6)],
)
def test_rows_that_share_a_set_are_no_more_than_stay_in_it(
    dtype: str, depth: int, rows: int
) -> None:
    """Rows of 4096 bytes, of which few columns read so many where they lie."""
    root = hlo.parse(
        f"HloModule m\nENTRY e {{\n  a = {dtype}[512,{depth}] parameter(0)\n"
        f"  b = {dtype}[{depth},16] parameter(1)\n"
        f"  ROOT r = {dtype}[512,16] dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}\n}"
    ).entry.root
    ring = ring_of(root.shape.dtype, target_of("avx512"))
    plan = planned(normal(dot_contraction(root), ring.lanes), ring)
    assert (plan.rows.step <= rows) == (rows == 6), plan.rows


@pytest.mark.parametrize("columns", [65, 72, 80, 100, 200, 208, 400])
@pytest.mark.parametrize("rows", [1, 2])
def test_products_of_few_rows(rows: int, columns: int) -> None:
    """Whole numbers: the sums are exact in any order."""
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  a = f32[{rows},37] parameter(0)\n"
        f"  b = f32[37,{columns}] parameter(1)\n"
        f"  ROOT r = f32[{rows},{columns}] dot(a, b), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}\n}"
    )
    rng = np.random.default_rng(columns)
    a = rng.integers(-9, 10, (rows, 37)).astype(np.float32)
    b = rng.integers(-9, 10, (37, columns)).astype(np.float32)
    np.testing.assert_array_equal(hlo.compile(module, cache=False)(a, b), a @ b)
