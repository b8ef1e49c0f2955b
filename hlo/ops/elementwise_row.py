"""What an elementwise row is: its shape rule, its NumPy function per kind of number, its checks.

The rows stand in hlo/ops/elementwise.py; their constraints, alike for all of one arity, in
CONSTRAINTS. Source: docs/semantics.md 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hlo.errors import Violation
from hlo.ir.dtype import DType, Kind
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.attributes import Attributes
from hlo.ops.shape_rules import (
    any_dynamic,
    check_array,
    check_arrays,
    check_dims,
    check_kind,
    check_same_type,
    higher_precision,
    text,
)
from hlo.ops.table import ONE_OPERATION, Cost, Number, Op, Trait

Array = np.ndarray
Function = Callable[..., Array]
ROOM = "hlo.ops.elementwise"  # the module that the rows stand in
NO_MEANING = "(ours): no type that XLA's shape rule lets through and that has no meaning here."
CONSTRAINTS: Mapping[int, Mapping[str, str]] = {
    1: {
        "C1": "one operand.",
        "C2": "it is an array.",
        "C3": "its element type is of a kind that the op has a function for.",
        "C4": "the result has its dimensions.",
    },
    2: {
        "C1": "two operands.",
        "C2": "both are arrays.",
        "C3": "equal element types up to float precision (exactly: rule MP).",
        "C4": "equal dimensions.",
        "C5": "an element type of a kind that the op has a function for.",
    },
}


def same(dtype: DType) -> DType:
    """The rule of a result that has the operands' type."""
    return dtype


def elementwise(  # noqa: PLR0913  # a row of a table: every column by its name
    opcode: str,
    arity: int,
    doc: str,
    *,
    pred: Function | None = None,
    integer: Function | None = None,
    unsigned: Function | None = None,
    real: Function | None = None,
    complex_: Function | None = None,
    refused: frozenset[Kind] = frozenset(),
    result: Callable[[DType], DType] = same,
    record: type[Attributes] = Attributes,
    traits: Trait = Trait.NONE,
    ulp: float = 0.0,
    cost: Cost = ONE_OPERATION,
    identity: Callable[[DType], Number] | None = None,
) -> None:
    """Enter a row. `integer` serves signed types, and unsigned ones unless `unsigned` is given.

    `unsigned=refuse` leaves unsigned types out; kinds in `refused` pass XLA's shape rule but have
    no meaning: check refuses them (C7, ours).
    """
    by_kind = {
        Kind.PRED: pred,
        Kind.SIGNED: integer,
        Kind.UNSIGNED: integer if unsigned is None else unsigned,
        Kind.FLOAT: real,
        Kind.COMPLEX: complex_,
    }
    functions = {k: f for k, f in by_kind.items() if f is not None and f is not refuse}
    row = {
        "__doc__": doc,
        "__module__": ROOM,
        "opcode": opcode,
        "arity": arity,
        "record": record,
        "traits": traits | Trait.ELEMENTWISE,
        "ulp": ulp,
        "cost": cost,
        "identity": staticmethod(identity) if identity else None,
        "constraints": {**CONSTRAINTS[arity], **({"C7": NO_MEANING} if refused else {})},
        "infer": staticmethod(_infer(arity, frozenset(functions) | refused, result)),
        "evaluate": staticmethod(_evaluate(functions)),
        "check": staticmethod(_check(frozenset(functions))),
    }
    type("".join(w.capitalize() for w in opcode.split("-")), (Op,), row)


def _infer(
    arity: int, kinds: frozenset[Kind], result: Callable[[DType], DType]
) -> Callable[..., Shape]:
    rule = _unary_shape if arity == 1 else _binary_shape

    def infer(*operands: Shape, attrs: Attributes | None = None) -> Shape:
        return rule(operands, kinds, result)

    return infer


def _evaluate(functions: Mapping[Kind, Function]) -> Callable[..., Array]:
    def evaluate(*values: Array, attrs: Attributes | None = None) -> Array:
        from hlo.ops.numerics.representation import dtype_of  # of programs that are evaluated

        kind = dtype_of(values[0]).kind
        if kind not in functions:
            found = f"of type {values[0].dtype}"
            raise Violation("unsupported", "operand 0", found, "a type with a meaning here")
        with np.errstate(all="ignore"):
            return np.asarray(functions[kind](*common_extents(values)))

    return evaluate


def _check(kinds: frozenset[Kind]) -> Callable[..., None]:
    def check(*operands: Shape, shape: Shape, attrs: Attributes | None = None) -> None:
        for i, operand in enumerate(operands):
            check_dims(operand, shape, f"operand {i}", "C4")
        check_kind(operands[0], kinds, "operand 0", "C7")

    return check


def refuse(*_: Array) -> Array:
    """Marks a kind that a row does not take."""
    raise AssertionError("rows drop this function")


def common_extents(values: tuple[Array, ...]) -> tuple[Array, ...]:
    """The operands cut to one size per dimension where run-time sizes differ (docs/control.md 4).

    A size of 1 is repeated by NumPy's broadcasting; other differences leave the smaller size.
    """
    shapes = {v.shape for v in values if v.ndim}
    if len(shapes) <= 1 or len({len(s) for s in shapes}) > 1:
        return values
    sizes = [min((n for n in column if n != 1), default=1) for column in zip(*shapes, strict=True)]
    cut = tuple(slice(0, n) for n in sizes)
    return tuple(v[cut] if v.ndim else v for v in values)


def _unary_shape(
    operands: tuple[Shape, ...], kinds: frozenset[Kind], result: Callable[[DType], DType]
) -> Shape:
    """The operand's shape with everything; the element type of the result."""
    (operand,) = operands
    check_array(operand, "operand 0", "C2")
    check_kind(operand, kinds, "operand 0", "C3")
    return operand.with_dtype(result(operand.dtype))


def _binary_shape(
    operands: tuple[Shape, ...], kinds: frozenset[Kind], result: Callable[[DType], DType]
) -> Shape:
    """Operand 0's dimensions and layout, the higher precision; see broadcast_shape."""
    check_arrays(operands, "C2")
    check_same_type(operands, "C3")
    for i, operand in enumerate(operands):
        check_kind(operand, kinds, f"operand {i}", "C5")
    shape = broadcast_shape(*operands)
    dtype = result(higher_precision(operands[0].dtype, operands[1].dtype))
    return shape.without_element_size(dtype).with_dtype(dtype)


def broadcast_shape(x: Shape, y: Shape) -> Shape:
    """Dimensions of an elementwise result as XLA's parser infers them (docs/text.md 6.5).

    Equal known dimensions keep operand 0's layout; a scalar, a dimension of size 1 or one that is
    not known (`?`) stretches with a default layout: the parser lets that through, the verifier
    does not (C4).
    """
    if x.dims == y.dims and UNBOUNDED not in x.dims:
        return Shape.array(x.dtype, x.dims, layout=x.layout, dynamic=any_dynamic((x, y)))
    if x.is_scalar or y.is_scalar:
        return y.without_layout() if x.is_scalar else x.without_layout()
    if x.rank != y.rank or not all(map(_stretches, x.dims, y.dims)):
        raise Violation("shape-mismatch", "operand 1", text(y), text(x), "C4")
    ours, theirs = (tuple(zip(s.dims, s.dynamic, strict=True)) for s in (x, y))
    sizes, dynamic = zip(*map(_stretched, ours, theirs), strict=True)
    return x.with_dims(sizes, dynamic=dynamic)


def _stretches(a: int, b: int) -> bool:
    """Whether one size follows from two: 1 becomes the other one, and so does `?`."""
    return a == b or not {1, UNBOUNDED}.isdisjoint((a, b))


def _stretched(a: tuple[int, bool], b: tuple[int, bool]) -> tuple[int, bool]:
    """The size that follows from two, and whether it is dynamic: `?` beside 1 stays `?`."""
    if a[0] == 1 or (a[0] == UNBOUNDED and b[0] != 1):
        return b
    if b[0] in (1, UNBOUNDED):
        return a
    return a[0], a[1] or b[1]
