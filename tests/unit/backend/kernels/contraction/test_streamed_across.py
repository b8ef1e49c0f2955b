"""Few columns beside rows that lie across depth: these are streamed, and results written across."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, levels, target_of

TYPES = [("f32", "f32"), ("f64", "f64"), ("c64", "c64"), ("bf16", "f32"), ("f16", "f16"),
         ("s8", "s32"), ("u8", "u32"), ("s32", "s32")]  # fmt: skip


def product(dtype: str, out: str, dims: tuple[int, int, int]) -> str:
    m, n, k = dims
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{k},{m}] parameter(0)
      y = {dtype}[{k},{n}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{0}},
        rhs_contracting_dims={{0}} }}"""


def whole_numbers(module: hlo.ir.module.Module) -> list[np.ndarray]:
    """Of which every sum is exact."""
    rng = np.random.default_rng(0)
    return [
        rng.integers(0, 4, p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    ]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(("dtype", "out"), TYPES)
@pytest.mark.parametrize("dims", [(1061, 2, 70), (515, 6, 131), (130, 3, 9), (2100, 5, 520)])
def test_results_are_the_products(
    level: str, dtype: str, out: str, dims: tuple[int, int, int]
) -> None:
    module = hlo.parse(product(dtype, out, dims))
    root, values = module.entry.root, whole_numbers(module)
    result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


@pytest.mark.parametrize(("dtype", "out", "dims", "is_streamed"), [
    ("f32", "f32", (2048, 4, 1024), True), ("bf16", "f32", (2048, 4, 1024), True),
    ("s8", "s32", (512, 2, 64), True),
    ("f32", "f32", (512, 4, 256), False),  # the second cache holds it
    ("f32", "f32", (2048, 7, 1024), False),  # more than rows that meet a matrix at once
])  # fmt: skip
def test_which_products_stream_their_rows(
    dtype: str, out: str, dims: tuple[int, int, int], *, is_streamed: bool
) -> None:
    root = hlo.parse(product(dtype, out, dims)).entry.root
    sums = contraction_kernels(root, Target(NAMED["znver5"])).sums
    assert sums is not None
    plans = ("axpys", "parts: axpys", "words of rows")
    assert (sums.plan in plans) == is_streamed
