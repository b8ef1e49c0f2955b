"""Rows that begin where run-time values say, written across: every element size, sizes that fill no
vector, indices beyond the array, and nothing touched outside of it.
"""

import ml_dtypes
import numpy as np
import pytest

from hlo import driver

KINDS = {
    "u8": np.uint8, "s16": np.int16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "c64": np.complex64, "pred": np.bool_,
}  # fmt: skip


@pytest.mark.parametrize("columns", [3, 20, 33])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_of_a_gather_across(kind: str, columns: int) -> None:
    rng = np.random.default_rng(columns)
    x = rng.integers(0, 2 if kind == "pred" else 100, (50, columns)).astype(KINDS[kind])
    i = rng.integers(-9, 60, (3, 5, 7)).astype(np.int32)
    text = f"""HloModule m
    ENTRY e {{
      x = {kind}[50,{columns}] parameter(0)
      i = s32[3,5,7] parameter(1)
      ROOT r = {kind}[3,{columns},5,7] gather(x, i), offset_dims={{1}},
        collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=3,
        slice_sizes={{1,{columns}}}
    }}"""
    expected = np.moveaxis(x[np.clip(i, 0, 49)], 3, 1)
    assert np.array_equal(driver.compile(driver.parse(text), cache=False)(x, i), expected)


def test_rows_of_several_lanes_loops_under_a_condition() -> None:
    """Batched rows: lanes are at a stride and at a run-time value, and some are not taken."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((37, 6, 20)).astype(np.float32)
    i = rng.integers(0, 6, (37,)).astype(np.int32)
    text = """HloModule m
    ENTRY e {
      x = f32[37,6,20] parameter(0)
      i = s32[37] parameter(1)
      g = f32[20,37] gather(x, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1},
        operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=1,
        slice_sizes={1,1,20}
      z = f32[] constant(0)
      p = f32[25,40] pad(g, z), padding=2_3x1_2
      ROOT r = f32[25,40] negate(p)
    }"""
    expected = -np.pad(x[np.arange(37), i].T, ((2, 3), (1, 2)))
    assert np.array_equal(driver.compile(driver.parse(text), cache=False)(x, i), expected)
