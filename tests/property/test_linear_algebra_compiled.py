"""Random factorisations, transforms, normalisations, ragged products: compiled as interpreted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hlo
from hlo.ir.instruction import Instruction

TOLERANCE = {"f32": 1e-4, "c64": 1e-4, "f64": 1e-10, "c128": 1e-10}  # beside the largest element
REAL = {"f32": "f32", "c64": "f32", "f64": "f64", "c128": "f64"}
COMPLEX = {"f32": "c64", "c64": "c64", "f64": "c128", "c128": "c128"}


class Case:
    """A module of one instruction with random operands."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = hlo.Builder("case")
        self.arguments: list[np.ndarray] = []
        self.type = str(self.rng.choice(list(TOLERANCE)))
        self.batch = self.sizes((0, 1, 2, 3), self.below(3))

    def below(self, limit: int) -> int:
        return int(self.rng.integers(limit))

    def sizes(self, choices: tuple[int, ...], rank: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.choice(choices, rank))

    def normal(self, dims: tuple[int, ...], dtype: str) -> np.ndarray:
        x = self.rng.standard_normal(dims)
        if dtype.startswith("c"):
            x = x + 1j * self.rng.standard_normal(dims)
        return np.asarray(x).astype(hlo.Shape.array(dtype).dtype.numpy)

    def enter(self, value: np.ndarray, dtype: str) -> Instruction:
        shape = hlo.Shape.array(dtype, value.shape)
        self.arguments.append(value.astype(shape.dtype.numpy))
        return self.b.parameter("p", shape)


def cholesky(c: Case) -> Instruction:
    (n,) = c.sizes((0, 1, 2, 3, 5, 8, 13, 17), 1)
    factor = c.normal((*c.batch, n, n), c.type)
    positive = factor @ np.conj(np.swapaxes(factor, -1, -2)) + n * np.eye(n)
    return c.b.emit("cholesky", c.enter(positive, c.type), lower=bool(c.below(2)))


def triangular_solve(c: Case) -> Instruction:
    n, m = c.sizes((0, 1, 2, 3, 5, 8, 13), 2)
    on_left = bool(c.below(2))
    matrix = c.normal((*c.batch, n, n), c.type) + 4 * n * np.eye(n)
    right = c.normal((*c.batch, *((n, m) if on_left else (m, n))), c.type)
    return c.b.emit(
        "triangular-solve", c.enter(matrix, c.type), c.enter(right, c.type), left_side=on_left,
        lower=bool(c.below(2)), unit_diagonal=c.below(5) == 0,
        transpose_a=("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[c.below(3)],
    )  # fmt: skip


def fft(c: Case) -> Instruction:
    kind = ("FFT", "IFFT", "RFFT", "IRFFT")[c.below(4)]
    lengths = c.sizes((1, 2, 3, 4, 5, 7, 8, 12, 16), 1 + c.below(3))
    dims = (*c.batch, *lengths)
    if kind == "IRFFT":
        dims = (*dims[:-1], lengths[-1] // 2 + 1)
    dtype = (REAL if kind == "RFFT" else COMPLEX)[c.type]
    return c.b.fft(c.enter(c.normal(dims, dtype), dtype), kind, lengths)


def batch_norm(c: Case) -> Instruction:
    dtype = REAL[c.type]
    dims = c.sizes((1, 2, 3, 5, 8), 1 + c.below(4))
    at = c.below(len(dims))
    x, *features = (c.enter(c.normal(d, dtype), dtype) for d in (dims, *[(dims[at],)] * 3))
    variance = c.enter(np.abs(c.normal((dims[at],), dtype)), dtype)
    keys = {"epsilon": 0.001, "feature_index": at}
    match c.below(3):
        case 0:
            return c.b.batch_norm_training(x, *features[:2], **keys)
        case 1:
            return c.b.batch_norm_inference(x, *features, variance, **keys)
        case _:
            gradient = c.enter(c.normal(dims, dtype), dtype)
            return c.b.batch_norm_grad(x, *features[:2], variance, gradient, **keys)


def ragged_dot(c: Case) -> Instruction:
    dtype = REAL[c.type]
    groups, rows, depth, columns = c.sizes((1, 3, 5, 8), 4)
    sizes = c.rng.multinomial(rows, [1 / groups] * groups).astype(np.int32)
    x = c.enter(c.normal((rows, depth), dtype), dtype)
    y = c.enter(c.normal((groups, depth, columns), dtype), dtype)
    return c.b.ragged_dot(
        x, y, c.enter(sizes, "s32"), lhs_contracting_dims=1, rhs_contracting_dims=1,
        lhs_ragged_dims=0, rhs_group_dims=0,
    )  # fmt: skip


FAMILIES: tuple[Callable[[Case], Instruction], ...] = (
    cholesky, triangular_solve, fft, batch_norm, ragged_dot,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_compiled_agrees_with_the_interpreter(
    family: Callable[[Case], Instruction], seed: int
) -> None:
    case = Case(seed)
    module = case.b.build(family(case))
    expected = hlo.evaluate(module, *case.arguments)
    actual = hlo.compile(module, cache=False, threads=1 + seed % 3)(*case.arguments)
    for a, e in zip(
        *(v if isinstance(v, tuple) else (v,) for v in (actual, expected)), strict=True
    ):
        assert (a.shape, a.dtype) == (e.shape, e.dtype)
        largest = float(np.abs(e).max(initial=1.0))
        assert np.allclose(a, e, rtol=0, atol=TOLERANCE[case.type] * largest, equal_nan=True)
