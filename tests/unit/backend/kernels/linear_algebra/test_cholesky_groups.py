"""Large Cholesky factors, shared out by groups of rows: both triangles, failures, every machine."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.machine import NAMED, Machine
from tests.support.covering import covering
from tests.support.machines_here import runs_here

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
MACHINES = [m for m in NAMED.values() if runs_here(m)]


def text(dtype: str, dims: tuple[int, ...], *, lower: bool) -> str:
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    return (
        f"HloModule m\nENTRY e {{\n  a = {shape} parameter(0)\n"
        f"  ROOT c = {shape} cholesky(a), lower={str(lower).lower()}\n}}\n"
    )


def potrf(dtype: str, n: int, uplo: str) -> str:
    whole = f"{dtype}[{n},{n}]"
    return (
        f"HloModule m\nENTRY e {{\n  a = {whole} parameter(0)\n"
        f'  ROOT c = ({whole}, s32[]) custom-call(a), custom_call_target="lapack_spotrf_ffi", '
        f'backend_config="{{uplo = {ord(uplo)} : ui8}}", api_version=API_VERSION_TYPED_FFI\n}}\n'
    )


def positive(dtype: str, dims: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(dims[-1])
    a = rng.standard_normal(dims) + 1j * (dtype[0] == "c") * rng.standard_normal(dims)
    a = a @ a.conj().swapaxes(-1, -2) / dims[-1] + np.eye(dims[-1])
    return a.astype(TYPES[dtype]) if dtype[0] == "c" else a.real.astype(TYPES[dtype])


def run(source: str, a: np.ndarray, threads: int = 2, machine: Machine | None = None) -> list:
    compiled = hlo.compile(hlo.parse(source), cache=False, threads=threads, machine=machine)
    found = compiled(a)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def factors(a: np.ndarray, *, lower: bool) -> np.ndarray:
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    found = np.linalg.cholesky(wide)
    return found if lower else found.conj().swapaxes(-1, -2)


@pytest.mark.parametrize(
    ("dtype", "uplo", "dims"), covering(TYPES, "LU", [(257, 257), (320, 320), (2, 333, 333)])
)
def test_factors(dtype: str, uplo: str, dims: tuple[int, ...]) -> None:
    lower = uplo == "L"
    a = positive(dtype, dims)
    # The other triangle is read by nobody.
    where = np.triu_indices(dims[-1], 1) if lower else np.tril_indices(dims[-1], -1)
    a[..., where[0], where[1]] = np.nan
    (found,) = run(text(dtype, dims, lower=lower), a)
    (alone,) = run(text(dtype, dims, lower=lower), a, threads=1)
    assert found.tobytes() == alone.tobytes()
    want = factors(positive(dtype, dims), lower=lower)
    eps = np.finfo(TYPES[dtype]).eps
    np.testing.assert_allclose(found, want, rtol=0, atol=32 * eps * np.abs(want).max())


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_machine_here(machine: Machine) -> None:
    for dtype in ("f32", "c64"):
        a = positive(dtype, (300, 300))
        (found,) = run(text(dtype, (300, 300), lower=True), a, machine=machine)
        np.testing.assert_allclose(found, factors(a, lower=True), atol=1e-5)


@pytest.mark.parametrize(("at", "uplo"), covering([0, 63, 64, 200, 299], "LU", strength=1))
def test_failures_are_counted_as_lapack_does(at: int, uplo: str) -> None:
    a = positive("f32", (300, 300))
    a[at, at] = a[299, 299] = -1
    found, failed = run(potrf("f32", 300, uplo), a)
    lapack = pytest.importorskip("scipy.linalg.lapack")
    want, number = lapack.spotrf(a, lower=uplo == "L", clean=False)
    assert failed == number == at + 1
    side = np.tril if uplo == "L" else np.triu
    kept = np.triu_indices(300, 1) if uplo == "L" else np.tril_indices(300, -1)
    np.testing.assert_array_equal(found[kept], a[kept])
    np.testing.assert_allclose(side(found)[:at, :at], side(want)[:at, :at], atol=1e-5)


def test_a_failure_makes_its_matrix_nan_and_no_other() -> None:
    a = positive("f64", (3, 270, 270))
    a[1, 100, 100] = -1
    (found,) = run(text("f64", a.shape, lower=True), a)
    assert np.isnan(found[1]).all()
    np.testing.assert_allclose(found[::2], factors(a[::2], lower=True), atol=1e-12)


@pytest.mark.parametrize(("n", "count"), [(256, 1), (257, 4), (600, 4)])
def test_large_matrices_are_shared_out(n: int, count: int) -> None:
    compilation = Compilation(hlo.parse(text("f32", (n, n), lower=True)), cache=False)
    assert len(compilation.program.kernels) == count
