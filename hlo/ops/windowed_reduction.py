"""Ops that slide a window over an array: reduce-window, select-and-scatter.

Source: docs/semantics.md 9.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.names import COMPUTATION
from hlo.attributes.window import WINDOW, Window
from hlo.errors import Violation
from hlo.ir.shape import ProgramShape, Shape
from hlo.ops.attributes import Attributes, F
from hlo.ops.constraints import check_scalar
from hlo.ops.reducers import reducer_results
from hlo.ops.reduction import inputs_and_inits
from hlo.ops.shape_rules import check_arrays, dims_agree, same_type, text
from hlo.ops.table import KernelFamily, Op, Trait
from hlo.ops.windows import (
    NO_WINDOW,
    check_walk,
    check_window,
    dilated_and_padded,
    is_sparse,
    met_positions,
    reads,
    result_size,
    result_sizes,
    trimmed,
)

if TYPE_CHECKING:
    from hlo.ops.callee import Callee

Array = np.ndarray


class ReduceWindowAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    window: Annotated[Window, WINDOW] = NO_WINDOW
    to_apply: Annotated[F, COMPUTATION]


class ReduceWindow(Op):
    """result[o] = reduction of f from init over the window's elements that lie inside, row-major.

    Position w of window o reads b = o * stride + w * window_dilation - low, if b >= 0, b is a
    multiple of base_dilation, and b / base_dilation < dim. Holes and padding are skipped; init is
    applied once. Reversal has no effect.
    C1: an even number of operands, at least 2. C2: all arrays have equal dimensions.
    C3: one window dimension per dimension. C4: sizes, strides and dilations are at least 1.
    R1-R7: the reducer's rules, as for reduce.
    Source: openxla.org/xla/operation_semantics, "ReduceWindow".
    """

    opcode = "reduce-window"
    record = ReduceWindowAttributes
    traits = Trait.FUSES | Trait.APPLIES
    family = KernelFamily.WINDOW

    @staticmethod
    def infer(*operands: Shape, attrs: ReduceWindowAttributes[ProgramShape]) -> Shape:
        inputs, inits = inputs_and_inits(operands)
        x = inputs[0]
        check_window(attrs.window, x.rank, "C3", "C4")
        reducer_results(attrs.to_apply, inputs, inits)
        dims = result_sizes(x.dims, attrs.window)
        shapes = [z.with_dims(dims, x.dynamic) for z in inits]
        return Shape.tuple(shapes) if attrs.to_apply.result.is_tuple else shapes[0]

    @staticmethod
    def evaluate(*operands: Array, attrs: ReduceWindowAttributes[Callee]) -> object:
        from hlo.ops.axis_reductions import operations

        window = attrs.window
        n = len(operands) // 2
        inputs, inits = operands[:n], operands[n:]
        check_walk(inputs[0].shape, window)
        window = trimmed(inputs[0].shape, window)
        simple = operations(attrs.to_apply.computation, n)
        if simple and not is_sparse(inputs[0].shape, window):
            columns = zip(simple, inputs, inits, strict=True)
            results = tuple(_slid(o, x, z, window) for o, x, z in columns)
        else:
            results = _called_window(attrs.to_apply, inputs, inits, window)
        return results if attrs.to_apply.program_shape.result.is_tuple else results[0]


def _slid(operation: str, x: Array, z: Array, window: Window) -> Array:
    """One dimension after the other, each window put together from halves: O(size log window)."""
    from hlo.ops.axis_reductions import combined, narrowed, wide_identity, widened
    from hlo.ops.numerics.representation import dtype_of

    dtype = dtype_of(x)
    dims = result_sizes(x.shape, window)
    if 0 in dims:
        return np.zeros(dims, x.dtype)
    wide = dilated_and_padded(widened(x, dtype), window, wide_identity(operation, dtype))
    for d, w in enumerate(window.dims):
        wide = _slid_along(operation, wide, d, w.size, w.window_dilation)
        wide = wide[(np.s_[:],) * d + (np.s_[:: w.stride],)]
    return narrowed(combined(operation, widened(z, dtype), wide), dtype)


def _slid_along(operation: str, x: Array, d: int, size: int, step: int) -> Array:
    """Reductions of `size` elements, `step` apart, from every start along dimension d."""
    from hlo.ops.axis_reductions import combined

    x = np.moveaxis(x, d, 0)
    count = len(x) - (size - 1) * step
    result, done, power, width = None, 0, x, 1
    while size:
        if size & 1:
            part = power[done * step : done * step + count]
            result = part if result is None else combined(operation, result, part)
            done += width
        size >>= 1
        if size:
            shift = width * step
            power = combined(operation, power[:-shift], power[shift:])
            width *= 2
    assert result is not None, "a window has at least one element"
    return np.moveaxis(result, 0, d)


def _called_window(
    f: Callee, inputs: tuple[Array, ...], inits: tuple[Array, ...], window: Window
) -> tuple[Array, ...]:
    from hlo.ops.applying import applied

    dims = result_sizes(inputs[0].shape, window)
    accumulators = tuple(np.broadcast_to(z, dims) for z in inits)
    if 0 in dims or 0 in inputs[0].shape:
        return accumulators
    for position in _positions(inputs[0].shape, window):
        read = reads(inputs[0].shape, window, position)
        if not read.inside.any():
            continue
        elements = (np.broadcast_to(x[read.indices], dims) for x in inputs)
        stepped = applied(f, (*accumulators, *elements))
        accumulators = tuple(
            np.where(read.inside, new, old) for new, old in zip(stepped, accumulators, strict=True)
        )
    return accumulators


def _positions(dims: tuple[int, ...], window: Window) -> Iterator[tuple[int, ...]]:
    """Positions of the window, row-major, all that meet an element among them."""
    sizes = zip(dims, window.dims, strict=True)
    return itertools.product(*(met_positions(n, w) for n, w in sizes))


class SelectAndScatterAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    window: Annotated[Window, WINDOW] = NO_WINDOW
    select: Annotated[F, COMPUTATION]
    scatter: Annotated[F, COMPUTATION]


class SelectAndScatter(Op):
    """result = init everywhere; each source element goes, by f, to the element its window selects.

    In a window (row-major, positions inside only) the first is the winner until
    select(winner, next) is false; then result[winner] = scatter(result[winner], source[o]).
    C1: select takes two scalars of the operand's type and returns pred[]. C2: scatter is a reducer
    for (init, source). C3: source has the dimensions of reduce-window's result. C4: window as in
    reduce-window, with base dilation 1.
    Source: openxla.org/xla/operation_semantics, "SelectAndScatter".
    """

    opcode = "select-and-scatter"
    arity = 3
    record = SelectAndScatterAttributes
    traits = Trait.APPLIES
    family = KernelFamily.WINDOW

    @staticmethod
    def infer(
        x: Shape, source: Shape, init: Shape, *, attrs: SelectAndScatterAttributes[ProgramShape]
    ) -> Shape:
        check_arrays((x, source, init), "C3")
        _check_select(attrs.select, x)
        check_scalar(init, "operand 2", "C2")
        reducer_results(attrs.scatter, (source,), (init,), "scatter")
        check_window(attrs.window, x.rank, "C4", "C4")
        wanted = x.with_dims(result_sizes(x.dims, attrs.window))
        if not dims_agree(source.dims, wanted.dims) or not same_type(source.dtype, x.dtype):
            raise Violation("shape-mismatch", "operand 1", text(source), text(wanted), "C3")
        return x

    @staticmethod
    def check(
        x: Shape,
        source: Shape,
        init: Shape,
        *,
        attrs: SelectAndScatterAttributes[ProgramShape],
        shape: Shape,
    ) -> None:
        if any(w.base_dilation != 1 for w in attrs.window.dims):
            raise Violation(
                "attribute-value", "window", "dilated (lhs_dilate)", "lhs_dilate=1", "C4"
            )

    @staticmethod
    def evaluate(
        x: Array, source: Array, init: Array, *, attrs: SelectAndScatterAttributes[Callee]
    ) -> Array:
        from hlo.ops.accumulation import accumulated_at

        window = attrs.window
        check_walk(x.shape, window)
        window = trimmed(x.shape, window)
        result = np.broadcast_to(init, x.shape).astype(x.dtype)
        if not source.size or not x.size:
            return result
        chosen, exists = _winners(x, window, attrs.select)
        targets = np.where(exists, chosen, 0)[exists]
        return accumulated_at(attrs.scatter, (result,), targets, (source[exists],))[0]


def _check_select(select: ProgramShape, x: Shape) -> None:
    parameters = select.parameters
    fine = len(parameters) == 2 and all(
        p.is_scalar and same_type(p.dtype, x.dtype) for p in parameters
    )
    if not fine or not select.result.is_scalar or not select.result.dtype.is_pred:
        found, t = f"a computation {select}", x.dtype
        expected = f"({t}[], {t}[]) -> pred[]"
        raise Violation("call-signature", "select", found, expected, "C1")


def _winners(x: Array, window: Window, select: Callee) -> tuple[Array, Array]:
    """The linear index of each window's winner, and whether the window has any element."""
    from hlo.ops.applying import applied

    dims = tuple(result_size(n, w) for n, w in zip(x.shape, window.dims, strict=True))
    chosen, exists = np.zeros(dims, np.int64), np.zeros(dims, bool)
    flat = x.reshape(-1)
    for position in _positions(x.shape, window):
        read = reads(x.shape, window, position)
        index = np.broadcast_to(np.ravel_multi_index(read.indices, x.shape), dims)
        (keeps,) = applied(select, (flat[chosen], flat[index]))
        takes = read.inside & ~(exists & keeps)
        chosen = np.where(takes, index, chosen)
        exists = exists | read.inside
    return chosen, exists
