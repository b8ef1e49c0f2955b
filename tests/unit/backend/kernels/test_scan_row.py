"""Scans along rows, against the reference, at lengths around vectors and blocks."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.kernels.scan import scan_kernel
from hlo.parser.parse import parse
from tests.support.kernel_check import check, made_up
from tests.support.kernel_runner import TARGET, assembly, run

STARTS = {"add": "3", "multiply": "1", "maximum": "-2", "minimum": "2", "and": "-1", "xor": "5"}


def running(kind: str, rows: int, length: int, op: str = "add", *, reverse: bool = False):  # type: ignore[no-untyped-def]  # an Instruction
    pad = f"0_{length - 1}" if reverse else f"{length - 1}_0"
    start = f"({STARTS[op]}, 0)" if kind.startswith("c") else STARTS[op]
    return parse(
        f"""HloModule m
f {{ a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {op}(a, b) }}
ENTRY e {{ x = {kind}[{rows},{length}] parameter(0)
  z = {kind}[] constant({start})
  ROOT r = {kind}[{rows},{length}] reduce-window(x, z),
    window={{size=1x{length} pad=0_0x{pad}}}, to_apply=f }}"""
    ).entry.root


@pytest.mark.parametrize("length", [8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 129, 300])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sum_of_a_row(length: int, *, reverse: bool) -> None:
    assert check(running("f32", 3, length, reverse=reverse), kernel=scan_kernel) == ""


@pytest.mark.parametrize(
    "kind", ["f64", "bf16", "f16", "f8e4m3fn", "s8", "u16", "s32", "s64", "c64"]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_of_every_type(kind: str, *, reverse: bool) -> None:
    op = "maximum" if kind in ("bf16", "f16", "f8e4m3fn") else "add"
    assert check(running(kind, 2, 83, op, reverse=reverse), kernel=scan_kernel) == ""


@pytest.mark.parametrize("op", ["multiply", "maximum", "minimum", "and", "xor"])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_by_every_op(op: str, *, reverse: bool) -> None:
    kind = "s32" if op in ("and", "xor") else "f32"
    assert check(running(kind, 2, 70, op, reverse=reverse), kernel=scan_kernel) == ""


def test_a_nan_stays_from_where_it_is_on() -> None:
    root = running("f32", 1, 40, "maximum")
    x = np.zeros((1, 40), np.float32)
    x[0, 21] = np.nan
    (got,) = run(root, (x, np.array(-2, np.float32)), kernel=scan_kernel)
    assert np.isnan(got[0, 21:]).all()
    assert (got[0, :21] == 0).all()


def test_a_long_sum_is_more_exact_than_a_serial_one() -> None:
    root = running("f32", 1, 100_000)
    x = made_up(root.operands[0].shape, np.random.default_rng(0))
    (got,) = run(root, (x, np.array(3, np.float32)), kernel=scan_kernel)
    want = np.cumsum(x.astype(np.float64), axis=1) + 3
    serial = np.cumsum(x, axis=1, dtype=np.float32) + 3
    assert np.abs(got - want).max() < 0.5 * np.abs(serial - want).max()


@pytest.mark.skipif(TARGET.vector_bytes != 64, reason="needs AVX-512")
def test_rows_are_neither_gathered_nor_scattered() -> None:
    for reverse in (False, True):
        text = assembly(scan_kernel(running("f32", 5, 256, reverse=reverse), TARGET))
        assert "gather" not in text
        assert "scatter" not in text
