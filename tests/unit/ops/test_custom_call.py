"""Custom calls: the user's registry, LAPACK's results by their defining equations."""

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.ops.custom_call import register_custom_call
from hlo.ops.lapack import attributes
from hlo.parser.parse import parse

pytest.importorskip("scipy")


def call(target: str, operands: list[np.ndarray], result: str, config: str = "{}") -> object:
    kinds = {"f": "f", "c": "c", "i": "s"}
    rows, names = [], []
    for i, array in enumerate(operands):
        dims = ",".join(map(str, array.shape))
        kind = f"{kinds[array.dtype.kind]}{array.dtype.itemsize * 8}[{dims}]"
        rows.append(f"  p{i} = {kind} parameter({i})")
        names.append(f"p{i}")
    ffi = f"api_version=API_VERSION_TYPED_FFI, backend_config={config}"
    rows.append(
        f'  ROOT r = {result} custom-call({", ".join(names)}), custom_call_target="{target}", {ffi}'
    )
    return evaluate(parse("HloModule m\nENTRY e {\n" + "\n".join(rows) + "\n}"), *operands)


@pytest.mark.usefixtures("registry")
def test_registered_function_runs() -> None:
    register_custom_call("twice", lambda x: 2 * x)
    assert call("twice", [np.ones(2, np.float32)], "f32[2]").tolist() == [2, 2]  # type: ignore[attr-defined]  # an array


@pytest.mark.usefixtures("registry")
def test_operands_are_the_functions_own() -> None:
    def function(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    register_custom_call("grown", function)
    x = np.ones(2, np.float32)
    assert call("grown", [x], "f32[2]").tolist() == [2, 2]  # type: ignore[attr-defined]  # an array
    assert x.tolist() == [1, 1]


@pytest.mark.usefixtures("registry")
def test_registered_function_must_give_the_right_shape() -> None:
    register_custom_call("wrong", lambda x: x.astype(np.float64))
    with pytest.raises(HloError, match="float64\\[2\\], expected f32\\[2\\]") as caught:
        call("wrong", [np.ones(2, np.float32)], "f32[2]")
    assert caught.value.code == "arguments"


def test_unknown_target_suggests_a_near_one() -> None:
    with pytest.raises(HloError) as caught:
        call("Shardin", [np.ones(2, np.float32)], "f32[2]")
    assert caught.value.code == "unsupported"
    assert caught.value.help == "did you mean 'Sharding'?"


def test_python_callbacks_are_explained() -> None:
    with pytest.raises(HloError, match="the process that traced the program"):
        call("xla_ffi_python_cpu_callback", [np.ones(2, np.float32)], "f32[2]")


def test_attributes_of_the_typed_ffi() -> None:
    found = attributes("{diag = 78 : ui8, left = true, low = 1 : i32}")
    assert found == {"diag": "N", "left": True, "low": 1}


RNG = np.random.default_rng(11)


def matrices(*dims: int, dtype: type = np.float32) -> np.ndarray:
    values = RNG.standard_normal(dims)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * RNG.standard_normal(dims)
    return values.astype(dtype)


@pytest.mark.parametrize(("letter", "dtype", "name"), [("s", np.float32, "f32"),
                                                       ("z", np.complex128, "c128")])  # fmt: skip
def test_lu_factors_multiply_to_the_matrix(letter: str, dtype: type, name: str) -> None:
    a = matrices(2, 4, 4, dtype=dtype)
    shapes = f"({name}[2,4,4], s32[2,4], s32[2])"
    lu, pivots, info = call(f"lapack_{letter}getrf_ffi", [a], shapes)  # type: ignore[misc]  # a tuple
    assert info.tolist() == [0, 0]
    for matrix, factors, swaps in zip(a, lu, pivots, strict=True):
        rows = np.arange(4)
        for i, swap in enumerate(swaps - 1):
            rows[[i, swap]] = rows[[swap, i]]
        product = (np.tril(factors, -1) + np.eye(4)) @ np.triu(factors)
        assert np.allclose(product, matrix[rows], atol=1e-5)


def test_qr_factors_multiply_to_the_matrix() -> None:
    a = matrices(5, 3)
    qr, tau = call("lapack_sgeqrf_ffi", [a], "(f32[5,3], f32[3])")  # type: ignore[misc]  # a tuple
    q = call("lapack_sorgqr_ffi", [qr, tau], "f32[5,3]")
    assert isinstance(q, np.ndarray)
    assert np.allclose(q @ np.triu(qr[:3]), a, atol=1e-5)
    packed, taus = call("Qr", [a], "(f32[5,3], f32[3])")  # type: ignore[misc]  # a tuple
    again = call("ProductOfElementaryHouseholderReflectors", [packed, taus], "f32[5,3]")
    assert np.allclose(again, q, atol=1e-5)  # type: ignore[arg-type]  # arrays
    config = "{left = true, transpose = true}"
    turned = call("lapack_sormqr_ffi", [qr, tau, a], "f32[5,3]", config)
    assert np.allclose(turned[:3], np.triu(qr[:3]), atol=1e-5)  # type: ignore[index]  # arrays


def test_pivoted_qr_permutes_columns() -> None:
    a = matrices(4, 3, dtype=np.float64)
    free = np.zeros(3, np.int32)
    result = "(f64[4,3], s32[3], f64[3])"
    qr, pivots, tau = call("lapack_dgeqp3_ffi", [a, free], result)  # type: ignore[misc]  # a tuple
    q = call("lapack_dorgqr_ffi", [qr, tau], "f64[4,3]")
    assert np.allclose(q @ np.triu(qr[:3]), a[:, pivots - 1])  # type: ignore[operator]  # arrays


@pytest.mark.parametrize(("mode", "columns", "rows"), [("A", 5, 3), ("S", 3, 3)])
def test_singular_values(mode: str, columns: int, rows: int) -> None:
    a = matrices(5, 3, dtype=np.complex64)
    shapes = f"(c64[5,3], f32[3], c64[5,{columns}], c64[{rows},3], s32[])"
    _, s, u, vt, info = call("lapack_cgesdd_ffi", [a], shapes, f"{{mode = {ord(mode)} : ui8}}")  # type: ignore[misc]  # a tuple
    assert info == 0
    assert np.allclose(u[:, :3] * s @ vt, a, atol=1e-5)


def test_symmetric_eigenvectors() -> None:
    a = matrices(4, 4, dtype=np.float64)
    a = a + a.T
    config = f"{{mode = {ord('V')} : ui8, uplo = {ord('L')} : ui8}}"
    v, w, _ = call("lapack_dsyevd_ffi", [a], "(f64[4,4], f64[4], s32[])", config)  # type: ignore[misc]  # a tuple
    assert np.allclose(a @ v, v * w)
    config = '"1,1,100,0.000001"'
    vectors, values = call("Eigh", [a], "(f64[4,4], f64[4])", config)  # type: ignore[misc]  # a tuple
    assert np.allclose(values, w)
    assert np.allclose(a @ vectors, vectors * values)


def test_general_eigenvectors() -> None:
    a = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 2]], np.float32)
    config = f"{{compute_left = {ord('V')} : ui8, compute_right = {ord('V')} : ui8}}"
    shapes = "(f32[3], f32[3], c64[3,3], c64[3,3], s32[])"
    wr, wi, left, right, _ = call("lapack_sgeev_ffi", [a], shapes, config)  # type: ignore[misc]  # a tuple
    w = wr + 1j * wi
    assert np.allclose(a @ right, right * w, atol=1e-6)
    assert np.allclose(np.conj(left.T) @ a, w[:, None] * np.conj(left.T), atol=1e-6)


def test_schur_form_and_hessenberg_form() -> None:
    a = matrices(4, 4, dtype=np.float64)
    config = f"{{mode = {ord('V')} : ui8, sort = {ord('N')} : ui8}}"
    shapes = "(f64[4,4], f64[4,4], f64[4], f64[4], s32[], s32[])"
    t, z, *_ = call("lapack_dgees_ffi", [a], shapes, config)  # type: ignore[misc]  # a tuple
    assert np.allclose(z @ t @ z.T, a)
    h, _, info = call("lapack_dgehrd_ffi", [a], "(f64[4,4], f64[3], s32[])",
                      "{high = 4 : i32, low = 1 : i32}")  # type: ignore[misc]  # fmt: skip
    assert info == 0
    assert np.allclose(np.sort(np.linalg.eigvals(np.triu(h, -1))), np.sort(np.linalg.eigvals(a)))


def test_tridiagonal_reduction_and_solution() -> None:
    a = matrices(4, 4, dtype=np.float64)
    a = a + a.T
    config = f"{{uplo = {ord('L')} : ui8}}"
    shapes = "(f64[4,4], f64[4], f64[3], f64[3], s32[])"
    _, d, e, _, _ = call("lapack_dsytrd_ffi", [a], shapes, config)  # type: ignore[misc]  # a tuple
    tridiagonal = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    assert np.allclose(np.linalg.eigvalsh(tridiagonal), np.linalg.eigvalsh(a))
    lower, diagonal = np.array([0, 1, 1.0]), np.array([4.0, 4, 4])
    upper, b = np.array([1.0, 1, 0]), np.array([[5.0], [6], [5]])
    x = call("tridiagonal_solve_perturbed_ffi", [lower, diagonal, upper, b], "f64[3,1]")
    assert np.allclose(x, 1)  # type: ignore[arg-type]  # arrays


@pytest.mark.parametrize("side", ["L", "R"])
@pytest.mark.parametrize("turned", ["N", "T", "C"])
def test_triangular_systems(side: str, turned: str) -> None:
    a, b = matrices(3, 3, dtype=np.complex128), matrices(3, 3, dtype=np.complex128)
    config = (
        f"{{diag = {ord('N')} : ui8, side = {ord(side)} : ui8, "
        f"trans_x = {ord(turned)} : ui8, uplo = {ord('L')} : ui8}}"
    )
    x = call("lapack_ztrsm_ffi", [a, b], "c128[3,3]", config)
    matrix = {"N": np.tril(a), "T": np.tril(a).T, "C": np.conj(np.tril(a).T)}[turned]
    assert np.allclose(matrix @ x if side == "L" else x @ matrix, b)  # type: ignore[operator]  # arrays


def test_sparse_rows_times_dense() -> None:
    data, starts = np.array([1, 2, 3], np.float32), np.array([0, 2, 2, 3], np.int32)
    columns, right = np.array([0, 2, 1], np.int32), matrices(3, 2)
    product = call("cpu_csr_sparse_dense_ffi", [data, starts, columns, right], "f32[3,2]")
    dense = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]], np.float32)
    assert np.allclose(product, dense @ right)  # type: ignore[arg-type]  # arrays


def test_sparse_entries_that_no_row_or_column_has_count_for_nothing() -> None:
    data, starts = np.array([9, 1, 2, 3, 9], np.float32), np.array([1, 3, 3, 4], np.int32)
    columns, right = np.array([0, 0, 7, 1, -1], np.int32), matrices(3, 2)
    product = call("cpu_csr_sparse_dense_ffi", [data, starts, columns, right], "f32[3,2]")
    dense = np.array([[1, 0, 0], [0, 0, 0], [0, 3, 0]], np.float32)
    assert np.allclose(product, dense @ right)  # type: ignore[arg-type]  # arrays


@pytest.mark.parametrize(("fixed", "order"), [([0, 0, 1], 3), ([1, 0, 1], 1), ([0, 1, 0], 2)])
@pytest.mark.parametrize("rows", [2, 4])
def test_pivoted_factors_keep_chosen_columns_first(fixed: list[int], order: int, rows: int) -> None:
    a = np.random.default_rng(1).normal(size=(rows, 3))
    k = min(rows, 3)
    result = f"(f64[{rows},3], s32[3], f64[{k}])"
    qr, pivots, tau = call("lapack_dgeqp3_ffi", [a, np.array(fixed, np.int32)], result)  # type: ignore[misc]  # a tuple
    assert pivots[0] == order
    assert sorted(pivots) == [1, 2, 3]
    q = np.eye(rows)
    for j in range(k):
        v = np.concatenate([np.zeros(j), [1.0], qr[j + 1 :, j]])
        q = q @ (np.eye(rows) - tau[j] * np.outer(v, v))
    np.testing.assert_allclose(q @ np.triu(qr), a[:, pivots - 1], atol=1e-12)


def test_built_in_target_of_wrong_shapes_is_an_error() -> None:
    with pytest.raises(HloError, match="expected those of lapack_dpotrf_ffi") as raised:
        call("lapack_dpotrf_ffi", [np.eye(2)], "(f64[4,2], s32[])", "{uplo = 76 : ui8}")
    assert raised.value.code == "shape-mismatch"
