"""Rules that many ops' shape inference shares: arrays only, float precision, merged dimensions.

XLA's inference calls element types "the same" when both are floating; the result then takes the
higher precision (docs/semantics.md 0). The verifier, not infer, refuses mixed precision (MP).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from hlo.errors import Violation
from hlo.ir.dtype import PRED, DType, Kind
from hlo.ir.shape import UNBOUNDED, Shape, shape_text

Ints = tuple[int, ...]


def braces(numbers: Iterable[int]) -> str:
    """`{1,2}`, as attributes are written."""
    return "{" + ",".join(map(str, numbers)) + "}"


def text(shape: Shape) -> str:
    """A shape as errors write it: without layout."""
    return shape_text(shape, layout=False)


def written(shape: Shape | None, at: str = "result") -> Shape:
    """The result shape of an op whose shape text may not leave out."""
    if shape is None:
        raise Violation("shape-mismatch", at, "left out", "a written shape: it cannot be inferred")
    return shape


def check_array(shape: Shape, at: str, constraint: str) -> None:
    """Refuse a tuple, token, opaque or buffer."""
    if not shape.is_array:
        raise Violation("dtype", at, text(shape), "an array", constraint)


def check_arrays(shapes: Sequence[Shape], constraint: str) -> None:
    """Refuse operands that are not arrays."""
    for i, shape in enumerate(shapes):
        check_array(shape, f"operand {i}", constraint)


def check_kind(shape: Shape, kinds: frozenset[Kind], at: str, constraint: str) -> None:
    """Refuse an element type outside `kinds`."""
    if shape.dtype.kind not in kinds:
        words = " or ".join(KIND_WORDS[k] for k in Kind if k in kinds)
        raise Violation("dtype", at, text(shape), words, constraint)


KIND_WORDS = {
    Kind.PRED: "pred",
    Kind.SIGNED: "signed integral",
    Kind.UNSIGNED: "unsigned integral",
    Kind.FLOAT: "floating",
    Kind.COMPLEX: "complex",
}


def check_dims(shape: Shape, expected: Shape, at: str, constraint: str) -> None:
    """Refuse other dimensions than `expected` has."""
    if shape.dims != expected.dims:
        raise Violation(
            "shape-mismatch",
            at,
            text(shape),
            f"dimensions {braces(expected.dims)}",
            constraint,
        )


def same_type(a: DType, b: DType) -> bool:
    """Equal, or both floating ("ignoring FP precision")."""
    return a is b or (a.is_float and b.is_float)


def check_same_type(shapes: Sequence[Shape], constraint: str) -> None:
    """Refuse operands whose element type is not operand 0's, up to float precision."""
    for i, shape in enumerate(shapes[1:], start=1):
        if not same_type(shapes[0].dtype, shape.dtype):
            raise Violation(
                "dtype",
                f"operand {i}",
                text(shape),
                f"element type {shapes[0].dtype.name}",
                constraint,
            )


@cache
def precision(dtype: DType) -> tuple[int, ...]:
    """The key by which XLA ranks element types: the larger one wins a mixed operation."""
    part = dtype.component
    bits = 1 if dtype is PRED else part.bits
    largest = significand = -1
    if part.float_format is not None:
        largest = math.frexp(_largest(part))[1]
        significand = part.float_format.mantissa + 1
    return (int(dtype.is_complex), largest, significand, bits, int(part.is_signed))


def _largest(dtype: DType) -> float:
    """The largest number of a float type."""
    if dtype.bits >= 32:
        return float(np.finfo(dtype.numpy).max)
    import ml_dtypes  # for programs with such types

    return float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]  # it has no types


def higher_precision(a: DType, b: DType) -> DType:
    """The type of a result whose operands have types a and b."""
    return b if precision(b) > precision(a) else a


def merged_size(a: int, b: int) -> int:
    """One size for two dimensions that must agree: a known size wins over `?`."""
    return b if a == UNBOUNDED else a


def any_dynamic(shapes: Sequence[Shape]) -> tuple[bool, ...]:
    """Per dimension: dynamic in any of the shapes (all of one rank); a known size replaces `?`."""
    columns = zip(*(zip(s.dynamic, s.dims, strict=True) for s in shapes), strict=True)
    return tuple(
        any(flag and n != UNBOUNDED for flag, n in column) or all(n == UNBOUNDED for _, n in column)
        for column in columns
    )


def dims_agree(a: Ints, b: Ints) -> bool:
    """Equal sizes; `?` agrees with everything."""
    return len(a) == len(b) and all(
        x == y or UNBOUNDED in (x, y) for x, y in zip(a, b, strict=True)
    )
