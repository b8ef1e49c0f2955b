"""Elementwise ops: arithmetic, bits and functions as rows; compare, select, clamp and complex.

The constraints that all rows share are in hlo/ops/elementwise_row.py. Source: docs/semantics.md 3
to 6; error budgets: section 17.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec.structs import replace

from hlo.attributes.enums import COMPARISON_TYPE, DIRECTION
from hlo.attributes.result_accuracy import RESULT_ACCURACY, ResultAccuracy
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, Kind
from hlo.ir.shape import UNBOUNDED, Shape
from hlo.ops.attributes import Attributes
from hlo.ops.elementwise_row import Array, broadcast_shape, common_extents, elementwise, refuse
from hlo.ops.identities import all_ones, greatest, least, one, zero
from hlo.ops.numerics.by_need import complexes, integers, reals, representation
from hlo.ops.shape_rules import (
    any_dynamic,
    braces,
    check_arrays,
    check_dims,
    check_same_type,
    dims_agree,
    higher_precision,
    merged_size,
    text,
)
from hlo.ops.table import Cost, Op, Trait

COMMUTATIVE = Trait.COMMUTATIVE
RING = Trait.COMMUTATIVE | Trait.ASSOCIATIVE  # exactly so for integers; floats round
LATTICE = Trait.COMMUTATIVE | Trait.ASSOCIATIVE | Trait.IDEMPOTENT | Trait.CHOOSES | Trait.EXACT
EXTREME = LATTICE | Trait.TAKES_ONE
ARITHMETIC = Trait.IN_HALVES | Trait.IEEE
COMPLEX = frozenset({Kind.COMPLEX})
TRANSCENDENTAL = Trait.TRANSCENDENTAL
KEEPS_TINY = TRANSCENDENTAL | Trait.KEEPS_TINY
LEVEL = TRANSCENDENTAL | Trait.LEVEL_AT_ZERO
FLOAT = frozenset({Kind.FLOAT})
FLOAT_OR_COMPLEX = FLOAT | COMPLEX

wrapping, arithmetic = integers.wrapping.of, reals.arithmetic.of
transcendental, widened = reals.transcendental.of, complexes.widened.of


class RA(Attributes, frozen=True):
    """Of functions of which text may say how exact they are to be."""

    result_accuracy: Annotated[ResultAccuracy | None, RESULT_ACCURACY, "given"] = None


def _to_pred(_: DType) -> DType:
    return dt.PRED


def _component(dtype: DType) -> DType:
    return dtype.component


def _complex_of(dtype: DType) -> DType:
    """C6: f32 makes c64, f64 makes c128; no other type makes a complex one."""
    if dtype not in (dt.F32, dt.F64):
        raise Violation("dtype", "operand 0", dtype.name, "f32 or f64", "C6")
    return dt.C64 if dtype is dt.F32 else dt.C128


def _real_part(z: Array) -> Array:
    return z.real.copy()


def _imaginary_part(z: Array) -> Array:
    return z.imag.copy()


def _positive_zero(x: Array) -> Array:
    """NaN of a scale, which has no zero."""
    zeros = np.zeros(x.shape, np.float32)
    return np.asarray(representation.rounded(zeros, representation.dtype_of(x)))


def _is_finite(x: Array) -> Array:
    return np.asarray(np.isfinite(representation.widen(x)))


# fmt: off
elementwise("abs", 1, "|x|. Signed integers wrap: |MIN| = MIN. Complex: the magnitude, a real.",
            integer=wrapping(np.abs), unsigned=refuse, real=reals.magnitude,
            complex_=widened(complexes.magnitude), result=_component, ulp=2, traits=Trait.EXACT)
elementwise("negate", 1, "-x. Integers wrap, unsigned too; a float's sign bit flips, NaN's too.",
            integer=wrapping(np.negative), real=reals.negate, complex_=complexes.negate,
            traits=Trait.EXACT)
elementwise("sign", 1, "-1, 0 or 1; NaN and zeros stay; complex z/|z|, 0 for 0.",
            integer=integers.sign, unsigned=refuse, real=reals.sign,
            complex_=widened(complexes.sign), ulp=2, traits=Trait.EXACT)
elementwise("not", 1, "Logical not of pred, bitwise complement of integers.",
            pred=np.logical_not, integer=integers.complement, traits=Trait.CHOOSES)
elementwise("popcnt", 1, "The number of one bits of the element's own width.",
            integer=integers.population_count)
elementwise("count-leading-zeros", 1, "Zero bits above the highest one; the width for 0.",
            integer=integers.count_leading_zeros)
elementwise("floor", 1, "The largest integer <= x; -0 stays.", real=arithmetic(np.floor),
            traits=Trait.EXACT_IN_HALVES)
elementwise("ceil", 1, "The smallest integer >= x; ceil(-0.5) = -0.", real=arithmetic(np.ceil),
            traits=Trait.EXACT_IN_HALVES)
elementwise("round-nearest-even", 1, "The nearest integer, halves to even, sign kept.",
            real=arithmetic(np.rint), traits=Trait.EXACT_IN_HALVES)
elementwise("round-nearest-afz", 1, "The nearest integer, halves away from zero, sign kept.",
            real=reals.round_half_away, traits=Trait.EXACT_IN_HALVES)
elementwise("is-finite", 1, "Whether x is neither NaN nor infinite.",
            real=_is_finite, result=_to_pred)
elementwise("real", 1, "The real part; x itself for a float.",
            real=np.copy, complex_=_real_part, result=_component, traits=Trait.EXACT)
elementwise("imag", 1, "The imaginary part; +0 for a float.",
            real=_positive_zero, complex_=_imaginary_part, result=_component)

elementwise("exponential", 1, "e^x; -inf -> 0, inf -> inf.", record=RA, traits=LEVEL,
            ulp=2,
            real=transcendental(np.exp), complex_=widened(complexes.exponential), cost=Cost(24, 45))
elementwise("exponential-minus-one", 1, "e^x - 1, accurate near 0; -0 stays.", record=RA,
            traits=KEEPS_TINY, ulp=2,
            real=transcendental(np.expm1), complex_=widened(complexes.exponential_minus_one),
            cost=Cost(32, 55))
elementwise("log", 1, "ln x; 0 -> -inf, x < 0 -> NaN. Complex: cut on the negative real axis.",
            record=RA, ulp=1.5, real=transcendental(np.log),
            complex_=widened(np.log), traits=TRANSCENDENTAL | Trait.STEADY, cost=Cost(21, 75))
elementwise("log-plus-one", 1, "ln(1 + x), accurate near 0; -1 -> -inf, below NaN, -0 stays.",
            record=RA, traits=KEEPS_TINY, ulp=2, real=transcendental(np.log1p),
            complex_=widened(complexes.logarithm_plus_one), cost=Cost(60, 95))
elementwise("logistic", 1, "1/(1 + e^-x).", record=RA, traits=LEVEL, ulp=2,
            real=transcendental(reals.logistic), complex_=widened(complexes.logistic),
            cost=Cost(110, 65))
elementwise("sqrt", 1, "The square root; -0 stays, x < 0 -> NaN. Complex: cut as log's.",
            record=RA, ulp=0.5, real=arithmetic(np.sqrt), complex_=widened(np.sqrt),
            traits=TRANSCENDENTAL | Trait.IEEE, cost=Cost(22, 19, divides=True))
elementwise("rsqrt", 1, "1/sqrt(x); 0 -> inf, -0 -> -inf, inf -> 0.", record=RA,
            traits=TRANSCENDENTAL, ulp=1.5,
            real=transcendental(reals.reciprocal_root),
            complex_=widened(complexes.reciprocal_root), cost=Cost(17, 45, divides=True))
elementwise("cbrt", 1, "The real cube root, odd: cbrt(-8) = -2.", record=RA, traits=TRANSCENDENTAL,
            ulp=2,
            real=transcendental(np.cbrt), cost=Cost(260, 100))
elementwise("erf", 1, "The error function 2/sqrt(pi) int_0^x e^(-t^2) dt, odd; +-inf -> +-1.",
            record=RA, traits=TRANSCENDENTAL, ulp=2, real=transcendental(reals.erf),
            cost=Cost(31, 55))
elementwise("sine", 1, "sin x, full range reduction; +-inf -> NaN, -0 stays.", record=RA,
            traits=KEEPS_TINY, ulp=1,
            real=transcendental(np.sin), complex_=widened(complexes.sine), cost=Cost(180, 90))
elementwise("cosine", 1, "cos x, full range reduction; +-inf -> NaN.", record=RA,
            traits=LEVEL, ulp=1,
            real=transcendental(np.cos), complex_=widened(complexes.cosine), cost=Cost(170, 90))
elementwise("tan", 1, "tan x, full range reduction; +-inf -> NaN, -0 stays.", record=RA,
            traits=KEEPS_TINY, ulp=2,
            real=transcendental(np.tan), complex_=widened(complexes.tangent), cost=Cost(230, 110))
elementwise("sinh", 1, "Hyperbolic sine.", record=RA, traits=KEEPS_TINY, ulp=2,
            real=transcendental(np.sinh), complex_=widened(complexes.hyperbolic_sine),
            cost=Cost(430, 90))
elementwise("cosh", 1, "Hyperbolic cosine.", record=RA, traits=LEVEL, ulp=2,
            real=transcendental(np.cosh), complex_=widened(complexes.hyperbolic_cosine),
            cost=Cost(320, 90))
elementwise("tanh", 1, "Hyperbolic tangent, odd; +-inf -> +-1.", record=RA, traits=KEEPS_TINY,
            ulp=2,
            real=transcendental(np.tanh), complex_=widened(np.tanh), cost=Cost(34, 55))
elementwise("asin", 1, "Inverse sine; |x| > 1 -> NaN.", record=RA, traits=KEEPS_TINY, ulp=2,
            real=transcendental(np.arcsin), complex_=widened(np.arcsin), cost=Cost(260, 90))
elementwise("acos", 1, "Inverse cosine; |x| > 1 -> NaN.", record=RA, traits=LEVEL, ulp=2,
            real=transcendental(np.arccos), complex_=widened(np.arccos), cost=Cost(440, 90))
elementwise("asinh", 1, "Inverse hyperbolic sine, odd.", record=RA, traits=KEEPS_TINY, ulp=2,
            real=transcendental(np.arcsinh), complex_=widened(np.arcsinh), cost=Cost(910, 120))
elementwise("acosh", 1, "Inverse hyperbolic cosine; x < 1 -> NaN.", record=RA,
            traits=TRANSCENDENTAL, ulp=2,
            real=transcendental(np.arccosh), complex_=widened(np.arccosh), cost=Cost(750, 120))
elementwise("atanh", 1, "Inverse hyperbolic tangent; +-1 -> +-inf, |x| > 1 -> NaN.",
            record=RA, traits=KEEPS_TINY, ulp=2, real=transcendental(np.arctanh),
            complex_=widened(np.arctanh),
            cost=Cost(820, 120))

elementwise("add", 2, "x + y; integers wrap, pred: or.", traits=RING | ARITHMETIC, ulp=0.5,
            pred=np.logical_or, integer=wrapping(np.add), real=arithmetic(np.add),
            complex_=np.add, identity=zero)
elementwise("multiply", 2, "x * y; integers wrap, pred: and, complex (ac-bd) + (ad+bc)i.",
            traits=RING | ARITHMETIC, ulp=0.5, pred=np.logical_and, integer=wrapping(np.multiply),
            real=arithmetic(np.multiply), complex_=complexes.multiply, identity=one)
elementwise("subtract", 2, "x - y; integers wrap.", ulp=0.5, integer=wrapping(np.subtract),
            real=arithmetic(np.subtract), complex_=np.subtract, traits=ARITHMETIC)
elementwise("divide", 2, "x / y. Integers toward zero, x/0 = -1 or all ones, MIN/-1 = MIN.",
            ulp=0.5, integer=integers.divide, real=arithmetic(np.divide),
            complex_=widened(complexes.divide), traits=Trait.IEEE, cost=Cost(18, 14, divides=True))
elementwise("remainder", 2, "x - y trunc(x/y), the dividend's sign; integer x%0 = x; float fmod.",
            integer=integers.remainder, real=arithmetic(np.fmod), refused=COMPLEX,
            traits=Trait.EXACT_IN_HALVES, cost=Cost(190, 60, divides=True))
POWER = """x^y. Floats: C's pow. Integers: x^(y mod 64) modulo 2^bits, 0^0 = 1.

    A negative y gives 1 for x = 1, (-1)^y for x = -1, and 0 for any other x, 0 included; an
    unsigned y with its top bit set counts as negative. Only the six low bits of y are read: in s32,
    3^64 = 1 and 3^65 = 3, where the true power modulo 2^32 is 2038349057 and 1820079875. That is
    what XLA:CPU computes at run time (its constant folder gives the true power), and what the
    reference, compiled code and constant_folding give here alike. The conformance programs
    int_bits_* hold it: 23 of their 449 elements depend on it.
    """
elementwise("power", 2, POWER,
            ulp=2, traits=TRANSCENDENTAL, integer=integers.power, real=transcendental(np.power),
            complex_=widened(complexes.power), cost=Cost(530, 150))
elementwise("maximum", 2, "The larger; NaN if either is; +0 above -0; pred: or.", traits=EXTREME,
            pred=np.logical_or, integer=wrapping(np.maximum), real=reals.maximum,
            refused=COMPLEX, identity=least)
elementwise("minimum", 2, "The smaller; NaN if either is; -0 below +0; pred: and.",
            traits=EXTREME, pred=np.logical_and, integer=wrapping(np.minimum),
            real=reals.minimum, refused=COMPLEX, identity=greatest)
elementwise("and", 2, "Bitwise and.", traits=LATTICE,
            pred=np.logical_and, integer=wrapping(np.bitwise_and), identity=all_ones)
elementwise("or", 2, "Bitwise or.", traits=LATTICE,
            pred=np.logical_or, integer=wrapping(np.bitwise_or), identity=zero)
elementwise("xor", 2, "Bitwise exclusive or.", traits=RING | Trait.CHOOSES,
            pred=np.logical_xor, integer=wrapping(np.bitwise_xor), identity=zero)
elementwise("shift-left", 2, "x 2^y modulo 2^bits; 0 for y (unsigned) >= bits.",
            integer=integers.shift_left, refused=FLOAT_OR_COMPLEX)
elementwise("shift-right-arithmetic", 2, "Bits down, copies of the top bit in, unsigned types too.",
            integer=integers.shift_right_arithmetic, refused=FLOAT_OR_COMPLEX)
elementwise("shift-right-logical", 2, "Bits down, zeros in; 0 for y (unsigned) >= bits.",
            integer=integers.shift_right_logical, refused=FLOAT_OR_COMPLEX)
elementwise("atan2", 2, "The angle of x + iy for atan2(y, x), signed zeros as C's.", ulp=1.5,
            traits=TRANSCENDENTAL,
            real=transcendental(np.arctan2), complex_=widened(complexes.arctangent2),
            cost=Cost(490, 110))
elementwise("complex", 2, "x + iy without arithmetic. C6: f32 makes c64, f64 makes c128.",
            real=complexes.pair, result=_complex_of)
elementwise("mulhi", 2, "The upper half of the double-width product.", traits=COMMUTATIVE,
            integer=integers.high_product, refused=FLOAT_OR_COMPLEX | {Kind.PRED})
# fmt: on


class CompareAttributes(Attributes, frozen=True):
    direction: Annotated[str, DIRECTION, "always"]
    type: Annotated[str | None, COMPARISON_TYPE, "computed"] = None


class Compare(Op):
    """result[i] = x[i] <direction> y[i] as pred.

    type FLOAT: IEEE, NaN compares false except NE. TOTALORDER: the order of the bit patterns,
    -NaN < -inf < .. < -0 < +0 < .. < inf < NaN. Default by element type.
    C1: two operands. C2: arrays. C3: equal element types up to float precision. C4: equal
    dimensions. C5: floats take FLOAT or TOTALORDER, all others only their default type.
    C6 (ours): complex numbers have no order, only EQ and NE.
    """

    opcode = "compare"
    arity = 2
    record = CompareAttributes
    traits = Trait.ELEMENTWISE | Trait.CHOOSES

    @staticmethod
    def infer(x: Shape, y: Shape, *, attrs: CompareAttributes) -> Shape:
        check_arrays((x, y), "C2")
        check_same_type((x, y), "C3")
        return broadcast_shape(x, y).with_dtype(dt.PRED)

    @staticmethod
    def check(x: Shape, y: Shape, *, attrs: CompareAttributes, shape: Shape) -> None:
        check_dims(y, x, "operand 1", "C4")
        default = default_comparison(x.dtype)
        allowed = (default, "TOTALORDER") if x.dtype.is_float else (default,)
        if attrs.type is not None and attrs.type not in allowed:
            raise Violation("attribute-value", "type", attrs.type, " or ".join(allowed), "C5")
        if x.dtype.is_complex and attrs.direction not in ("EQ", "NE"):
            raise Violation("attribute-value", "direction", attrs.direction, "EQ or NE", "C6")

    @staticmethod
    def evaluate(x: Array, y: Array, *, attrs: CompareAttributes) -> Array:
        x, y = common_extents((x, y))
        widen = representation.widen
        if not representation.dtype_of(x).is_float:
            return np.asarray(COMPARISONS[attrs.direction](widen(x), widen(y)))
        total = attrs.type == "TOTALORDER"
        with np.errstate(invalid="ignore"):
            left, right = map(reals.total_order, (x, y)) if total else map(widen, (x, y))
            return np.asarray(COMPARISONS[attrs.direction](left, right))


COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def default_comparison(dtype: DType) -> str:
    """The comparison type that text leaves out."""
    if dtype.is_float or dtype.is_complex:
        return "FLOAT"
    return "SIGNED" if dtype.is_signed else "UNSIGNED"


class Select(Op):
    """result[i] = on_true[i] if pred[i] else on_false[i]; a bit copy. A scalar pred chooses all.

    C1: three operands. C2: all arrays. C3: on_true and on_false agree up to float precision.
    C4: pred is of type pred. C5: pred is a scalar or has the same dimensions.
    """

    opcode = "select"
    arity = 3
    traits = Trait.ELEMENTWISE | Trait.CHOOSES | Trait.EXACT | Trait.TAKES_ONE

    @staticmethod
    def infer(pred: Shape, on_true: Shape, on_false: Shape) -> Shape:
        check_arrays((pred, on_true, on_false), "C2")
        if pred.dtype is not dt.PRED:
            raise Violation("dtype", "operand 0", text(pred), "element type pred", "C4")
        check_same_type((on_true, on_false), "C3")
        if not dims_agree(on_true.dims, on_false.dims):
            raise Violation("shape-mismatch", "operand 2", text(on_false), text(on_true), "C3")
        dtype = higher_precision(on_true.dtype, on_false.dtype)
        dims = tuple(map(merged_size, on_true.dims, on_false.dims))
        flags = any_dynamic((on_true, on_false))
        if pred.is_scalar:
            return Shape.array(dtype, dims, layout=on_true.layout, dynamic=flags)
        if not dims_agree(pred.dims, on_true.dims):
            expected = f"a scalar or dimensions {braces(on_true.dims)}"
            raise Violation("shape-mismatch", "operand 0", text(pred), expected, "C5")
        if UNBOUNDED not in (*on_true.dims, *on_false.dims):  # else XLA does not ask pred
            dims = pred.dims
            flags = tuple(map(any, zip(pred.dynamic, flags, strict=True)))
        assert pred.layout is not None, "an array has a layout"
        assert on_true.layout is not None, "an array has a layout"
        layout = replace(pred.layout, element_size=on_true.layout.element_size)
        return Shape.array(dtype, dims, layout=layout, dynamic=flags)

    @staticmethod
    def evaluate(pred: Array, on_true: Array, on_false: Array) -> Array:
        if pred.ndim == 0 and on_true.shape == on_false.shape:
            return on_true if pred else on_false
        return np.where(*common_extents((pred, on_true, on_false)))


class Clamp(Op):
    """min(max(x, lo), hi) in that order: lo > hi gives hi; NaN in any of the three gives NaN.

    C1: three operands. C2: arrays. C3: equal element types up to float precision. C4: each bound
    is a scalar or has x's dimensions. C5 (ours): not complex.
    """

    opcode = "clamp"
    arity = 3
    traits = Trait.ELEMENTWISE | Trait.EXACT | Trait.TAKES_ONE

    @staticmethod
    def infer(lo: Shape, x: Shape, hi: Shape) -> Shape:
        check_arrays((lo, x, hi), "C2")
        check_same_type((lo, x, hi), "C3")
        for at, bound in (("operand 0", lo), ("operand 2", hi)):
            if not bound.is_scalar and not dims_agree(bound.dims, x.dims):
                expected = f"a scalar or dimensions {braces(x.dims)}"
                raise Violation("shape-mismatch", at, text(bound), expected, "C4")
        return x

    @staticmethod
    def check(lo: Shape, x: Shape, hi: Shape, *, shape: Shape) -> None:
        if x.dtype.is_complex:
            raise Violation("dtype", "operand 1", text(x), "an ordered type", "C5")

    @staticmethod
    def evaluate(lo: Array, x: Array, hi: Array) -> Array:
        lo, x, hi = common_extents((lo, x, hi))
        kind = representation.dtype_of(x).kind
        if kind is Kind.FLOAT:
            with np.errstate(invalid="ignore"):
                return np.asarray(reals.minimum(reals.maximum(x, lo), hi))
        clamped = wrapping(lambda a, b, c: np.minimum(np.maximum(a, b), c))
        return np.asarray(clamped(x, lo, hi))
