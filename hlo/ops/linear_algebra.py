"""Fourier transforms, Cholesky factors, triangular systems. Source: docs/semantics.md 13 and 14."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hlo.attributes.enums import FFT_TYPE, TRANSPOSE
from hlo.attributes.ints import INTS
from hlo.attributes.scalars import BOOL
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, Kind
from hlo.ir.shape import Shape
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import same_size
from hlo.ops.numerics.representation import Array, dtype_of, rounded
from hlo.ops.shape_rules import Ints, braces, check_array, check_kind, dims_agree, text
from hlo.ops.table import KernelFamily, Op

FLOAT_OR_COMPLEX = frozenset({Kind.FLOAT, Kind.COMPLEX})


class FftAttributes(Attributes, frozen=True):
    fft_type: Annotated[str, FFT_TYPE, "always"]
    fft_length: Annotated[Ints, INTS, "always"]


class Fft(Op):
    """Discrete Fourier transform over the last k dimensions, k the number of lengths.

    FFT X[j] = sum_n x[n] e^(-2 pi i j n/l); IFFT with + and 1/prod(lengths); RFFT the first l/2+1
    outputs of a real FFT; IRFFT its inverse, which ignores the imaginary parts of bin 0 and bin
    l/2. C1: 1 <= k <= 3. C2: rank >= k. C3: FFT, IFFT, IRFFT take complex, RFFT f32 or f64. C4:
    RFFT's last k dimensions are the lengths. C5: IRFFT's too, but for the last, which is l/2+1 (0
    or 1 for 0). C6 (ours): FFT's and IFFT's last k dimensions are the lengths.
    """

    opcode = "fft"
    arity = 1
    record = FftAttributes
    family = KernelFamily.FOURIER
    ulp = 8.0

    @staticmethod
    def infer(x: Shape, *, attrs: FftAttributes) -> Shape:
        kind, lengths = attrs.fft_type, attrs.fft_length
        check_array(x, "operand 0", "C2")
        k = len(lengths)
        if not 1 <= k <= 3:
            raise Violation("attribute-value", "fft_length", braces(lengths), "1 to 3", "C1")
        if x.rank < k:
            raise Violation("shape-mismatch", "operand 0", text(x), f"rank {k} or more", "C2")
        if kind == "RFFT":
            if x.dtype not in (dt.F32, dt.F64):
                raise Violation("dtype", "operand 0", text(x), "f32 or f64", "C3")
            _check_lengths(x, lengths, "C4")
            target = dt.C64 if x.dtype is dt.F32 else dt.C128
            if not lengths[-1]:  # nothing, or as much as nobody knows
                return x.with_dtype(target)
            return _with_last(x, target, half_length(lengths[-1]))
        check_kind(x, frozenset({Kind.COMPLEX}), "operand 0", "C3")
        if kind == "IRFFT":
            if lengths[-1] < 0:
                found = braces(lengths)
                raise Violation("attribute-value", "fft_length", found, "0 or more", "C5")
            bins = 1 if not lengths[-1] and x.dims[-1] else half_length(lengths[-1])
            _check_lengths(x, (*lengths[:-1], bins), "C5")
            return _with_last(x, x.dtype.component, lengths[-1])
        return x

    @staticmethod
    def check(x: Shape, *, attrs: FftAttributes, shape: Shape) -> None:
        if attrs.fft_type in ("FFT", "IFFT"):
            _check_lengths(x, attrs.fft_length, "C6")

    @staticmethod
    def evaluate(x: Array, *, attrs: FftAttributes) -> Array:
        kind, lengths = attrs.fft_type, attrs.fft_length
        axes = tuple(range(x.ndim - len(lengths), x.ndim))
        wide = x.astype(np.float64 if kind == "RFFT" else np.complex128)
        dims = [*x.shape[: axes[0]], *lengths]
        if kind == "RFFT":
            dims[-1] = half_length(lengths[-1])
        target = _transform_type(x.dtype, kind)
        if 0 in dims or 0 in x.shape:
            return np.zeros(dims, target)
        transform = getattr(np.fft, kind.lower() + "n")
        with np.errstate(all="ignore"):
            return np.asarray(transform(wide, s=lengths, axes=axes)).astype(target)


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
    if not dims_agree(x.dims[x.rank - len(lengths) :], lengths):
        expected = f"last dimensions {braces(lengths)}"
        raise Violation("shape-mismatch", "operand 0", text(x), expected, label)


def _with_last(x: Shape, dtype: DType, size: int) -> Shape:
    """Other element type and last dimension; that one becomes static when it was `?`."""
    flags = (*x.dynamic[:-1], x.dynamic[-1] and x.dims[-1] != -1)
    return Shape.array(dtype, (*x.dims[:-1], size), layout=x.layout, dynamic=flags)


class CholeskyAttributes(Attributes, frozen=True):
    lower: Annotated[bool, BOOL] = False


class Cholesky(Op):
    """The triangular factor of a positive definite matrix.

    lower: a = L L^H from a's lower triangle; otherwise a = U^H U from its upper one.

    The other triangle is not read and comes out zero. A matrix that is not positive definite
    (a pivot <= 0 or NaN) gives NaN everywhere; others of the batch are unaffected.
    C1: floating or complex. C2: rank >= 2, the last two dimensions equal.
    """

    opcode = "cholesky"
    arity = 1
    record = CholeskyAttributes
    family = KernelFamily.FACTOR
    ulp = 16.0

    @staticmethod
    def infer(a: Shape, *, attrs: CholeskyAttributes) -> Shape:
        check_kind(a, FLOAT_OR_COMPLEX, "operand 0", "C1")
        _check_square(a, "operand 0", "C2")
        return a

    @staticmethod
    def evaluate(a: Array, *, attrs: CholeskyAttributes) -> Array:
        matrix = _wide(a)
        with np.errstate(all="ignore"):
            factor = cholesky_lower(matrix if attrs.lower else adjoint(matrix))
        return _narrow(factor if attrs.lower else adjoint(factor), a)


def _check_square(a: Shape, at: str, label: str) -> None:
    if a.rank < 2 or not same_size(a.dims[-1], a.dims[-2]):
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


class TriangularSolveAttributes(Attributes, frozen=True):
    left_side: Annotated[bool, BOOL] = False
    lower: Annotated[bool, BOOL] = False
    unit_diagonal: Annotated[bool, BOOL] = False
    transpose_a: Annotated[str, TRANSPOSE] = "TRANSPOSE_INVALID"


class TriangularSolve(Op):
    """x with op(a) x = b (left_side) or x op(a) = b; op is the identity, transpose or adjoint.

    `lower` names the triangle of a that is read, before op; unit_diagonal: its diagonal is taken
    as 1 and not read. A singular a divides by zero.
    C1: floating or complex, both of one type. C2: equal ranks >= 2, a square. C3: a's size is b's
    dimension -2 (left) or -1. C4: equal batch dimensions. C5: transpose_a is given.
    """

    opcode = "triangular-solve"
    arity = 2
    record = TriangularSolveAttributes
    family = KernelFamily.FACTOR
    ulp = 32.0

    @staticmethod
    def infer(a: Shape, b: Shape, *, attrs: TriangularSolveAttributes) -> Shape:
        check_kind(a, FLOAT_OR_COMPLEX, "operand 0", "C1")
        if b.dtype is not a.dtype:
            raise Violation("dtype", "operand 1", text(b), f"element type {a.dtype}", "C1")
        _check_square(a, "operand 0", "C2")
        if a.rank != b.rank:
            raise Violation("shape-mismatch", "operand 1", text(b), f"rank {a.rank}", "C2")
        size = b.dims[-2] if attrs.left_side else b.dims[-1]
        if not same_size(size, a.dims[-1]):
            expected = f"matrices of {size} rows"
            raise Violation("shape-mismatch", "operand 0", text(a), expected, "C3")
        if a.dims[:-2] != b.dims[:-2]:
            expected = f"batch dimensions {braces(a.dims[:-2])}"
            raise Violation("shape-mismatch", "operand 1", text(b), expected, "C4")
        if attrs.transpose_a == "TRANSPOSE_INVALID":
            expected = "NO_TRANSPOSE, TRANSPOSE or ADJOINT"
            raise Violation("attribute-value", "transpose_a", attrs.transpose_a, expected, "C5")
        return b

    @staticmethod
    def evaluate(a: Array, b: Array, *, attrs: TriangularSolveAttributes) -> Array:
        lower = attrs.lower
        matrix, right = _wide(a), _wide(b)
        if attrs.transpose_a != "NO_TRANSPOSE":
            is_adjoint = attrs.transpose_a == "ADJOINT"
            matrix = adjoint(matrix) if is_adjoint else np.swapaxes(matrix, -1, -2)
            lower = not lower
        if not attrs.left_side:  # x m = b  is  m^T x^T = b^T
            matrix, right = np.swapaxes(matrix, -1, -2), np.swapaxes(right, -1, -2)
            lower = not lower
        with np.errstate(all="ignore"):
            solved = substituted(matrix, right, lower=lower, unit_diagonal=attrs.unit_diagonal)
        return _narrow(solved if attrs.left_side else np.swapaxes(solved, -1, -2), b)


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
