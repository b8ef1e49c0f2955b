"""Shapes of collectives: how sizes of operands and results along one dimension depend."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.errors import Violation
from hlo.ir.shape import UNBOUNDED, ProgramShape, Shape
from hlo.ops.constraints import check_count, check_dimension, check_operand_count, operand
from hlo.ops.shape_rules import Ints, check_arrays, text


def gathered_shape(xs: Sequence[Shape], dimensions: Ints, shape: Shape) -> Shape:
    """The results of an all-gather with as many shards as the written result says."""
    check_operand_count(xs, 1, "C1")
    check_arrays(xs, "C1")
    check_count("dimensions", dimensions, 1, "C2")
    results = [
        multiple(x, r, dimensions[0], (operand(k), "result"), "C2", "C3")
        for k, (x, r) in enumerate(zip(xs, parts(shape, len(xs)), strict=True))
    ]
    d = dimensions[0]
    shards = {r.dims[d] // max(x.dims[d], 1) for x, r in zip(xs, results, strict=True)}
    if len(shards) > 1:
        raise Violation("shape-mismatch", "result", text(shape), "one number of shards", "C3")
    return bare_shape(results)


def parts(shape: Shape, count: int) -> tuple[Shape, ...]:
    """The written result's shape per operand."""
    parts = shape.elements if shape.is_tuple else (shape,)
    if len(parts) != count:
        found, expected = text(shape), f"{count} results, one per operand"
        raise Violation("shape-mismatch", "result", found, expected)
    return parts


def multiple(  # two shapes with their roles and labels
    part: Shape, whole: Shape, d: int, roles: tuple[str, str], range_label: str, label: str
) -> Shape:
    """`whole` if its size along d is a multiple of `part`'s; what it should be otherwise.

    The caller's result is one of the two; the returned shape is that one with consistent sizes.
    """
    check_arrays((part, whole), range_label)
    check_dimension("dimensions", d, min(part.rank, whole.rank), range_label)
    small, large = part.dims[d], whole.dims[d]
    if UNBOUNDED not in (small, large) and (small == 0 or large < small or large % small):
        found = f"{text(whole)}, {large} in dimension {d}"
        raise Violation("shape-mismatch", roles[1], found, f"a multiple of {small}", label)
    if roles[0] == "result":
        return whole.with_dims((*whole.dims[:d], small, *whole.dims[d + 1 :]), whole.dynamic)
    return part.with_dims((*part.dims[:d], large, *part.dims[d + 1 :]), part.dynamic)


def check_reduction(xs: Sequence[Shape], f: ProgramShape) -> None:
    """A reduction computation of two scalars of the operands' type."""
    alone = f.result.is_tuple and len(f.result.elements) == 1  # Reducers may return such a tuple.
    scalars = (*f.parameters, f.result.elements[0] if alone else f.result)
    if len(f.parameters) != 2 or not all(s.is_scalar for s in scalars):
        found = f"a computation {f}"
        raise Violation("call-signature", "to_apply", found, "(T[], T[]) -> T[]", "C2")
    for k, x in enumerate(xs):
        if any(s.dtype is not x.dtype for s in scalars):
            found, expected = f"a computation {f}", f"{x.dtype}[], as {operand(k)}"
            raise Violation("call-signature", "to_apply", found, expected, "C2")


def bare_shape(shapes: Sequence[Shape]) -> Shape:
    """The one shape, or the tuple of several."""
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
