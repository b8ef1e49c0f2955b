"""Ops that change the element type or its precision. Source: docs/semantics.md 6."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hlo.attributes.scalars import WRAPPED_INT32
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape
from hlo.ops.attributes import Attributes
from hlo.ops.elementwise_row import common_extents
from hlo.ops.shape_rules import check_array, check_dims, check_kind, text, written
from hlo.ops.table import Op, Trait

Array = np.ndarray


class Convert(Op):
    """result[i] = x[i] as the result's element type.

    Integers wrap; numbers to floats round to nearest even, once; floats to integers truncate and
    saturate, NaN gives 0; anything to pred is x != 0; complex to real drops the imaginary part.
    C1: operand and result are arrays. C2: equal dimensions, the same ones dynamic.
    """

    opcode = "convert"
    arity = 1
    traits = Trait.ELEMENTWISE | Trait.STEADY
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(x: Shape, *, shape: Shape | None) -> Shape:
        target = written(shape)
        check_array(x, "operand 0", "C1")
        check_array(target, "result", "C1")
        return x.with_dtype(target.dtype)

    @staticmethod
    def check(x: Shape, *, shape: Shape) -> None:
        if x.dynamic != shape.dynamic:
            expected = f"the dynamic dimensions of {text(x)}"
            raise Violation("shape-mismatch", "result", text(shape), expected, "C2")

    @staticmethod
    def evaluate(x: Array, *, shape: Shape) -> Array:
        from hlo.ops.numerics.conversion import converted

        return converted(x, shape.dtype)


class BitcastConvert(Op):
    """The operand's bits read as another element type, little-endian, narrow elements packed.

    C1: both types complex or neither. C2: arrays. C3: one width divides the other. C4: a result of
    narrower elements has a new last dimension of that ratio; of wider ones, the operand's last
    dimension is that ratio and disappears; of equal width, the same dimensions.
    """

    opcode = "bitcast-convert"
    arity = 1
    traits = Trait.MOVEMENT
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(x: Shape, *, shape: Shape | None) -> Shape:
        target = written(shape)
        check_array(x, "operand 0", "C2")
        check_array(target, "result", "C2")
        if x.dtype.is_complex != target.dtype.is_complex:
            found = f"{x.dtype} to {target.dtype}"
            raise Violation("dtype", "operand 0", found, "both complex or neither", "C1")
        source, result = x.dtype.bits, target.dtype.bits
        if max(source, result) % min(source, result):
            expected = f"a width that divides {result} or is a multiple of it"
            raise Violation("dtype", "operand 0", f"{source} bits wide", expected, "C3")
        if source > result:
            return Shape.array(
                target.dtype, (*x.dims, source // result), dynamic=(*x.dynamic, False)
            )
        if source == result:
            return x.with_dtype(target.dtype)
        if not x.dims or x.dims[-1] != result // source:
            expected = f"a last dimension of {result // source}"
            raise Violation("shape-mismatch", "operand 0", text(x), expected, "C4")
        return Shape.array(target.dtype, x.dims[:-1], dynamic=x.dynamic[:-1])

    @staticmethod
    def evaluate(x: Array, *, shape: Shape) -> Array:
        from hlo.ops.bits import packed, unpacked
        from hlo.ops.numerics.representation import dtype_of

        source, target = dtype_of(x), shape.dtype
        ratio = source.bits // target.bits
        if ratio > 1:
            dims = (*x.shape, ratio)
        else:
            dims = x.shape if source.bits == target.bits else x.shape[:-1]
        flat = np.ascontiguousarray(x).reshape(-1)
        raw = packed(flat.astype(np.uint8) if source is dt.PRED else flat, _storage(source))
        if target is dt.PRED:
            return np.asarray((unpacked(raw, dt.U8) != 0).reshape(dims))
        return unpacked(raw, target).reshape(-1)[: int(np.prod(dims, dtype=np.int64))].reshape(dims)


def _storage(dtype: DType) -> DType:
    return dt.U8 if dtype is dt.PRED else dtype


class ReducePrecisionAttributes(Attributes, frozen=True):
    exponent_bits: Annotated[int, WRAPPED_INT32, "always"]
    mantissa_bits: Annotated[int, WRAPPED_INT32, "always"]


class ReducePrecision(Op):
    """x rounded to a float format of the given exponent and mantissa bits, in x's own type.

    The mantissa rounds to nearest even; beyond the exponents of the format come infinities and
    signed zeros (its subnormals are flushed); NaN stays.
    C1: floating. C2: exponent_bits >= 1, mantissa_bits >= 0.
    """

    opcode = "reduce-precision"
    arity = 1
    record = ReducePrecisionAttributes
    traits = Trait.ELEMENTWISE
    inferable = False

    @staticmethod
    def infer(x: Shape, *, attrs: ReducePrecisionAttributes) -> Shape:
        check_kind(x, frozenset({dt.Kind.FLOAT}), "operand 0", "C1")
        exponent, mantissa = attrs.exponent_bits, attrs.mantissa_bits
        if exponent < 1:
            raise Violation("attribute-value", "exponent_bits", f"{exponent}", ">= 1", "C2")
        if mantissa < 0:
            raise Violation("attribute-value", "mantissa_bits", f"{mantissa}", ">= 0", "C2")
        return x

    @staticmethod
    def evaluate(x: Array, *, attrs: ReducePrecisionAttributes) -> Array:
        from hlo.ops.numerics.representation import dtype_of, rounded, widen

        bits = attrs.exponent_bits, attrs.mantissa_bits
        fmt = dtype_of(x).float_format
        assert fmt is not None
        if fmt.nan != "ieee":  # a format of its own: in f32, which holds all its values
            return rounded(reduced_precision(widen(x), *bits), dtype_of(x))
        return reduced_precision(x, *bits)


def reduced_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """The rule of reduce-precision on the bits of an IEEE-like type."""
    from hlo.ops.numerics.representation import codes, dtype_of

    dtype = dtype_of(x)
    fmt = dtype.float_format
    assert fmt is not None
    bits = codes(x)
    word = bits.dtype.type
    sign = bits & word(1 << (dtype.bits - 1))
    size = bits ^ sign
    infinity = word(((1 << fmt.exponent) - 1) << fmt.mantissa)
    finite = size < infinity
    dropped = fmt.mantissa - mantissa_bits
    if dropped > 0:  # to nearest even by an integer addition: a carry raises the exponent
        last = (size >> word(dropped)) & word(1)
        bumped = size + last + word((1 << (dropped - 1)) - 1)
        size = np.where(finite, bumped & word(-(1 << dropped) % (1 << dtype.bits)), size)
    if exponent_bits < fmt.exponent:
        bias, reduced_bias = fmt.bias, (1 << (exponent_bits - 1)) - 1
        exponent = (size >> word(fmt.mantissa)).astype(np.int64)
        size = np.where(finite & (exponent > bias + reduced_bias), infinity, size)
        size = np.where(finite & (exponent <= bias - reduced_bias), word(0), size)
    result = np.where(np.isnan(x), bits, size | sign)
    return np.asarray(result, bits.dtype).view(x.dtype)


class StochasticConvert(Op):
    """x as a narrower type, rounded up in magnitude with a chance equal to what is cut off.

    To integers: t = floor(|x|), one more where random < floor((|x|-t) 2^w), w the bits of random;
    saturating, NaN gives 0. To floats (ours): the same between the neighbours in the target type.
    C1: x floating, random unsigned of the same width. C2: equal dimensions. C3: the result is
    signed integral, or floating (ours).
    """

    opcode = "stochastic-convert"
    arity = 2
    traits = Trait.ELEMENTWISE
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(x: Shape, random: Shape, *, shape: Shape | None) -> Shape:
        target = written(shape)
        check_kind(x, frozenset({dt.Kind.FLOAT}), "operand 0", "C1")
        check_kind(random, frozenset({dt.Kind.UNSIGNED}), "operand 1", "C1")
        if random.dtype.bits != x.dtype.bits:
            raise Violation("dtype", "operand 1", text(random), f"u{x.dtype.bits}", "C1")
        check_dims(random, x, "operand 1", "C2")
        check_kind(target, frozenset({dt.Kind.SIGNED, dt.Kind.FLOAT}), "result", "C3")
        return x.with_dtype(target.dtype)

    @staticmethod
    def evaluate(x: Array, random: Array, *, shape: Shape) -> Array:
        x, random = common_extents((x, random))
        with np.errstate(all="ignore"):
            if shape.dtype.is_integral:
                return _stochastic_integer(x, random, shape.dtype)
            return _stochastic_float(x, random, shape.dtype)


def _stochastic_integer(x: Array, random: Array, target: DType) -> Array:
    from hlo.ops.numerics.conversion import converted
    from hlo.ops.numerics.representation import dtype_of

    wide = x.astype(np.float64)
    size = np.abs(wide)
    whole = np.floor(size)
    bits = dtype_of(random).bits
    threshold = converted((size - whole) * 2.0**bits, dtype_of(random))
    result = np.copysign(whole + (random < threshold), wide)
    least, greatest = target.int_range
    result = np.where((wide >= greatest) | (wide <= least), wide, result)
    return converted(result, target)


def _stochastic_float(x: Array, random: Array, target: DType) -> Array:
    """Between the target's neighbours below and above |x|, by the fraction of the way."""
    from hlo.ops.numerics.conversion import converted
    from hlo.ops.numerics.representation import codes, dtype_of, rounded

    wide = x.astype(np.float64)
    size = np.abs(wide)
    nearest = rounded(size, target).astype(np.float64)
    code = codes(rounded(size, target))
    step = code.dtype.type(1)
    below = np.where(nearest > size, _value(code - step, target), nearest)
    above = np.where(nearest > size, nearest, _value(code + step, target))
    fraction = (size - below) / (above - below)
    bits = dtype_of(random).bits
    up = random < converted(fraction * 2.0**bits, dtype_of(random))
    chosen = np.where(nearest == size, nearest, np.where(up, above, below))
    return rounded(np.copysign(chosen, wide), target)


def _value(code: Array, dtype: DType) -> Array:
    from hlo.ops.numerics.representation import from_codes

    return from_codes(code, dtype).astype(np.float64)
