"""Sums of few rows of narrow float arrays: which are rewritten, and that the bits stay."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.reduction.narrow_scatter_rewriter import narrow_scatter_rewriter


def scatter(
    rows: int = 800,
    row: int = 24,
    updates: int = 100,
    *,
    kind: str = "bf16",
    operation: str = "add",
    index: str = "s32",
    indices: str = "",
    more: str = "",
) -> str:
    indices = indices or f"{updates},1"
    return f"""HloModule m
fold {{ x = {kind}[] parameter(0)
  y = {kind}[] parameter(1)
  ROOT s = {kind}[] {operation}(x, y) }}
ENTRY e {{ o = {kind}[{rows},{row}] parameter(0)
  i = {index}[{indices}] parameter(1)
  u = {kind}[{updates},{row}] parameter(2)
  ROOT r = {kind}[{rows},{row}] scatter(o, i, u), update_window_dims={{1}},
    inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1,
    to_apply=fold{more} }}"""


def rewritten(text: str) -> Module | None:
    module = driver.parse(text)
    return module if narrow_scatter_rewriter(module) else None


@pytest.mark.parametrize(
    "text",
    [
        scatter(kind="f32"),
        scatter(operation="maximum"),
        scatter(more=", unique_indices=true"),
        scatter(rows=300),
        scatter(row=8),
        scatter(updates=1),
        scatter(index="s8"),
    ],
    ids=["wide", "no rounding", "unique", "many", "short", "one", "small indices"],
)
def test_others_stay(text: str) -> None:
    assert rewritten(text) is None


@pytest.mark.parametrize(
    ("kind", "operation", "index", "indices"),
    [
        ("bf16", "add", "s32", "100,1"),
        ("f16", "add", "s64", "100"),
        ("bf16", "multiply", "u32", "100,1"),
        ("f8e5m2", "add", "s32", "100,1"),
    ],
)
def test_rounds_once_and_skips_what_is_out_of_bounds(
    kind: str, operation: str, index: str, indices: str
) -> None:
    text = scatter(kind=kind, operation=operation, index=index, indices=indices)
    module = rewritten(text)
    assert module is not None
    operand, column, _ = driver.parse(text).entry.parameters
    rng = np.random.default_rng(3)
    o = rng.standard_normal((800, 24)).astype(operand.shape.dtype.numpy)
    u = rng.standard_normal((100, 24)).astype(operand.shape.dtype.numpy)
    low = 0 if index.startswith("u") else -4
    i = rng.integers(low, 40, 100).astype(column.shape.dtype.numpy)
    i[:4] = 799, 800, 0, 2**31 - 1
    i = i.reshape(column.shape.dims)
    expected = np.asarray(driver.evaluate(driver.parse(text), o, i, u))
    for found in (
        driver.evaluate(module, o, i, u),
        driver.compile(module, passes="")(o, i, u),
        driver.compile(driver.parse(text))(o, i, u),
    ):
        assert np.asarray(found).tobytes() == expected.tobytes()
