"""Many small matrices, a lane each: Householder's QR beside LAPACK's, which the reference calls."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver

TYPES = {"f32": ("s", np.float32), "f64": ("d", np.float64)}


def qr_text(dtype: str, batch: int, rows: int, columns: int) -> str:
    least, letter = min(rows, columns), TYPES[dtype][0]
    whole = f"{dtype}[{batch},{rows},{columns}]"
    return (
        f"HloModule m\nENTRY e {{\n  x = {whole} parameter(0)\n"
        f"  ROOT r = ({whole}, {dtype}[{batch},{least}]) custom-call(x), "
        f'custom_call_target="lapack_{letter}geqrf_ffi", backend_config="{{}}", '
        "api_version=API_VERSION_TYPED_FFI\n}\n"
    )


def q_text(dtype: str, batch: int, rows: int, columns: int, count: int) -> str:
    whole = f"{dtype}[{batch},{rows},{columns}]"
    return (
        f"HloModule m\nENTRY e {{\n  x = {whole} parameter(0)\n"
        f"  t = {dtype}[{batch},{count}] parameter(1)\n  ROOT r = {whole} custom-call(x, t), "
        f'custom_call_target="lapack_{TYPES[dtype][0]}orgqr_ffi", backend_config="{{}}", '
        "api_version=API_VERSION_TYPED_FFI\n}\n"
    )


def is_together(text: str) -> bool:
    return "at once" in driver.emit_stage(hlo.parse(text), "loops")


def matrices(dtype: str, batch: int, rows: int, columns: int) -> np.ndarray:
    """Plain ones, and at the start those that need care: zero columns below diagonals of either
    sign, ends of the range, tiny numbers below large ones."""
    kind = TYPES[dtype][1]
    x = np.random.default_rng(rows).standard_normal((batch, rows, columns)).astype(kind)
    x[0] = -np.eye(rows, columns)
    x[1] = 0
    x[2] *= np.finfo(kind).max / 64
    x[3] *= np.finfo(kind).tiny
    x[4, 1:] *= np.sqrt(np.finfo(kind).tiny) / 1024
    x[5] = np.sign(x[5])
    return x


SHAPES = [(2 * 16 + 3, 3, 3), (16, 5, 9), (50, 9, 4), (17, 1, 1), (19, 2, 1), (19, 16, 16)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("batch", "rows", "columns"), SHAPES)
def test_qr(dtype: str, batch: int, rows: int, columns: int) -> None:
    pytest.importorskip("scipy")
    text = qr_text(dtype, batch, rows, columns)
    x = matrices(dtype, batch, rows, columns)
    assert is_together(text)
    found = hlo.compile(hlo.parse(text), cache=False, threads=3)(x)
    wanted = hlo.evaluate(hlo.parse(text), x)
    # Subnormal numbers are rounded to steps of their own.
    eps, step = np.finfo(x.dtype).eps, np.finfo(x.dtype).smallest_subnormal
    scale = np.abs(x).max(axis=(1, 2), keepdims=True)
    bound = 40 * rows * eps
    a, b = (np.asarray(r[0], np.float64) for r in (found, wanted))
    above = np.triu(np.ones((rows, columns), bool))
    sizes = np.where(above, scale.astype(np.float64), 1.0)
    assert (np.abs(a - b) <= bound * sizes + 8 * rows * step).all()
    np.testing.assert_allclose(np.asarray(found[1]), np.asarray(wanted[1]), rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "count"),
    [(2 * 16 + 3, 3, 3, 3), (50, 9, 4, 4), (17, 1, 1, 1), (18, 6, 6, 2), (19, 16, 16, 16)],
)
def test_q(dtype: str, batch: int, rows: int, columns: int, count: int) -> None:
    pytest.importorskip("scipy")
    text, kind = q_text(dtype, batch, rows, columns, count), TYPES[dtype][1]
    factors = hlo.evaluate(
        hlo.parse(qr_text(dtype, batch, rows, count)), matrices(dtype, batch, rows, count)
    )
    x = np.zeros((batch, rows, columns), kind)
    x[:, :, :count] = np.asarray(factors[0])
    t = np.asarray(factors[1])
    assert is_together(text)
    found = hlo.compile(hlo.parse(text), cache=False, threads=2)(x, t)
    wanted = hlo.evaluate(hlo.parse(text), x, t)
    bound = 20 * rows * np.finfo(kind).eps
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=0, atol=bound)


def test_a_lane_that_is_not_finite_spoils_no_other() -> None:
    text = qr_text("f32", 20, 4, 3)
    x = matrices("f32", 20, 4, 3)
    clean = hlo.compile(hlo.parse(text), cache=False)(x)
    x[7, 2, 1], x[9, 0, 0] = np.nan, np.inf
    found = hlo.compile(hlo.parse(text), cache=False)(x)
    others = [k for k in range(20) if k not in (7, 9)]
    for a, b in zip(found, clean, strict=True):
        np.testing.assert_array_equal(np.asarray(a)[others], np.asarray(b)[others])
    assert np.isnan(np.asarray(found[0])[[7, 9]]).any(axis=(1, 2)).all()


def test_a_column_that_is_left_leaves_the_others() -> None:
    """A row has nothing below its diagonal: its reflector is 1, also beside an infinity."""
    x = matrices("f32", 20, 1, 2)
    x[7, 0, 1], x[8, 0, 1] = np.inf, -0.0
    factors, t = hlo.compile(hlo.parse(qr_text("f32", 20, 1, 2)), cache=False)(x)
    assert np.asarray(factors).tobytes() == x.tobytes()
    assert not np.asarray(t).any()


def test_few_or_large_matrices_are_left_to_lapack() -> None:
    assert not is_together(qr_text("f32", 3, 4, 4))
    assert not is_together(qr_text("f64", 64, 40, 40))
    assert not is_together(q_text("f32", 3, 4, 4, 4))
