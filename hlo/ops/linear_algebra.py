"""Fourier transforms, Cholesky factors, triangular systems. Source: OP_SEMANTICS 13 and 14."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hlo.attributes.enums import FFT_TYPE, TRANSPOSE
from hlo.attributes.ints import INTS
from hlo.attributes.scalars import BOOL
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, Kind
from hlo.ir.shape import Shape
from hlo.ops.numerics.representation import Array, dtype_of, rounded
from hlo.ops.shape_rules import Ints, braces, check_array, check_kind, text
from hlo.ops.table import REQUIRED, Attr, Op, Way

FLOAT_OR_COMPLEX = frozenset({Kind.FLOAT, Kind.COMPLEX})


class Fft(Op):
    """Discrete Fourier transform over the last k dimensions, k the number of lengths.

    FFT X[j] = sum_n x[n] e^(-2 pi i j n/l); IFFT with + and 1/prod(lengths); RFFT the first l/2+1
    outputs of a real FFT; IRFFT its inverse, deaf to the imaginary parts of bin 0 and bin l/2.
    C1: 1 <= k <= 3. C2: rank >= k. C3: FFT, IFFT, IRFFT take complex, RFFT f32 or f64. C4: RFFT's
    last k dimensions are the lengths. C5: IRFFT's too, but for the last, which is l/2+1 (0 for 0).
    C6 (ours): FFT's and IFFT's last k dimensions are the lengths.
    """

    opcode = "fft"
    arity = 1
    attrs: ClassVar = {"fft_type": Attr(FFT_TYPE, REQUIRED, "always"),
                       "fft_length": Attr(INTS, REQUIRED, "always")}  # fmt: skip
    way = Way.FOURIER
    ulp = 8.0

    @staticmethod
    def infer(x: Shape, *, fft_type: str, fft_length: Ints) -> Shape:
        check_array(x, "operand 0", "C2")
        k = len(fft_length)
        if not 1 <= k <= 3:
            raise Violation("attribute-value", "fft_length", braces(fft_length), "1 to 3", "C1")
        if x.rank < k:
            raise Violation("shape-mismatch", "operand 0", text(x), f"rank {k} or more", "C2")
        if fft_type == "RFFT":
            if x.dtype not in (dt.F32, dt.F64):
                raise Violation("dtype", "operand 0", text(x), "f32 or f64", "C3")
            _check_lengths(x, fft_length, "C4")
            target = dt.C64 if x.dtype is dt.F32 else dt.C128
            return _with_last(x, target, half_length(fft_length[-1]))
        check_kind(x, frozenset({Kind.COMPLEX}), "operand 0", "C3")
        if fft_type == "IRFFT":
            _check_lengths(x, (*fft_length[:-1], half_length(fft_length[-1])), "C5")
            return _with_last(x, x.dtype.component, fft_length[-1])
        return x

    @staticmethod
    def check(x: Shape, *, shape: Shape, fft_type: str, fft_length: Ints) -> None:
        if fft_type in ("FFT", "IFFT"):
            _check_lengths(x, fft_length, "C6")

    @staticmethod
    def evaluate(x: Array, *, fft_type: str, fft_length: Ints) -> Array:
        axes = tuple(range(x.ndim - len(fft_length), x.ndim))
        wide = x.astype(np.float64 if fft_type == "RFFT" else np.complex128)
        dims = [*x.shape[: axes[0]], *fft_length]
        if fft_type == "RFFT":
            dims[-1] = half_length(fft_length[-1])
        target = _transform_type(x.dtype, fft_type)
        if 0 in dims or 0 in x.shape:
            return np.zeros(dims, target)
        transform = getattr(np.fft, fft_type.lower() + "n")
        with np.errstate(all="ignore"):
            return np.asarray(transform(wide, s=fft_length, axes=axes)).astype(target)


def half_length(length: int) -> int:
    """Bins of a real transform: l/2+1, and 0 for an empty one."""
    return length // 2 + 1 if length else 0


def _transform_type(source: np.dtype, fft_type: str) -> np.dtype:
    if fft_type == "RFFT":
        return np.dtype(np.complex64 if source == np.float32 else np.complex128)
    if fft_type == "IRFFT":
        return np.dtype(np.float32 if source == np.complex64 else np.float64)
    return source


def _check_lengths(x: Shape, lengths: Ints, label: str) -> None:
    last = x.dims[x.rank - len(lengths) :]
    if any(n not in (-1, length) for n, length in zip(last, lengths, strict=True)):
        expected = f"last dimensions {braces(lengths)}"
        raise Violation("shape-mismatch", "operand 0", text(x), expected, label)


def _with_last(x: Shape, dtype: DType, size: int) -> Shape:
    """Other element type and last dimension; that one becomes static when it was `?`."""
    flags = (*x.dynamic[:-1], x.dynamic[-1] and x.dims[-1] != -1)
    return Shape.array(dtype, (*x.dims[:-1], size), layout=x.layout, dynamic=flags)


class Cholesky(Op):
    """lower: a = L L^H from a's lower triangle; otherwise a = U^H U from its upper one.

    The other triangle is not read and comes out zero. A matrix that is not positive definite
    (a pivot <= 0 or NaN) gives NaN everywhere; others of the batch are unaffected.
    C1: floating or complex. C2: rank >= 2, the last two dimensions equal.
    """

    opcode = "cholesky"
    arity = 1
    attrs: ClassVar = {"lower": Attr(BOOL, False)}
    way = Way.FACTOR
    ulp = 16.0

    @staticmethod
    def infer(a: Shape, *, lower: bool = False) -> Shape:
        check_kind(a, FLOAT_OR_COMPLEX, "operand 0", "C1")
        _check_square(a, "operand 0", "C2")
        return a

    @staticmethod
    def evaluate(a: Array, *, lower: bool = False) -> Array:
        matrix = _wide(a)
        with np.errstate(all="ignore"):
            factor = cholesky_lower(matrix if lower else adjoint(matrix))
        return _narrow(factor if lower else adjoint(factor), a)


def _check_square(a: Shape, at: str, label: str) -> None:
    if a.rank < 2 or a.dims[-1] != a.dims[-2]:
        raise Violation("shape-mismatch", at, text(a), "square matrices, of rank 2 or more", label)


def adjoint(a: Array) -> Array:
    """The conjugate transpose of the last two dimensions."""
    return np.asarray(np.conj(np.swapaxes(a, -1, -2)))


def cholesky_lower(a: Array) -> Array:
    """L[..., n, n] from the lower triangles, column by column (Cholesky-Crout), a batch at once."""
    factor = np.zeros_like(a)
    positive = np.ones(a.shape[:-2], np.bool_)
    for j in range(a.shape[-1]):
        row = factor[..., j, :j]
        pivot = a[..., j, j].real - np.sum((row * np.conj(row)).real, axis=-1)
        positive &= pivot > 0
        root = np.sqrt(pivot)
        factor[..., j, j] = root
        rest = factor[..., j + 1 :, :j] @ np.conj(row)[..., None]
        factor[..., j + 1 :, j] = (a[..., j + 1 :, j] - rest[..., 0]) / root[..., None]
    return np.where(positive[..., None, None], factor, a.dtype.type(np.nan))


class TriangularSolve(Op):
    """x with op(a) x = b (left_side) or x op(a) = b; op is the identity, transpose or adjoint.

    `lower` names the triangle of a that is read, before op; unit_diagonal: its diagonal is taken
    as 1 and not read. A singular a divides by zero.
    C1: floating or complex, both of one type. C2: equal ranks >= 2, a square. C3: a's size is b's
    dimension -2 (left) or -1. C4: equal batch dimensions. C5: transpose_a is given.
    """

    opcode = "triangular-solve"
    arity = 2
    attrs: ClassVar = {
        "left_side": Attr(BOOL, False),
        "lower": Attr(BOOL, False),
        "unit_diagonal": Attr(BOOL, False),
        "transpose_a": Attr(TRANSPOSE, "TRANSPOSE_INVALID"),
    }
    way = Way.FACTOR
    ulp = 32.0

    @staticmethod
    def infer(
        a: Shape,
        b: Shape,
        *,
        left_side: bool = False,
        lower: bool = False,
        unit_diagonal: bool = False,
        transpose_a: str = "TRANSPOSE_INVALID",
    ) -> Shape:
        check_kind(a, FLOAT_OR_COMPLEX, "operand 0", "C1")
        if b.dtype is not a.dtype:
            raise Violation("dtype", "operand 1", text(b), f"element type {a.dtype}", "C1")
        _check_square(a, "operand 0", "C2")
        if a.rank != b.rank:
            raise Violation("shape-mismatch", "operand 1", text(b), f"rank {a.rank}", "C2")
        size = b.dims[-2] if left_side else b.dims[-1]
        if size != a.dims[-1]:
            expected = f"matrices of {size} rows"
            raise Violation("shape-mismatch", "operand 0", text(a), expected, "C3")
        if a.dims[:-2] != b.dims[:-2]:
            expected = f"batch dimensions {braces(a.dims[:-2])}"
            raise Violation("shape-mismatch", "operand 1", text(b), expected, "C4")
        if transpose_a == "TRANSPOSE_INVALID":
            expected = "NO_TRANSPOSE, TRANSPOSE or ADJOINT"
            raise Violation("attribute-value", "transpose_a", transpose_a, expected, "C5")
        return b

    @staticmethod
    def evaluate(
        a: Array,
        b: Array,
        *,
        left_side: bool = False,
        lower: bool = False,
        unit_diagonal: bool = False,
        transpose_a: str = "TRANSPOSE_INVALID",
    ) -> Array:
        matrix, right = _wide(a), _wide(b)
        if transpose_a != "NO_TRANSPOSE":
            matrix = adjoint(matrix) if transpose_a == "ADJOINT" else np.swapaxes(matrix, -1, -2)
            lower = not lower
        if not left_side:  # x m = b  is  m^T x^T = b^T
            matrix, right = np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2)
            lower = not lower
        with np.errstate(all="ignore"):
            solved = substituted(matrix, right, lower=lower, unit_diagonal=unit_diagonal)
        return _narrow(solved if left_side else np.swapaxes(solved, -1, -2), b)


def substituted(a: Array, b: Array, *, lower: bool, unit_diagonal: bool) -> Array:
    """x with a x = b, row by row, the whole batch at once."""
    n = a.shape[-1]
    x = np.zeros_like(b)
    for i in range(n) if lower else range(n - 1, -1, -1):
        known = slice(0, i) if lower else slice(i + 1, n)
        row = b[..., i, :] - (a[..., i, None, known] @ x[..., known, :])[..., 0, :]
        x[..., i, :] = row if unit_diagonal else row / a[..., i, i, None]
    return x


def _wide(a: Array) -> Array:
    """f64 or c128: f32's rounding errors then vanish in the last one."""
    return a.astype(np.complex128 if np.iscomplexobj(a) else np.float64)


def _narrow(wide: Array, like: Array) -> Array:
    dtype = dtype_of(like)
    with np.errstate(all="ignore"):
        return wide.astype(like.dtype) if dtype.is_complex else rounded(wide, dtype)
