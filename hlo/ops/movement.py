"""Ops that move or relabel elements and compute nothing: bits are copied, NaN payloads survive.

Source: docs/semantics.md 7.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec.structs import replace

from hlo.attributes.ints import INTS
from hlo.attributes.padding import PADDING, PaddingDim
from hlo.attributes.scalars import INT64
from hlo.attributes.slices import SLICE, SliceDim
from hlo.errors import Violation
from hlo.ir.layout import Layout
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import (
    check_dimension,
    check_dimensions,
    check_operand_count,
    check_rank,
    check_scalar,
    check_type,
    operand,
    same_size,
)
from hlo.ops.numerics.by_need import representation
from hlo.ops.shape_rules import (
    Ints,
    any_dynamic,
    braces,
    check_array,
    check_arrays,
    higher_precision,
    text,
)
from hlo.ops.table import Cost, KernelFamily, Op, Trait

Array = np.ndarray


class IotaAttributes(Attributes, frozen=True):
    iota_dimension: Annotated[int, INT64]


class Iota(Op):
    """result[i] = convert(i[iota_dimension]).

    Integers wrap modulo 2^bits, floats round to nearest even, complex numbers are (i, 0).
    C1: the result is an array. C2: of rank at least 1. C3: iota_dimension is one of its dimensions.
    C4: integral, floating or complex.
    Source: openxla.org/xla/operation_semantics, "Iota".
    """

    opcode = "iota"
    arity = 0
    record = IotaAttributes
    traits = Trait.FINISHES | Trait.FUSES
    family = KernelFamily.LOOPS
    cost = Cost(0)
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(*, attrs: IotaAttributes, shape: Shape) -> Shape:
        check_array(shape, "result", "C1")
        if not shape.dims:
            raise Violation("shape-mismatch", "result", text(shape), "rank 1 or more", "C2")
        check_dimension("iota_dimension", attrs.iota_dimension, shape.rank, "C3")
        if shape.dtype.is_pred:
            raise Violation("dtype", "result", text(shape), "a number type", "C4")
        return shape

    @staticmethod
    def evaluate(*, attrs: IotaAttributes, shape: Shape) -> Array:
        counting = np.arange(shape.dims[attrs.iota_dimension])
        if shape.dtype.is_integral:
            values = representation.wrapped(counting, shape.dtype)
        else:
            wide = counting.astype(np.float64)
            real = representation.rounded(wide, shape.dtype.component)
            values = real.astype(shape.dtype.numpy)
        along = [1] * shape.rank
        along[attrs.iota_dimension] = -1
        return np.broadcast_to(values.reshape(along), shape.dims)


class BroadcastAttributes(Attributes, frozen=True):
    dimensions: Annotated[Ints, INTS, "always"] = ()


class Broadcast(Op):
    """result[j] = operand[j[dimensions[0]], j[dimensions[1]], ...]; no dimension is stretched.

    C1: equal element types. C2: one entry of `dimensions` per dimension of the operand.
    C3: each is a dimension of the result of the same size. C4: they are distinct (unsorted ones
    transpose). `dimensions` may be left out when the operand is a scalar.
    Source: openxla.org/xla/operation_semantics, "BroadcastInDim".
    """

    opcode = "broadcast"
    arity = 1
    record = BroadcastAttributes
    traits = Trait.MOVEMENT | Trait.REPEATS | Trait.FINISHES
    takes_shape = True

    @staticmethod
    def infer(x: Shape, *, attrs: BroadcastAttributes, shape: Shape | None) -> Shape:
        check_array(x, "operand 0", "C1")
        if shape is None:
            return _broadcast_shape_omitted(x, attrs.dimensions)
        check_array(shape, "result", "C1")
        if x.dtype is not shape.dtype:
            raise Violation("dtype", "result", text(shape), f"element type {x.dtype}", "C1")
        if len(attrs.dimensions) != x.rank:
            raise Violation(
                "attribute-value", "dimensions", braces(attrs.dimensions),
                f"{x.rank} entries, one per dimension of {x}", "C2",
            )  # fmt: skip
        if not all(0 <= d < shape.rank for d in attrs.dimensions):
            raise Violation(
                "attribute-value", "dimensions", braces(attrs.dimensions),
                f"each at least 0 and below {shape.rank}", "C3",
            )  # fmt: skip
        for i, d in enumerate(attrs.dimensions):
            if not same_size(shape.dims[d], x.dims[i]):
                raise Violation(
                    "shape-mismatch", "operand 0", text(x),
                    f"size {shape.dims[d]} in dimension {i} (dimension {d} of {shape})", "C3",
                )  # fmt: skip
        check_dimensions("dimensions", attrs.dimensions, shape.rank, "C4")
        return shape

    @staticmethod
    def evaluate(x: Array, *, attrs: BroadcastAttributes, shape: Shape) -> Array:
        dims = list(shape.dims)
        along = [1] * shape.rank
        for size, d in zip(x.shape, attrs.dimensions, strict=True):
            dims[d] = along[d] = size
        return np.broadcast_to(np.transpose(x, np.argsort(attrs.dimensions)).reshape(along), dims)


def _broadcast_shape_omitted(x: Shape, dimensions: Ints) -> Shape:
    if dimensions or x.dims:  # XLA would read `dimensions` as sizes to prepend
        raise Violation("shape-mismatch", "result", "not written", "a written result shape")
    return x


class ReshapeAttributes(Attributes, frozen=True):
    inferred_dimension: Annotated[int, INT64] = -1


class Reshape(Op):
    """The same elements in row-major logical order under other dimensions.

    inferred_dimension: which dimension of the result is the dynamic one where that is open.
    C1: equal element types. C2: equal element counts.
    Source: openxla.org/xla/operation_semantics, "Reshape".
    """

    opcode = "reshape"
    arity = 1
    record = ReshapeAttributes
    traits = Trait.MOVEMENT | Trait.REGROUPS | Trait.FINISHES
    family = KernelFamily.FREE
    inferable = False
    takes_shape = True
    takes_operand_shapes = True

    @staticmethod
    def infer(x: Shape, *, attrs: ReshapeAttributes, shape: Shape) -> Shape:
        check_array(x, "operand 0", "C1")
        check_array(shape, "result", "C1")
        if x.dtype is not shape.dtype:
            raise Violation("dtype", "result", text(shape), f"element type {x.dtype}", "C1")
        if x.size != shape.size and UNBOUNDED not in (*x.dims, *shape.dims):
            raise Violation("shape-mismatch", "result", text(shape), f"{x.size} elements", "C2")
        return shape

    @staticmethod
    def evaluate(
        x: Array, *, attrs: ReshapeAttributes, shape: Shape, operand_shapes: tuple[Shape, ...]
    ) -> Array:
        if x.shape == operand_shapes[0].dims:
            return x.reshape(shape.dims)
        from hlo.ops.extents import reshaped_extents  # of values whose sizes change

        extents = reshaped_extents(operand_shapes[0].dims, x.shape, shape, attrs.inferred_dimension)
        return x.reshape(extents)


class DimensionsAttributes(Attributes, frozen=True):
    """Of ops that say `dimensions` and no more."""

    dimensions: Annotated[Ints, INTS]


class Transpose(Op):
    """result[j] = operand[k] where k[dimensions[i]] = j[i].

    C1: dimensions is a permutation of the operand's dimensions.
    Source: openxla.org/xla/operation_semantics, "Transpose".
    """

    opcode = "transpose"
    arity = 1
    record = DimensionsAttributes
    traits = Trait.MOVEMENT | Trait.PERMUTES | Trait.FINISHES

    @staticmethod
    def infer(x: Shape, *, attrs: DimensionsAttributes) -> Shape:
        check_array(x, "operand 0", "C1")
        if sorted(attrs.dimensions) != list(range(x.rank)):
            raise Violation(
                "attribute-value", "dimensions", braces(attrs.dimensions),
                f"a permutation of {braces(range(x.rank))}", "C1",
            )  # fmt: skip
        moved = Shape.array(
            x.dtype,
            (x.dims[d] for d in attrs.dimensions),
            dynamic=(x.dynamic[d] for d in attrs.dimensions),
        )
        assert x.layout is not None, "an array has a layout"
        return moved.with_layout(_permuted(x.layout, attrs.dimensions))

    @staticmethod
    def evaluate(x: Array, *, attrs: DimensionsAttributes) -> Array:
        return np.transpose(x, attrs.dimensions)


def _permuted(layout: Layout, dimensions: Ints) -> Layout:
    """The same bytes under permuted dimension numbers; tiles and memory space are kept."""
    moved = {d: i for i, d in enumerate(dimensions)}
    if not moved.keys() >= set(layout.minor_to_major):  # text may hold any numbers
        found = braces(layout.minor_to_major)
        raise Violation("layout", "operand 0", f"laid out as {found}", "a permutation", "C1")
    return replace(layout, minor_to_major=tuple(moved[d] for d in layout.minor_to_major))


class Bitcast(Op):
    """The same bytes under another shape: both sides' elements in physical order are the same.

    C1: arrays of equal byte sizes (checked where layouts are: V29 of the verifier).
    """

    opcode = "bitcast"
    arity = 1
    traits = Trait.MOVEMENT | Trait.FREE | Trait.REGROUPS
    inferable = False
    takes_shape = True
    takes_operand_shapes = True

    @staticmethod
    def infer(x: Shape, *, shape: Shape) -> Shape:
        check_array(x, "operand 0", "C1")
        check_array(shape, "result", "C1")
        return shape

    @staticmethod
    def evaluate(x: Array, *, shape: Shape, operand_shapes: tuple[Shape, ...]) -> Array:
        from hlo.ops.bits import reinterpreted  # of programs that are evaluated

        source = operand_shapes[0]
        assert source.layout is not None, "an array has a layout"
        assert shape.layout is not None, "an array has a layout"
        flat = np.transpose(x, source.layout.minor_to_major[::-1]).reshape(-1)
        bits = reinterpreted(flat, source.dtype, shape.dtype)
        if bits.size != shape.size:
            raise Violation(
                "shape-mismatch", "result", text(shape), f"as many bytes as {source}", "C1"
            )
        physical = shape.layout.minor_to_major[::-1]
        return np.transpose(bits.reshape([shape.dims[d] for d in physical]), np.argsort(physical))


class Reverse(Op):
    """result[.., i, ..] = operand[.., size - 1 - i, ..] along each of `dimensions`.

    C1: dimensions are distinct dimensions of the operand (none is allowed).
    Source: openxla.org/xla/operation_semantics, "Rev".
    """

    opcode = "reverse"
    arity = 1
    record = DimensionsAttributes
    traits = Trait.MOVEMENT | Trait.PERMUTES

    @staticmethod
    def infer(x: Shape, *, attrs: DimensionsAttributes) -> Shape:
        check_array(x, "operand 0", "C1")
        check_dimensions("dimensions", attrs.dimensions, x.rank, "C1")
        return x

    @staticmethod
    def evaluate(x: Array, *, attrs: DimensionsAttributes) -> Array:
        return np.flip(x, attrs.dimensions)


class SliceAttributes(Attributes, frozen=True):
    slice: Annotated[tuple[SliceDim, ...], SLICE]


class Slice(Op):
    """result[i] = operand[start + i * stride]; size ceil((limit - start) / stride) per dimension.

    C1: one triple per dimension. C2: 0 <= start <= limit <= size and stride >= 1.
    A bounded dynamic dimension stays dynamic unless the result's size is 1.
    Source: openxla.org/xla/operation_semantics, "Slice".
    """

    opcode = "slice"
    arity = 1
    record = SliceAttributes
    traits = Trait.MOVEMENT | Trait.CUTS | Trait.FINISHES
    inferable = False

    @staticmethod
    def infer(x: Shape, *, attrs: SliceAttributes) -> Shape:
        check_array(x, "operand 0", "C1")
        if len(attrs.slice) != x.rank:
            found = f"{len(attrs.slice)} triples"
            raise Violation("attribute-value", "slice", found, f"{x.rank}, as {x} has", "C1")
        for d, part in enumerate(attrs.slice):
            _check_slice_dim(part, x, d)
        dims = tuple(-(-(s.limit - s.start) // s.stride) for s in attrs.slice)
        dynamic = (f and n != 1 for f, n in zip(x.dynamic, dims, strict=True))
        return x.with_dims(dims, dynamic)

    @staticmethod
    def evaluate(x: Array, *, attrs: SliceAttributes) -> Array:
        return x[tuple(np.s_[s.start : s.limit : s.stride] for s in attrs.slice)]


def _check_slice_dim(part: SliceDim, x: Shape, d: int) -> None:
    found = f"[{part.start}:{part.limit}:{part.stride}] in dimension {d}"
    if part.stride < 1:
        raise Violation("attribute-value", "slice", found, "a stride of at least 1", "C2")
    if x.dims[d] != UNBOUNDED and part.limit > x.dims[d]:
        raise Violation(
            "attribute-value", "slice", found, f"a limit of at most {x.dims[d]} ({x})", "C2"
        )
    if not 0 <= part.start <= part.limit:
        raise Violation("attribute-value", "slice", found, "0 <= start <= limit", "C2")


class Concatenate(Op):
    """The operands one after the other along `dimensions[0]`.

    C1: at least one operand; dimensions holds one dimension of them. C2: equal ranks of at least 1,
    element types, and sizes in all other dimensions.
    Dynamic where any operand is; another dimension takes the most specific size.
    Source: openxla.org/xla/operation_semantics, "ConcatInDim (Concatenate)".
    """

    opcode = "concatenate"
    record = DimensionsAttributes
    traits = Trait.MOVEMENT | Trait.JOINS

    @staticmethod
    def infer(*xs: Shape, attrs: DimensionsAttributes) -> Shape:
        check_operand_count(xs, 1, "C1")
        check_arrays(xs, "C2")
        first = xs[0]
        dimensions = attrs.dimensions
        if len(dimensions) != 1:
            raise Violation("attribute-value", "dimensions", braces(dimensions), "one entry", "C1")
        if not first.dims:
            raise Violation("shape-mismatch", "operand 0", text(first), "rank 1 or more", "C2")
        (along,) = dimensions
        check_dimension("dimensions", along, first.rank, "C1")
        for i, x in enumerate(xs):
            check_rank(x, first.rank, operand(i), "C2")
            check_type(x, first, operand(i), "C2")
            for d in range(first.rank):
                if d != along and not same_size(x.dims[d], first.dims[d]):
                    expected = f"size {first.dims[d]} in dimension {d} (as operand 0, {first})"
                    raise Violation("shape-mismatch", operand(i), text(x), expected, "C2")
        return _concatenated(xs, along)

    @staticmethod
    def evaluate(*xs: Array, attrs: DimensionsAttributes) -> Array:
        rest = tuple(d for d in range(xs[0].ndim) if d != attrs.dimensions[0])
        least = tuple(min(x.shape[d] for x in xs) for d in rest)
        if any(x.shape[d] != n for x in xs for d, n in zip(rest, least, strict=True)):
            cut = dict(zip(rest, least, strict=True))  # run-time sizes differ
            xs = tuple(x[tuple(np.s_[: cut.get(d)] for d in range(x.ndim))] for x in xs)
        return np.concatenate(xs, attrs.dimensions[0])


def _concatenated(xs: tuple[Shape, ...], along: int) -> Shape:
    dims = [max(sizes) for sizes in zip(*(x.dims for x in xs), strict=True)]
    sizes = [x.dims[along] for x in xs]
    dims[along] = UNBOUNDED if UNBOUNDED in sizes else sum(sizes)
    dtype = xs[0].dtype
    for x in xs[1:]:
        dtype = higher_precision(dtype, x.dtype)
    return Shape.array(dtype, dims, dynamic=any_dynamic(xs))


class PadAttributes(Attributes, frozen=True):
    padding: Annotated[tuple[PaddingDim, ...], PADDING]


class Pad(Op):
    """result filled with v; x[i] goes to result[low + i * (interior + 1)] where that is inside.

    Negative edges crop, after interior padding.
    C1: operand 1 is a scalar. C2: equal element types. C3: one entry of padding per dimension.
    C4: interior >= 0. C5: no result dimension is negative.
    Source: openxla.org/xla/operation_semantics, "Pad".
    """

    opcode = "pad"
    arity = 2
    record = PadAttributes
    traits = Trait.MOVEMENT | Trait.PADS

    @staticmethod
    def infer(x: Shape, v: Shape, *, attrs: PadAttributes) -> Shape:
        check_array(x, "operand 0", "C2")
        check_scalar(v, "operand 1", "C1")
        check_type(v, x, "operand 1", "C2")
        if len(attrs.padding) != x.rank:
            raise Violation(
                "attribute-value", "padding", f"{len(attrs.padding)} entries",
                f"{x.rank}, as {x} has", "C3",
            )  # fmt: skip
        for d, p in enumerate(attrs.padding):
            if p.interior < 0:
                raise Violation(
                    "attribute-value", "padding", f"{p.interior} inside dimension {d}",
                    "at least 0", "C4",
                )  # fmt: skip
        dims = tuple(_padded(n, p) for n, p in zip(x.dims, attrs.padding, strict=True))
        for d, n in enumerate(dims):
            if n < 0 and x.dims[d] != UNBOUNDED:
                found = f"such that dimension {d} would have size {n}"
                raise Violation("attribute-value", "padding", found, "at least 0", "C5")
        return Shape.array(higher_precision(x.dtype, v.dtype), dims, dynamic=x.dynamic)

    @staticmethod
    def evaluate(x: Array, v: Array, *, attrs: PadAttributes) -> Array:
        dilated = np.broadcast_to(
            v, [n + max(n - 1, 0) * p.interior for n, p in zip(x.shape, attrs.padding, strict=True)]
        ).copy()
        dilated[tuple(np.s_[:: p.interior + 1] for p in attrs.padding)] = x
        dims = [max(_padded(n, p), 0) for n, p in zip(x.shape, attrs.padding, strict=True)]
        result = np.broadcast_to(v, dims).copy()
        source, target = [], []
        for n, size, p in zip(dilated.shape, dims, attrs.padding, strict=True):
            first, last = max(0, -p.low), min(n, size - p.low)
            source.append(slice(first, max(first, last)))
            target.append(slice(first + p.low, max(first, last) + p.low))
        result[tuple(target)] = dilated[tuple(source)]
        return result


def _padded(size: int, p: PaddingDim) -> int:
    if size == UNBOUNDED:
        return UNBOUNDED
    return size + p.low + p.high + max(size - 1, 0) * p.interior
