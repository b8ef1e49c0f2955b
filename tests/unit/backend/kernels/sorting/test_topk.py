"""topk kernels against the op's own evaluate: equal bytes, each way of finding the best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hlo import driver
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting.topk import topk_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.interpreter.evaluate import evaluate
from hlo.ir import dtype as dt
from hlo.ir.module import Module
from hlo.parser.parse import parse
from tests.support.covering import covering
from tests.support.hlo_values import mixed_values
from tests.support.kernel_jit import kernel_function
from tests.support.lanes_jit import plain_target


def made(dtype: str, dims: tuple[int, ...], k: int, largest: str = "true") -> Module:
    kept = ",".join(map(str, (*dims[:-1], k)))
    return parse(
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{','.join(map(str, dims))}] parameter(0)\n"
        f"  ROOT t = ({dtype}[{kept}], s32[{kept}]) topk(x), k={k}, largest={largest}\n}}\n"
    )


def check(module: Module, x: np.ndarray, target: Callable[[], Target] = host_target) -> None:
    root = module.entry.root
    got = kernel_function(root, topk_kernel(root, target()), 2)(x)
    for result, want in zip(got, evaluate(module, x), strict=True):
        assert result.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize(
    ("target", "largest", "dtype"),
    covering(
        [host_target, plain_target],
        ["true", "false"],
        ["f32", "s32", "u8", "bf16", "s64", "f8e4m3fn"],
    ),
)
def test_equal_bytes(dtype: str, largest: str, target: Callable[[], Target]) -> None:
    for dims, k in (
        ((3, 20), 5),
        ((2, 2001), 10),
        ((2, 400), 99),
        ((7,), 0),
        ((3, 4), 4),
        ((9,), 1),
        ((37, 33), 3),  # many rows: one a lane, the last ones and the last columns are few
        ((16, 16), 7),
        ((2, 1100), 33),  # a buffer of what passes
        ((1, 1601), 100),
    ):
        values = mixed_values(dt.dtype(dtype), int(np.prod(dims)), np.random.default_rng(k))
        check(made(dtype, dims, k, largest), values.reshape(dims), target)


@pytest.mark.parametrize(("count", "k"), [(500, 32), (3000, 40)], ids=["scan", "filter"])
@pytest.mark.parametrize("order", [1, -1, 0])
def test_ordered_and_equal_rows(order: int, count: int, k: int) -> None:
    x = order * np.arange(count, dtype=np.int32)
    check(made("s32", (count,), k), x)


def test_filter_of_keys_at_both_ends() -> None:
    least, greatest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    module = made("s32", (4096,), 300)
    for value in (least, greatest):
        check(module, np.full(4096, value, np.int32))
    check(module, np.where(np.arange(4096) % 3, least, greatest).astype(np.int32))


def test_sample_that_misleads() -> None:
    """Every element that the sample sees is among the worst: nearly all others pass the bound."""
    x = np.arange(4096, dtype=np.int32)
    x[:: 4096 // 256] = -1
    check(made("s32", (4096,), 40), x)


@pytest.mark.parametrize(
    ("dims", "k", "way"),
    [
        pytest.param((64, 32), 4, "rows at once", id="rows"),
        pytest.param((2, 5000), 4, "scan", id="scan"),
        pytest.param((2, 5000), 64, "filter", id="filter"),
        pytest.param((2, 500), 64, "radix sort", id="sort"),
    ],
)
def test_ways(dims: tuple[int, ...], k: int, way: str) -> None:
    text = driver.emit_stage(made("f32", dims, k), "loops")
    assert way in text
