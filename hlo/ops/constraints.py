"""Checks of operands and dimension numbers that structural ops share; each names its constraint."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Violation
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.shape_rules import Ints, braces, dims_agree, same_type, text


def operand(index: int) -> str:
    """The role of an operand, for Violation.at."""
    return f"operand {index}"


def check_scalar(shape: Shape, at: str, label: str) -> None:
    """Refuse anything but an array of rank 0."""
    if not shape.is_scalar:
        raise Violation("shape-mismatch", at, text(shape), "a scalar", label)


def check_token(shape: Shape, at: str, label: str) -> None:
    """Refuse anything but a token."""
    if not shape.is_token:
        raise Violation("shape-mismatch", at, text(shape), "token[]", label)


def check_integral(shape: Shape, at: str, label: str) -> None:
    """Refuse element types that are no signed or unsigned integers (pred is none)."""
    if not shape.dtype.is_integral:
        raise Violation("dtype", at, text(shape), "an integral element type", label)


def check_type(shape: Shape, wanted: Shape, at: str, label: str) -> None:
    """Refuse another element type than `wanted` has, up to float precision."""
    if not same_type(shape.dtype, wanted.dtype):
        raise Violation("dtype", at, text(shape), f"element type {wanted.dtype}", label)


def same_size(a: int, b: int) -> bool:
    """Equal sizes of a dimension; `?` equals any."""
    return a == b or UNBOUNDED in (a, b)


def check_same_dims(shape: Shape, wanted: Shape, at: str, label: str) -> None:
    """Refuse other dimensions than `wanted` has; `?` agrees with every size."""
    if not dims_agree(shape.dims, wanted.dims):
        expected = f"dimensions {braces(wanted.dims)}"
        raise Violation("shape-mismatch", at, text(shape), expected, label)


def check_rank(shape: Shape, rank: int, at: str, label: str) -> None:
    """Refuse arrays of another rank."""
    if len(shape.dims) != rank:
        raise Violation("shape-mismatch", at, text(shape), f"rank {rank}", label)


def check_dimension(at: str, dimension: int, rank: int, label: str) -> None:
    """Refuse a dimension number outside [0, rank)."""
    if not 0 <= dimension < rank:
        raise Violation(
            "attribute-value", at, f"{dimension}", f"at least 0 and below {rank}", label
        )


def check_dimensions(at: str, dimensions: Ints, rank: int, label: str) -> None:
    """Refuse dimension numbers outside [0, rank) and repeated ones."""
    if not all(0 <= d < rank for d in dimensions):
        expected = f"each at least 0 and below {rank}"
        raise Violation("attribute-value", at, braces(dimensions), expected, label)
    if len(set(dimensions)) != len(dimensions):
        raise Violation("attribute-value", at, braces(dimensions), "distinct dimensions", label)


def check_sorted_dimensions(at: str, dimensions: Ints, rank: int, label: str) -> None:
    """Refuse dimension numbers that are not distinct, ascending and in [0, rank)."""
    check_dimensions(at, dimensions, rank, label)
    if list(dimensions) != sorted(dimensions):
        raise Violation("attribute-value", at, braces(dimensions), "ascending dimensions", label)


def check_count(at: str, entries: Sequence[int], count: int, label: str) -> None:
    """Refuse a list of another length."""
    if len(entries) != count:
        raise Violation("attribute-value", at, braces(entries), f"{count} entries", label)


def check_operand_count(operands: Sequence[object], least: int, label: str) -> None:
    """Refuse fewer operands."""
    if len(operands) < least:
        found = f"{len(operands)} operands"
        raise Violation("arity", "operands", found, f"at least {least}", label)
