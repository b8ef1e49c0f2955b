"""Reductions of whole axes by one operation: add, multiply, minimum, maximum, and, or, xor.

Floats are reduced in f64 (complex in c128) and rounded once, integers modulo 2^bits. Which reducers
are such reductions is read off their computation; all others are reduced by calling them.
"""

from __future__ import annotations

import numpy as np

from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.identities import identity
from hlo.ops.numerics import reals
from hlo.ops.numerics.representation import Array, rounded, wrapped

ON_PRED = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
BITWISE: dict[str, np.ufunc] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
ARITHMETIC: dict[str, np.ufunc] = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum, **BITWISE,
}  # fmt: skip


def operations(computation: Computation, count: int) -> tuple[str, ...] | None:
    """The operation of each result, if result k is one operation on parameters k and count + k."""
    root = computation.root
    results = root.operands if root.opcode == "tuple" else (root,)
    if len(results) != count:
        return None
    found = [_operation(result, k, count + k) for k, result in enumerate(results)]
    return None if None in found else tuple(name for name in found if name)


def _operation(result: Instruction, left: int, right: int) -> str | None:
    if result.opcode not in ARITHMETIC or result.shape.dims:
        return None
    if any(o.opcode != "parameter" or o.shape.dtype is not result.shape.dtype
           for o in result.operands):  # fmt: skip
        return None
    if sorted(o.attributes["parameter_number"] for o in result.operands) != [left, right]:  # type: ignore[type-var]  # ints
        return None
    if result.shape.dtype.is_complex and result.opcode in ("maximum", "minimum"):
        return None
    return (
        ON_PRED.get(result.opcode, result.opcode) if result.shape.dtype.is_pred else result.opcode
    )


def widened(x: Array, dtype: DType) -> Array:
    """The type that a reduction runs in."""
    if dtype.is_float:
        return x.astype(np.float64)
    if dtype.is_complex:
        return x.astype(np.complex128)
    if dtype.is_integral and dtype.bits < 8:
        return x.astype(np.int64)
    return x


def narrowed(x: Array, dtype: DType) -> Array:
    """Back to the element type, rounded or wrapped once."""
    if dtype.is_float:
        return rounded(x, dtype)
    if dtype.is_integral:
        return wrapped(x, dtype)
    return np.asarray(x).astype(dtype.numpy)


def combined(operation: str, x: Array, y: Array) -> Array:
    """One application, on widened values; the zeros of minimum and maximum are ordered."""
    if operation in ("maximum", "minimum") and x.dtype.kind == "f":
        return reals.maximum(x, y) if operation == "maximum" else reals.minimum(x, y)
    with np.errstate(all="ignore"):
        return np.asarray(ARITHMETIC[operation](x, y))


def reduced_over(operation: str, x: Array, axes: tuple[int, ...], dtype: DType) -> Array:
    """Widened x reduced over some axes; the operation's identity where they are empty."""
    kept = [d for d in range(x.ndim) if d not in axes]
    moved = x.transpose(*kept, *sorted(axes))
    rows = moved.reshape(*(x.shape[d] for d in kept), int(np.prod([x.shape[d] for d in axes])))
    if rows.shape[-1] == 0:
        return np.full(rows.shape[:-1], wide_identity(operation, dtype))
    if operation in ("add", "multiply"):
        rows = np.ascontiguousarray(rows)  # NumPy sums pairwise along a contiguous last axis
    with np.errstate(all="ignore"):
        if operation in ("add", "multiply"):  # NumPy's default is to widen small integers.
            reduced = np.asarray(ARITHMETIC[operation].reduce(rows, axis=-1, dtype=x.dtype))
        else:
            reduced = np.asarray(ARITHMETIC[operation].reduce(rows, axis=-1))
    if operation in ("maximum", "minimum") and dtype.is_float and not np.all(reduced):
        reduced = _with_ordered_zeros(operation, rows, reduced)
    return reduced


def _with_ordered_zeros(operation: str, rows: Array, reduced: Array) -> Array:
    """A zero maximum is +0 if any zero of its row is; a zero minimum -0 likewise."""
    negative = operation == "minimum"
    preferred = np.any((rows == 0) & (np.signbit(rows) == negative), axis=-1)
    zero, other = (-0.0, 0.0) if negative else (0.0, -0.0)
    return np.where(reduced == 0, np.where(preferred, zero, other), reduced)


def wide_identity(operation: str, dtype: DType) -> object:
    """e with f(e, x) = x for every x, as a widened value."""
    assert dtype.numpy is not None, f"{dtype} has elements"
    wide = widened(np.zeros((), dtype.numpy), dtype).dtype
    return wide.type(identity(operation, dtype))
