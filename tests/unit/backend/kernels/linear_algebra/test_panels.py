"""LU and QR by panels, beside LAPACK's own: rectangles, pivots that fail, ends of the range."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.kernels.linear_algebra import lapack_symbols
from hlo.backend.linking.toolchain import host_machine
from hlo.ir import dtype as dt
from hlo.machine import NAMED, Machine
from tests.support.machines_here import runs_here

lapack = pytest.importorskip("scipy.linalg.lapack")

TYPES = {"f32": ("s", np.float32), "f64": ("d", np.float64)}
SHAPES = [(1, 40, 40), (3, 33, 20), (2, 20, 50), (1, 130, 70), (1, 70, 130), (2, 1, 1), (1, 64, 64)]
MACHINES = [m for m in NAMED.values() if runs_here(m)]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes go to our kernels, as where there is no LAPACK."""
    monkeypatch.setattr(lapack_symbols, "has_routine", lambda _: False)


def text(routine: str, dtype: str, operands: list[str], results: list[str]) -> str:
    rows = "".join(f"  p{k} = {dtype}{dims} parameter({k})\n" for k, dims in enumerate(operands))
    made = ", ".join(results)
    shape = f"({made})" if len(results) > 1 else made
    arguments = ", ".join(f"p{k}" for k in range(len(operands)))
    return (
        f"HloModule m\nENTRY e {{\n{rows}  ROOT r = {shape} custom-call({arguments}), "
        f'custom_call_target="lapack_{TYPES[dtype][0]}{routine}_ffi", backend_config="{{}}", '
        "api_version=API_VERSION_TYPED_FFI\n}\n"
    )


def lu_text(dtype: str, batch: int, rows: int, columns: int) -> str:
    whole, least = f"[{batch},{rows},{columns}]", min(rows, columns)
    results = [f"{dtype}{whole}", f"s32[{batch},{least}]", f"s32[{batch}]"]
    return text("getrf", dtype, [whole], results)


def qr_text(dtype: str, batch: int, rows: int, columns: int) -> str:
    whole, least = f"[{batch},{rows},{columns}]", min(rows, columns)
    return text("geqrf", dtype, [whole], [f"{dtype}{whole}", f"{dtype}[{batch},{least}]"])


def q_text(dtype: str, batch: int, rows: int, columns: int, count: int) -> str:
    whole = f"[{batch},{rows},{columns}]"
    return text("orgqr", dtype, [whole, f"[{batch},{count}]"], [f"{dtype}{whole}"])


def compiled(source: str, machine: Machine | None = None) -> hlo.Compiled:
    return hlo.compile(hlo.parse(source), cache=False, threads=2, machine=machine)


def routine(dtype: str, name: str):  # type: ignore[no-untyped-def]
    return getattr(lapack, TYPES[dtype][0] + name)


def matrices(dtype: str, shape: tuple[int, int, int]) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(TYPES[dtype][1])


def calls_lapack(source: str) -> bool:
    kernels = Compilation(hlo.parse(source), passes="", threads=1).program.kernels
    return any("lapack" in line for kernel in kernels for line in kernel.declarations)


def check_lu(x: np.ndarray, dtype: str, machine: Machine | None = None) -> None:
    factors, pivots, failures = map(np.asarray, compiled(lu_text(dtype, *x.shape), machine)(x))
    for k, a in enumerate(x):
        wanted, places, info = routine(dtype, "getrf")(a)
        assert list(places + 1) == list(pivots[k])
        assert info == failures[k]
        bound = 40 * max(a.shape) * np.finfo(a.dtype).eps * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(factors[k], wanted, rtol=0, atol=bound)


def check_qr(x: np.ndarray, dtype: str, machine: Machine | None = None) -> None:
    _, rows, columns = x.shape
    factors, shares = map(np.asarray, compiled(qr_text(dtype, *x.shape), machine)(x))
    bound = 40 * max(rows, columns) * np.finfo(x.dtype).eps
    for k, a in enumerate(x):
        wanted, own_shares, _, _ = routine(dtype, "geqrf")(a)
        scale = max(np.abs(a).max(), np.finfo(a.dtype).tiny)
        for part, size in ((np.triu, scale), (lambda m: np.tril(m, -1), 1.0)):
            found, expected = (part(m.astype(np.float64)) / size for m in (factors[k], wanted))
            np.testing.assert_allclose(found, expected, rtol=0, atol=bound)
        np.testing.assert_allclose(shares[k], own_shares, rtol=0, atol=bound)
    if rows < columns:
        return
    for count in {columns, max(1, columns - 3), max(1, columns // 2)}:
        made = compiled(q_text(dtype, *x.shape, count), machine)(factors, shares[:, :count].copy())
        for k, q in enumerate(np.asarray(made)):
            wanted = routine(dtype, "orgqr")(factors[k].copy(), shares[k, :count])[0]
            np.testing.assert_allclose(q, wanted, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("own")
def test_lu_and_qr(dtype: str, shape: tuple[int, int, int]) -> None:
    x = matrices(dtype, shape)
    check_lu(x, dtype)
    check_qr(x, dtype)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_every_machine_here(machine: Machine) -> None:
    for dtype in TYPES:
        x = matrices(dtype, (2, 45, 37))
        check_lu(x, dtype, machine)
        check_qr(x, dtype, machine)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("exponent", [0.98, -0.98])
def test_ends_of_the_range(dtype: str, exponent: float) -> None:
    """Squares and reciprocals of these are beyond it."""
    kind = TYPES[dtype][1]
    scale = kind(2.0) ** kind(np.finfo(kind).maxexp * exponent - np.sign(exponent) * 6)
    x = matrices(dtype, (1, 50, 40)) * scale
    check_qr(x.astype(kind), dtype)
    factors, pivots, _ = map(np.asarray, compiled(lu_text(dtype, *x.shape))(x.astype(kind)))
    wanted, places, _ = routine(dtype, "getrf")(x[0].astype(kind))
    assert list(places + 1) == list(pivots[0])
    assert np.isfinite(factors).all()
    np.testing.assert_allclose(
        np.tril(factors[0], -1), np.tril(wanted, -1), rtol=0, atol=2000 * np.finfo(kind).eps
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_errors_are_no_larger_than_those_of_lapack(dtype: str) -> None:
    """Long columns, rows of very different sizes: sums are added up some rows at a time."""
    kind = TYPES[dtype][1]
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 500, 120)).astype(kind)
    x[0, :250] *= kind(1000)
    factors, shares = map(np.asarray, compiled(qr_text(dtype, *x.shape))(x))
    q = np.asarray(compiled(q_text(dtype, *x.shape, 120))(factors, shares))[0]
    wanted, own_shares, _, _ = routine(dtype, "geqrf")(x[0])
    theirs = routine(dtype, "orgqr")(wanted, own_shares)[0]

    def error(q: np.ndarray, r: np.ndarray) -> float:
        exact, upper = q.astype(np.longdouble), np.triu(r[:120]).astype(np.longdouble)
        return float(np.linalg.norm((exact @ upper - x[0]).astype(np.float64)))

    assert error(q, factors[0]) <= 1.5 * error(theirs, wanted)
    left = [np.linalg.norm(m.T.astype(np.float64) @ m - np.eye(120)) for m in (q, theirs)]
    assert left[0] <= 1.5 * left[1] + 1e-15


def test_columns_without_a_pivot_are_reported() -> None:
    x = matrices("f64", (3, 40, 40))
    x[0, :, 17] = 0
    x[1] = 0
    _, pivots, failures = map(np.asarray, compiled(lu_text("f64", *x.shape))(x))
    assert list(failures) == [18, 1, 0]
    assert list(pivots[1]) == list(range(1, 41))


def test_equal_pivots_are_the_first_and_zero_columns_stay() -> None:
    x = np.sign(matrices("f32", (2, 48, 48)))
    x[1, 20:, :10] = 0
    x[1, np.arange(10), np.arange(10)] = -1
    x[1, :20, :10] = np.triu(x[1, :20, :10])
    check_lu(x, "f32")
    factors, shares = map(np.asarray, compiled(qr_text("f32", *x.shape))(x))
    assert (shares[1, :10] == 0).all()
    assert (factors[1, :, :10] == x[1, :, :10]).all()


def test_nan_and_infinity_stay_in_their_matrix() -> None:
    x = matrices("f32", (3, 40, 40))
    x[0, 5, 7], x[2, 39, 0] = np.nan, np.inf
    for source in (lu_text("f32", *x.shape), qr_text("f32", *x.shape)):
        factors = np.asarray(compiled(source)(x)[0])
        assert not np.isfinite(factors[0]).all()
        assert np.isfinite(factors[1]).all()
        assert not np.isfinite(factors[2]).all()


def test_what_is_above_a_row_with_infinity_is_as_without() -> None:
    x = matrices("f64", (1, 40, 40)) + 50 * np.eye(40)
    y = x.copy()
    y[0, 30, 35] = np.inf
    source = lu_text("f64", *x.shape)
    without, others = (np.asarray(compiled(source)(m)[0]) for m in (x, y))
    assert (without[0, :30] == others[0, :30]).all()


def test_sizes_choose_who_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = host_machine()
    few = 2 * machine.registers // 2  # rows of two panels
    assert calls_lapack(lu_text("f32", 1, few, few))
    assert not calls_lapack(lu_text("f32", 1, few + 1, few + 1))
    assert not calls_lapack(qr_text("f64", 1, 2 * few, 2 * few))
    most = int((2 * machine.second_cache.bytes / dt.F64.item_bytes) ** 0.5)
    assert calls_lapack(qr_text("f64", 1, most + few, most + few))
    monkeypatch.setattr(lapack_symbols, "has_routine", lambda _: False)
    assert not calls_lapack(lu_text("f32", 1, 4, 4))


def test_code_for_machines_with_other_vectors() -> None:
    for name in ("neoverse-v1", "rv64gcv"):
        machine = replace(NAMED[name])
        shown = driver.emit_stage(hlo.parse(qr_text("f32", 1, 60, 60)), "asm", machine=machine)
        assert "lapack" not in shown


def test_both_halves_of_a_qr_share_their_functions() -> None:
    """LLVM sees what both do once."""
    both = (
        "HloModule m\nENTRY e {\n  x = f32[1,60,60] parameter(0)\n"
        "  r = (f32[1,60,60], f32[1,60]) custom-call(x), custom_call_target="
        '"lapack_sgeqrf_ffi", backend_config="{}", api_version=API_VERSION_TYPED_FFI\n'
        "  a = f32[1,60,60] get-tuple-element(r), index=0\n"
        "  t = f32[1,60] get-tuple-element(r), index=1\n"
        "  ROOT q = f32[1,60,60] custom-call(a, t), custom_call_target="
        '"lapack_sorgqr_ffi", backend_config="{}", api_version=API_VERSION_TYPED_FFI\n}\n'
    )
    made = Compilation(hlo.parse(both), passes="", threads=1).program.kernels
    texts = [f.text for kernel in made for f in kernel.functions]
    assert len(set(texts)) < len(texts)


LARGE = [(1, 257, 257), (1, 320, 320), (1, 300, 700), (1, 700, 265), (1, 511, 513)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", LARGE)
def test_large_matrices_are_shared_out(dtype: str, shape: tuple[int, int, int]) -> None:
    x = matrices(dtype, shape)
    check_lu(x, dtype)
    source = hlo.parse(lu_text(dtype, *shape))
    assert len(Compilation(source, cache=False).program.kernels) == 4
    bits = {
        b"".join(np.asarray(part).tobytes() for part in hlo.compile(source, threads=n)(x))
        for n in (1, 2, 3)
    }
    assert len(bits) == 1


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_large_matrices_on_every_machine_here(machine: Machine) -> None:
    for dtype in TYPES:
        check_lu(matrices(dtype, (1, 290, 301)), dtype, machine)


@pytest.mark.parametrize("column", [0, 17, 63, 64, 200, 299])
def test_large_matrices_report_the_first_column_without_a_pivot(column: int) -> None:
    x = matrices("f64", (1, 300, 300))
    x[0, :, column] = x[0, :, 250] = 0
    factors, pivots, failures = map(np.asarray, compiled(lu_text("f64", *x.shape))(x))
    wanted, places, number = routine("f64", "getrf")(x[0])
    assert list(failures) == [min(column, 250) + 1] == [number]
    assert list(places + 1) == list(pivots[0])
    np.testing.assert_allclose(factors[0], wanted, rtol=0, atol=1e-9)


def test_nan_does_not_leave_a_large_matrix_unfinished() -> None:
    x = matrices("f32", (1, 300, 300))
    x[0, 5, 7] = np.nan
    factors, pivots, _ = map(np.asarray, compiled(lu_text("f32", *x.shape))(x))
    assert not np.isfinite(factors).all()
    assert ((pivots >= 1) & (pivots <= 300)).all()
