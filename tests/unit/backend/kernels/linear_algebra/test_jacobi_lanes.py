"""Many small matrices, a lane each: Jacobi's eigenvalues and singular values beside LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver

TYPES = {"f32": ("s", np.float32), "f64": ("d", np.float64)}


def eigenvalues_text(dtype: str, batch: int, n: int, uplo: str = "L", read: int = 1) -> str:
    """read: the number of the result that is read beside the failures."""
    results = (f"{dtype}[{batch},{n},{n}]", f"{dtype}[{batch},{n}]", f"s32[{batch}]")
    return _program(dtype, results, "syevd", f"mode = 86 : ui8, uplo = {ord(uplo)} : ui8", read)


def singular_text(dtype: str, batch: int, m: int, n: int) -> str:
    k = min(m, n)
    shapes = ((m, n), (k,), (m, k), (k, n))
    results = [f"{dtype}[{','.join(map(str, (batch, *dims)))}]" for dims in shapes]
    return _program(dtype, (*results, f"s32[{batch}]"), "gesdd", "mode = 83 : ui8", 1)


def _program(dtype: str, results: tuple[str, ...], name: str, config: str, read: int) -> str:
    last = len(results) - 1
    return (
        f"HloModule m\nENTRY e {{\n  x = {results[0]} parameter(0)\n"
        f"  c = ({', '.join(results)}) custom-call(x), "
        f'custom_call_target="lapack_{TYPES[dtype][0]}{name}_ffi", '
        f'backend_config="{{{config}}}", api_version=API_VERSION_TYPED_FFI\n'
        f"  w = {results[read]} get-tuple-element(c), index={read}\n"
        f"  i = {results[last]} get-tuple-element(c), index={last}\n"
        f"  ROOT t = ({results[read]}, {results[last]}) tuple(w, i)\n}}\n"
    )


def is_together(text: str) -> bool:
    return "at once" in driver.emit_stage(hlo.parse(text), "loops")


def matrices(dtype: str, batch: int, m: int, n: int) -> np.ndarray:
    """Plain ones, and at the start those that need care: equal values, none, ends of the range,
    elements of very different sizes, ranks of one."""
    kind = TYPES[dtype][1]
    x = np.random.default_rng(m + n).standard_normal((batch, m, n)).astype(kind)
    x[0], x[1] = np.eye(m, n), 0
    x[2] *= np.finfo(kind).max / 1024
    x[3] *= np.finfo(kind).tiny * 8
    x[4] *= np.logspace(0, -12, n, dtype=kind)
    x[5] = 3
    return x


def assert_alike(text: str, x: np.ndarray, steps: int) -> None:
    found = hlo.compile(hlo.parse(text), cache=False, threads=3)(x)
    wanted = hlo.evaluate(hlo.parse(text), x)
    np.testing.assert_array_equal(np.asarray(found[1]), np.asarray(wanted[1]))
    a, b = (np.asarray(r[0], np.float64) for r in (found, wanted))
    scale = np.abs(np.nan_to_num(x)).max(axis=(1, 2)).astype(np.float64)[:, None]
    info = np.finfo(x.dtype)
    assert (np.isnan(a) == np.isnan(b)).all()
    away = np.abs(np.nan_to_num(a) - np.nan_to_num(b))
    assert (away <= steps * (info.eps * scale + float(info.smallest_subnormal))).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize(("batch", "n"), [(2 * 16 + 3, 3), (16, 8), (19, 13), (17, 1), (18, 2)])
def test_eigenvalues(dtype: str, uplo: str, batch: int, n: int) -> None:
    """The triangle that is not read holds anything but NaN."""
    pytest.importorskip("scipy")
    text = eigenvalues_text(dtype, batch, n, uplo)
    assert is_together(text)
    x = matrices(dtype, batch, n, n)
    x[6] += 100 * (np.triu(np.ones((n, n)), 1) if uplo == "L" else np.tril(np.ones((n, n)), -1))
    assert_alike(text, x, 8 * n)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("batch", "m", "n"), [(35, 3, 3), (16, 8, 8), (19, 20, 4), (18, 5, 13), (17, 1, 1), (20, 1, 6)]
)
def test_singular_values(dtype: str, batch: int, m: int, n: int) -> None:
    pytest.importorskip("scipy")
    text = singular_text(dtype, batch, m, n)
    assert is_together(text)
    assert_alike(text, matrices(dtype, batch, m, n), 8 * (m + n))


def test_nan_is_reported_as_lapack_does_and_spoils_no_other_lane() -> None:
    pytest.importorskip("scipy")
    x = matrices("f32", 20, 4, 4)
    x = x + x.transpose(0, 2, 1)
    for text in (eigenvalues_text("f32", 20, 4), singular_text("f32", 20, 4, 4)):
        spoiled = x.copy()
        spoiled[7, 2, 1] = spoiled[7, 1, 2] = np.nan
        reference = hlo.evaluate(hlo.parse(text), spoiled)
        spoiled[9, 0, 0] = np.inf  # of which LAPACK's gesdd would make an endless loop
        values, codes = (np.asarray(r) for r in hlo.compile(hlo.parse(text), cache=False)(spoiled))
        clean = np.asarray(hlo.compile(hlo.parse(text), cache=False)(x)[0])
        others = [k for k in range(20) if k not in (7, 9)]
        np.testing.assert_array_equal(values[others], clean[others])
        for lane in (7, 9):
            np.testing.assert_array_equal(values[lane], np.asarray(reference[0])[7])
            assert codes[lane] == np.asarray(reference[1])[7]


def test_who_reads_vectors_or_has_few_or_large_matrices_calls_lapack() -> None:
    assert not is_together(eigenvalues_text("f32", 40, 4, read=0))
    assert not is_together(eigenvalues_text("f32", 3, 4))
    assert not is_together(eigenvalues_text("f64", 40, 40))
    assert not is_together(singular_text("f64", 40, 40, 33))
