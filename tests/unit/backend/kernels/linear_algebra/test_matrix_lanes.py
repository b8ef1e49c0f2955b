"""Many small matrices, a lane each: LU and Cholesky factors beside the reference's."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver

TYPES = {"f32": ("s", np.float32), "f64": ("d", np.float64)}


def lu_text(dtype: str, batch: int, rows: int, columns: int) -> str:
    least = min(rows, columns)
    return (
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{batch},{rows},{columns}] parameter(0)\n"
        f"  ROOT r = ({dtype}[{batch},{rows},{columns}], s32[{batch},{least}], s32[{batch}]) "
        f'custom-call(x), custom_call_target="lapack_{TYPES[dtype][0]}getrf_ffi", '
        'backend_config="{}", api_version=API_VERSION_TYPED_FFI\n}\n'
    )


def potrf_text(dtype: str, batch: int, size: int, uplo: int) -> str:
    return (
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{batch},{size},{size}] parameter(0)\n"
        f"  ROOT r = ({dtype}[{batch},{size},{size}], s32[{batch}]) "
        f'custom-call(x), custom_call_target="lapack_{TYPES[dtype][0]}potrf_ffi", '
        f'backend_config="{{uplo = {uplo} : ui8}}", api_version=API_VERSION_TYPED_FFI\n}}\n'
    )


def cholesky_text(dtype: str, batch: int, size: int, lower: str) -> str:
    return (
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{batch},{size},{size}] parameter(0)\n"
        f"  ROOT r = {dtype}[{batch},{size},{size}] cholesky(x), lower={lower}\n}}\n"
    )


def is_together(text: str) -> bool:
    return "at once" in driver.emit_stage(hlo.parse(text), "loops")


def definite(dtype: str, batch: int, size: int) -> np.ndarray:
    x = np.random.default_rng(size).standard_normal((batch, size, size))
    return (x @ x.transpose(0, 2, 1) + np.eye(size)).astype(TYPES[dtype][1])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("batch", "rows", "columns"),
    [(2 * 16 + 3, 3, 3), (16, 5, 9), (50, 9, 4), (17, 1, 1), (19, 16, 16)],
)
def test_lu(dtype: str, batch: int, rows: int, columns: int) -> None:
    pytest.importorskip("scipy")
    module = hlo.parse(lu_text(dtype, batch, rows, columns))
    x = np.random.default_rng(rows).standard_normal((batch, rows, columns))
    x = x.astype(TYPES[dtype][1])
    x[1] = 0  # no pivot at all
    x[2, :, 0] = 0  # none in the first column
    x[3] = 1  # equal candidates: the first one
    assert is_together(lu_text(dtype, batch, rows, columns))
    found = hlo.compile(module, cache=False, threads=3)(x)
    wanted = hlo.evaluate(module, x)
    bound = 200 * rows * np.finfo(x.dtype).eps * np.abs(np.asarray(wanted[0])).max()
    np.testing.assert_allclose(np.asarray(found[0]), np.asarray(wanted[0]), rtol=0, atol=bound)
    for number in (1, 2):
        np.testing.assert_array_equal(np.asarray(found[number]), np.asarray(wanted[number]))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize(("batch", "size"), [(35, 3), (16, 8), (20, 16), (17, 1)])
def test_cholesky(dtype: str, lower: str, batch: int, size: int) -> None:
    module = hlo.parse(cholesky_text(dtype, batch, size, lower))
    x = definite(dtype, batch, size)
    x[1] = -x[1]
    x[2, 0, 0] = np.nan
    assert is_together(cholesky_text(dtype, batch, size, lower))
    found = np.asarray(hlo.compile(module, cache=False, threads=3)(x))
    wanted = np.asarray(hlo.evaluate(module, x))
    bound = 50 * size * np.finfo(x.dtype).eps * np.nanmax(np.abs(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)  # NaN where there is none


@pytest.mark.parametrize("uplo", [ord("L"), ord("U")])
def test_potrf_reports_and_copies(uplo: int) -> None:
    pytest.importorskip("scipy")
    module = hlo.parse(potrf_text("f64", 20, 5, uplo))
    x = definite("f64", 20, 5)
    x[1, 2, 2] = -1
    x += np.triu(np.ones((5, 5)), 1) if uplo == ord("L") else np.tril(np.ones((5, 5)), -1)
    found = hlo.compile(module, cache=False)(x)
    wanted = hlo.evaluate(module, x)
    np.testing.assert_array_equal(np.asarray(found[1]), np.asarray(wanted[1]))
    sound = np.asarray(wanted[1]) == 0
    assert sound.sum() == 19
    np.testing.assert_allclose(
        np.asarray(found[0])[sound], np.asarray(wanted[0])[sound], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("batch", "size"), [pytest.param(3, 4, id="few"), pytest.param(64, 64, id="large")]
)
def test_each_by_itself(batch: int, size: int) -> None:
    assert not is_together(cholesky_text("f32", batch, size, "true"))
