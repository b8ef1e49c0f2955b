"""Cholesky factors and triangular systems as kernels: all forms, odd sizes, bad matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo
from hlo.backend.kernels.linear_algebra.matrix_calls import matrix_kernel
from hlo.ir.instruction import Instruction
from tests.support.covering import covering
from tests.support.kernel_runner import run

TYPES = {"f32": 2e-5, "f64": 1e-13, "c64": 2e-5, "c128": 1e-13, "bf16": 3e-2, "f16": 4e-3}
RNG = np.random.default_rng(7)


def normal(dims: tuple[int, ...], dtype: str) -> np.ndarray:
    x = RNG.standard_normal(dims)
    return x + 1j * RNG.standard_normal(dims) if dtype.startswith("c") else x


def lone(opcode: str, values: list[np.ndarray], dtype: str, **attributes: object) -> Instruction:
    b = hlo.Builder("lone")
    operands = [b.parameter("p", hlo.Shape.array(dtype, v.shape)) for v in values]
    return b.build(b.emit(opcode, *operands, **attributes)).entry.root


def typed(values: list[np.ndarray], dtype: str) -> list[np.ndarray]:
    return [v.astype(hlo.Shape.array(dtype, ()).dtype.numpy) for v in values]


def one_triangle(a: np.ndarray, *, lower: bool) -> np.ndarray:
    """The matrix with NaN where it must not be read."""
    hidden = ~np.tri(a.shape[-1], dtype=bool) if lower else ~np.tri(a.shape[-1], dtype=bool).T
    return np.where(hidden, np.nan, a)


def assert_near(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert np.array_equal(np.isnan(actual), np.isnan(expected))
    wide = actual.astype(expected.dtype)
    largest = np.nanmax(np.abs(expected), initial=1.0)
    assert np.nanmax(np.abs(wide - expected), initial=0.0) <= tolerance * largest


@pytest.mark.parametrize(
    ("lower", "dtype", "n"), covering([True, False], TYPES, [1, 7, 16, 33, 131])
)
def test_cholesky_reads_one_triangle_and_marks_bad_matrices(
    n: int, dtype: str, *, lower: bool
) -> None:
    root = normal((3, n, n), dtype)
    a = root @ np.conj(np.swapaxes(root, -1, -2)) / n + np.eye(n)
    a[1, n // 2, n // 2] = -1
    a = one_triangle(a, lower=lower)
    (given,) = typed([a], dtype)
    whole = given.astype(a.dtype)
    triangle = np.tril(whole) if lower else np.conj(np.swapaxes(np.triu(whole), -1, -2))
    expected = np.full(a.shape, np.nan, a.dtype)
    for k in (0, 2):
        expected[k] = np.linalg.cholesky(triangle[k])
    if not lower:
        expected = np.conj(np.swapaxes(expected, -1, -2))
    (actual,) = run(lone("cholesky", [given], dtype, lower=lower), [given], kernel=matrix_kernel)
    assert_near(actual, expected, TYPES[dtype])
    empty = ~np.tri(n, dtype=bool) if lower else ~np.tri(n, dtype=bool).T
    assert not actual[0][empty].any()


FORMS = list(
    itertools.product(
        [True, False], [True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]
    )
)


@pytest.mark.parametrize(
    ("dtype", "n", "m"),
    covering(TYPES, [(1, 1), (3, 17), (13, 33), (34, 5)], strength=1, several=(1,)),
)
def test_triangular_systems_in_every_form(n: int, m: int, dtype: str) -> None:
    forms = FORMS if (n, dtype) == (13, "c64") else FORMS[n % 7 :: 7]
    for left, lower, unit, transpose in forms:
        a = normal((2, n, n), dtype) * (0.5 / n) + np.eye(n) * (1 if unit else 2)
        b = normal((2, n, m) if left else (2, m, n), dtype)
        given = typed([one_triangle(a, lower=lower), b], dtype)
        matrix, right = (v.astype(a.dtype) for v in given)
        matrix = np.tril(matrix) if lower else np.triu(matrix)
        if unit:
            matrix[:, range(n), range(n)] = 1
        if transpose != "NO_TRANSPOSE":
            matrix = np.swapaxes(matrix, -1, -2)
            matrix = np.conj(matrix) if transpose == "ADJOINT" else matrix
        if left:
            expected = np.linalg.solve(matrix, right)
        else:
            turned = np.linalg.solve(np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2))
            expected = np.swapaxes(turned, -1, -2)
        instruction = lone(
            "triangular-solve", given, dtype,
            left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose,
        )  # fmt: skip
        (actual,) = run(instruction, given, kernel=matrix_kernel, over=(1, 0))
        assert_near(actual, expected, TYPES[dtype])


def test_singular_systems_divide_by_zero() -> None:
    a, b = typed([np.zeros((2, 2)), np.array([[1.0], [-1.0]])], "f32")
    attributes = {"left_side": True, "lower": True, "transpose_a": "NO_TRANSPOSE"}
    (x,) = run(lone("triangular-solve", [a, b], "f32", **attributes), [a, b], kernel=matrix_kernel)
    assert np.array_equal(x, [[np.inf], [np.nan]], equal_nan=True)


POTRF = """
HloModule potrf
ENTRY e {
  p = f64[2,5,5] parameter(0)
  ROOT r = (f64[2,5,5], s32[2]) custom-call(p), custom_call_target="lapack_dpotrf_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={uplo = 76 : ui8}
}
"""


def test_lapack_keeps_the_other_triangle_and_counts_the_bad_pivot() -> None:
    root = normal((2, 5, 5), "f64")
    a = root @ np.swapaxes(root, -1, -2) + np.eye(5)
    a[1, 2, 2] = -3
    factor, failed = hlo.compile(hlo.parse(POTRF), cache=False)(a)
    assert failed.tolist() == [0, 3]
    assert np.allclose(np.tril(factor[0]), np.linalg.cholesky(a[0]))
    assert np.array_equal(np.triu(factor[0], 1), np.triu(a[0], 1))


@pytest.mark.parametrize("dims", [(0, 4, 4), (3, 0, 0)])
def test_empty_matrices(dims: tuple[int, ...]) -> None:
    empty = np.zeros(dims, np.float32)
    b = hlo.Builder("empty")
    p = b.parameter("p", hlo.Shape.array("f32", dims))
    factor = b.emit("cholesky", p, lower=True)
    module = b.build(
        b.emit("triangular-solve", factor, p, left_side=True, lower=True, transpose_a="TRANSPOSE")
    )
    assert hlo.compile(module, cache=False)(empty).shape == dims


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_factors_and_solutions_do_not_depend_on_threads(threads: int) -> None:
    b = hlo.Builder("threads")
    a = b.parameter("a", hlo.Shape.array("f32", (6, 70, 70)))
    right = b.parameter("b", hlo.Shape.array("f32", (6, 70, 200)))
    factor = b.emit("cholesky", a, lower=True)
    attributes = {"left_side": True, "lower": True, "transpose_a": "NO_TRANSPOSE"}
    module = b.build(b.emit("triangular-solve", factor, right, **attributes))
    root = normal((6, 70, 70), "f32")
    positive = root @ np.swapaxes(root, -1, -2) + 70 * np.eye(70)
    values = typed([positive, normal((6, 70, 200), "f32")], "f32")
    alone = hlo.compile(module, cache=False, threads=1)(*values)
    assert np.array_equal(alone, hlo.compile(module, cache=False, threads=threads)(*values))
