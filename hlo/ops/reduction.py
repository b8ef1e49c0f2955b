"""Ops that reduce elements with a computation, or apply one to each: reduce, map, scan.

Source: docs/semantics.md 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.ints import INTS
from hlo.attributes.names import COMPUTATION
from hlo.attributes.scalars import BOOL, INT64
from hlo.errors import Violation
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.attributes import Attributes, F
from hlo.ops.constraints import (
    check_count,
    check_dimension,
    check_dimensions,
    check_operand_count,
    check_same_dims,
    operand,
)
from hlo.ops.reducers import reduced_by, reducer_results
from hlo.ops.shape_rules import Ints, braces, check_array, check_arrays, dims_agree, same_type, text
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray


class ReduceAttributes(Attributes, Generic[F], frozen=True):
    dimensions: Annotated[Ints, INTS]
    to_apply: Annotated[F, COMPUTATION]


class Reduce(Op):
    """acc = init; for the reduced elements x in row-major order: acc = f(acc, x).

    n arrays, then n initial values; the result is a tuple if f returns one.
    C1: an even number of operands, at least 2. C2: all arrays have equal dimensions.
    C3: dimensions are distinct dimensions of them. The reducer, for n inputs:
    R1: f has 2n parameters. R2: f returns n scalars. R3: result k has parameter k's shape.
    R4: result k agrees with init k and with parameter n + k. R5: parameter n + k has the element
    type of input k. R6: without mixed precision these types are equal. R7: inits are scalars.
    Narrow floats are accumulated in f32 and rounded once.
    Source: openxla.org/xla/operation_semantics, "Reduce".
    """

    opcode = "reduce"
    record = ReduceAttributes
    traits = Trait.FUSES | Trait.APPLIES
    family = KernelFamily.LOOPS

    @staticmethod
    def infer(*operands: Shape, attrs: ReduceAttributes[ProgramShape]) -> Shape:
        inputs, inits = inputs_and_inits(operands)
        check_dimensions("dimensions", attrs.dimensions, inputs[0].rank, "C3")
        results = reducer_results(attrs.to_apply, inputs, inits)
        x = inputs[0]
        kept = [d for d in range(x.rank) if d not in attrs.dimensions]
        dims = tuple(x.dims[d] for d in kept)
        shapes = [r.with_dims(dims, (x.dynamic[d] for d in kept)) for r in results]
        return Shape.tuple(shapes) if attrs.to_apply.result.is_tuple else shapes[0]

    @staticmethod
    def evaluate(*operands: Array, attrs: ReduceAttributes[Callee]) -> object:
        from hlo.ops.axis_reductions import operations

        n = len(operands) // 2
        inputs, inits = operands[:n], operands[n:]
        axes = tuple(sorted(attrs.dimensions))
        simple = operations(attrs.to_apply.computation, n)
        if simple:
            columns = zip(simple, inputs, inits, strict=True)
            results = tuple(_reduced_simply(o, x, z, axes) for o, x, z in columns)
        else:
            results = reduced_by(attrs.to_apply, [_rows(x, axes) for x in inputs], inits)
        return results if attrs.to_apply.program_shape.result.is_tuple else results[0]


def inputs_and_inits(operands: Sequence[Shape]) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """The two halves of the operands of a reduction, after the checks C1 and C2."""
    if len(operands) % 2 or not operands:
        expected = "an even number of them, at least 2"
        raise Violation("arity", "operands", f"{len(operands)}", expected, "C1")
    check_arrays(operands, "C2")
    n = len(operands) // 2
    for k in range(1, n):
        check_same_dims(operands[k], operands[0], operand(k), "C2")
    return operands[:n], operands[n:]


def _reduced_simply(operation: str, x: Array, z: Array, axes: Ints) -> Array:
    from hlo.ops.axis_reductions import combined, narrowed, reduced_over, widened
    from hlo.ops.numerics.representation import dtype_of

    dtype = dtype_of(x)
    total = reduced_over(operation, widened(x, dtype), axes, dtype)
    return narrowed(combined(operation, widened(z, dtype), total), dtype)


def _rows(x: Array, axes: Ints) -> Array:
    """The reduced elements in row-major order as a first axis, before the kept dimensions."""
    kept = [d for d in range(x.ndim) if d not in axes]
    count = int(np.prod([x.shape[d] for d in axes], dtype=np.int64))
    return x.transpose(*axes, *kept).reshape(count, *(x.shape[d] for d in kept))


class MapAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    dimensions: Annotated[Ints | None, INTS, "computed"] = None
    to_apply: Annotated[F, COMPUTATION]


class Map(Op):
    """result[i] = f(operand_0[i], operand_1[i], ...).

    C1: at least one operand; all of equal dimensions. C2: dimensions, if given, are 0..rank-1.
    C3: f has one scalar parameter per operand, of its element type, and returns a scalar.
    Source: openxla.org/xla/operation_semantics, "Map".
    """

    opcode = "map"
    record = MapAttributes
    traits = Trait.FUSES | Trait.APPLIES
    family = KernelFamily.LOOPS

    @staticmethod
    def infer(*xs: Shape, attrs: MapAttributes[ProgramShape]) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C1")
        first = xs[0]
        for i, x in enumerate(xs):
            check_same_dims(x, first, operand(i), "C1")
        dimensions = attrs.dimensions
        if dimensions is not None and dimensions != tuple(range(first.rank)):
            expected = braces(range(first.rank))
            raise Violation("attribute-value", "dimensions", braces(dimensions), expected, "C2")
        _check_mapped(xs, attrs.to_apply)
        return attrs.to_apply.result.with_dims(first.dims, first.dynamic)

    @staticmethod
    def evaluate(*xs: Array, attrs: MapAttributes[Callee]) -> Array:
        from hlo.ops.applying import applied

        return applied(attrs.to_apply, xs)[0]


def _check_mapped(xs: Sequence[Shape], f: ProgramShape) -> None:
    if len(f.parameters) != len(xs):
        found = f"a computation of {len(f.parameters)} parameters"
        raise Violation("call-signature", "to_apply", found, f"{len(xs)}", "C3")
    for i, (x, parameter) in enumerate(zip(xs, f.parameters, strict=True)):
        if not parameter.is_scalar or not same_type(parameter.dtype, x.dtype):
            found = f"a computation whose parameter {i} is {text(parameter)}"
            raise Violation("call-signature", "to_apply", found, f"{x.dtype}[]", "C3")
    if not f.result.is_scalar:
        found = f"a computation that returns {text(f.result)}"
        raise Violation("call-signature", "to_apply", found, "a scalar", "C3")


class ScanAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    dimensions: Annotated[Ints, INTS]
    num_carries: Annotated[int, INT64]
    is_reverse: Annotated[bool, BOOL] = False
    is_associative: Annotated[bool, BOOL, "always"] = False
    to_apply: Annotated[F, COMPUTATION]


class Scan(Op):
    """carry = inits; for t along dimensions[0]: (y, carry) = f(inputs[t], carry); outputs[t] = y.

    m inputs, then num_carries initial carries; the result is outputs, then final carries, bare when
    there is one. is_reverse runs t downwards. is_associative is a hint.
    C1: one dimension; as many operands as f has parameters. C2: at least num_carries operands and
    results; inputs and outputs are not both empty. C3: inputs have equal sizes along the dimension;
    f's parameters are the inputs without it, then the carries' shapes, which f returns unchanged.
    """

    opcode = "scan"
    record = ScanAttributes
    traits = Trait.EXPANDED

    @staticmethod
    def infer(*operands: Shape, attrs: ScanAttributes[ProgramShape]) -> Shape:
        f = attrs.to_apply
        inputs, inits = _scan_operands(operands, attrs.dimensions, attrs.num_carries, f)
        count = _scan_count(inputs, attrs.dimensions[0])
        results = f.result.elements if f.result.is_tuple else (f.result,)
        outputs = len(results) - attrs.num_carries
        if outputs < 0 or (not inputs and not outputs):
            found = f"a computation that returns {text(f.result)}"
            expected = f"{attrs.num_carries} carries, and outputs if there are no inputs"
            raise Violation("call-signature", "to_apply", found, expected, "C2")
        wanted = [*(_without(x, attrs.dimensions[0]) for x in inputs), *inits]
        for i, (have, want) in enumerate(zip(f.parameters, wanted, strict=True)):
            _check_scanned(have, want, f"parameter {i}")
        for i, (have, want) in enumerate(zip(results[outputs:], inits, strict=True)):
            _check_scanned(have, want, f"carry {i} of the result")
        shapes = [_inserted(y, attrs.dimensions[0], count) for y in results[:outputs]]
        shapes += results[outputs:]
        return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)

    @staticmethod
    def evaluate(*operands: Array, attrs: ScanAttributes[Callee]) -> object:
        (along,) = attrs.dimensions
        m = len(operands) - attrs.num_carries
        inputs, carry = operands[:m], operands[m:]
        shape = attrs.to_apply.program_shape.result
        count = len(shape.elements) - attrs.num_carries if shape.is_tuple else 1 - attrs.num_carries
        size = inputs[0].shape[along] if inputs else 0
        outputs: list[list[Array]] = [[] for _ in range(count)]
        for t in reversed(range(size)) if attrs.is_reverse else range(size):
            called = attrs.to_apply(*(np.asarray(np.take(x, t, along)) for x in inputs), *carry)
            values = called if isinstance(called, tuple) else (called,)
            for column, value in zip(outputs, values[:count], strict=True):
                column.append(value)
            carry = values[count:]
        results = [
            _stacked(y, along, shape.elements[k] if shape.is_tuple else shape, attrs.is_reverse)
            for k, y in enumerate(outputs)
        ]
        results += carry
        return results[0] if len(results) == 1 else tuple(results)


def _scan_operands(
    operands: Sequence[Shape], dimensions: Ints, carries: int, f: ProgramShape
) -> tuple[Sequence[Shape], Sequence[Shape]]:
    check_count("dimensions", dimensions, 1, "C1")
    if len(operands) != len(f.parameters):
        found = f"a computation of {len(f.parameters)} parameters"
        raise Violation("call-signature", "to_apply", found, f"{len(operands)}, as operands", "C1")
    if not 0 <= carries <= len(operands):
        expected = f"at least 0 and at most {len(operands)}"
        raise Violation("attribute-value", "num_carries", f"{carries}", expected, "C2")
    m = len(operands) - carries
    return operands[:m], operands[m:]


def _scan_count(inputs: Sequence[Shape], along: int) -> int:
    """How many steps the inputs have; 0 without inputs."""
    for i, x in enumerate(inputs):
        check_array(x, operand(i), "C3")
        check_dimension("dimensions", along, x.rank, "C3")
        if x.dims[along] != inputs[0].dims[along]:
            expected = f"size {inputs[0].dims[along]} in dimension {along}"
            raise Violation("shape-mismatch", operand(i), text(x), expected, "C3")
    return inputs[0].dims[along] if inputs else 0


def _check_scanned(have: Shape, want: Shape, role: str) -> None:
    if have.dtype is not want.dtype or not dims_agree(have.dims, want.dims):
        found = f"a computation whose {role} is {text(have)}"
        raise Violation("call-signature", "to_apply", found, text(want), "C3")


def _without(x: Shape, along: int) -> Shape:
    kept = [d for d in range(x.rank) if d != along]
    return x.with_dims((x.dims[d] for d in kept), (x.dynamic[d] for d in kept))


def _inserted(y: Shape, along: int, count: int) -> Shape:
    check_array(y, "to_apply", "C3")
    if along > y.rank:
        found = f"a computation with an output of {text(y)}"
        raise Violation("call-signature", "to_apply", found, f"rank {along} or more", "C3")
    dims = (*y.dims[:along], count, *y.dims[along:])
    return y.with_dims(dims, (*y.dynamic[:along], False, *y.dynamic[along:]))


def _stacked(column: list[Array], along: int, shape: Shape, backwards: bool) -> Array:  # noqa: FBT001  # as the attribute
    if not column:
        return np.zeros((*shape.dims[:along], 0, *shape.dims[along:]), shape.dtype.numpy)
    return np.stack(column[::-1] if backwards else column, along)
