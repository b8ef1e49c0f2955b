"""Random numbers. Source: docs/semantics.md 15."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np

from hlo.attributes.enums import DISTRIBUTION, RNG_ALGORITHM
from hlo.attributes.scalars import INT64
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType, Kind
from hlo.ir.shape import Shape
from hlo.ops.attributes import Attributes
from hlo.ops.shape_rules import check_array, check_kind, text, written
from hlo.ops.table import KernelFamily, Op, Trait

if TYPE_CHECKING:
    from hlo.ops.context import Context

Array = np.ndarray

MASK64 = 2**64 - 1
FIRST_STATE = 117515157  # The first state of every rng-get-and-update-state.
SIGNED, UNSIGNED = Kind.SIGNED, Kind.UNSIGNED


class RngBitGeneratorAttributes(Attributes, frozen=True):
    algorithm: Annotated[str, RNG_ALGORITHM, "always"]


class RngBitGenerator(Op):
    """(new state, bits) of a counter-based generator; the words' order is XLA's, bit for bit.

    rng_three_fry: state u64[2] = [key, counter]; rng_philox, and rng_default, which is the same:
    u64[3] = [key, low, high] or u64[2] = [key, low] with high = key.
    C1: the algorithm is one of the three. C2: the result is a tuple of two, the first of the
    state's shape. C3 (ours): the state's shape as above. C4 (ours): bits integral or floating.
    """

    opcode = "rng-bit-generator"
    arity = 1
    record = RngBitGeneratorAttributes
    family = KernelFamily.LOOPS
    inferable = False
    takes_shape = True

    @staticmethod
    def infer(state: Shape, *, attrs: RngBitGeneratorAttributes, shape: Shape | None) -> Shape:
        target = written(shape)
        if not target.is_tuple or len(target.elements) != 2:
            raise Violation("shape-mismatch", "result", text(target), "(state, bits)", "C2")
        sizes = (2,) if attrs.algorithm == "rng_three_fry" else (2, 3)
        if state.dtype is not dt.U64 or state.rank != 1 or state.dims[0] not in sizes:
            expected = " or ".join(f"u64[{n}]" for n in sizes)
            raise Violation("shape-mismatch", "operand 0", text(state), expected, "C3")
        bits = target.elements[1]
        check_kind(bits, frozenset({SIGNED, UNSIGNED, Kind.FLOAT}), "result", "C4")
        return Shape.tuple((state, bits))

    @staticmethod
    def evaluate(
        state: Array, *, attrs: RngBitGeneratorAttributes, shape: Shape
    ) -> tuple[Array, Array]:
        from hlo.ops.numerics.generators import philox_bits, threefry_bits

        bits = shape.elements[1]
        words = [int(word) for word in state]
        wide = bits.dtype.bits == 64
        if attrs.algorithm == "rng_three_fry":
            drawn, counter = threefry_bits(words[0], words[1], bits.dims, wide=wide)
            after = [words[0], counter]
        else:
            high = words[2] if len(words) == 3 else words[0]
            drawn, counter = philox_bits(words[0], high << 64 | words[1], bits.dims, wide=wide)
            after = [words[0], counter & MASK64, counter >> 64][: len(words)]
        return np.array(after, np.uint64), _as_bits(drawn, bits.dtype)


def _as_bits(words: Array, dtype: DType) -> Array:
    """The low bits of each word as an element."""
    from hlo.ops.numerics.representation import from_codes

    bits = words.astype(np.dtype(f"u{dtype.item_bytes}"))
    mask = bits.dtype.type((1 << dtype.bits) - 1)
    return from_codes(bits & mask, dtype)


class RngAttributes(Attributes, frozen=True):
    distribution: Annotated[str, DISTRIBUTION, "always"]


class Rng(Op):
    """Random elements: rng_uniform over [a, b), rng_normal with mean a and deviation b.

    A stream of Philox words, seeded per run: reproducible here, its numbers are nobody else's.
    C1: two scalar operands of the result's type. C2: uniform takes floating, integral and pred
    types, normal floating ones.
    """

    opcode = "rng"
    record = RngAttributes
    traits = Trait.RANDOM | Trait.SIDE_EFFECT | Trait.EXPANDED
    inferable = False
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(*operands: Shape, attrs: RngAttributes, shape: Shape | None) -> Shape:
        target = written(shape)
        check_array(target, "result", "C1")
        if len(operands) != 2:
            raise Violation("arity", "operands", f"{len(operands)} operands", "2 operands", "C1")
        for i, operand in enumerate(operands):
            if not operand.is_scalar or operand.dtype is not target.dtype:
                expected = f"{target.dtype}[]"
                raise Violation("shape-mismatch", f"operand {i}", text(operand), expected, "C1")
        kinds = {Kind.FLOAT}
        if attrs.distribution == "rng_uniform":
            kinds |= {SIGNED, UNSIGNED, Kind.PRED}
        elif attrs.distribution != "rng_normal":
            expected = "rng_uniform or rng_normal"
            raise Violation("attribute-value", "distribution", attrs.distribution, expected, "C2")
        check_kind(target, frozenset(kinds), "result", "C2")
        return target

    @staticmethod
    def evaluate(
        a: Array, b: Array, *, attrs: RngAttributes, shape: Shape, context: Context
    ) -> Array:
        words = context.random_words(2 * shape.size).reshape(2, *shape.dims)
        with np.errstate(all="ignore"):
            if attrs.distribution == "rng_normal":
                return _normal(a, b, words, shape.dtype)
            if shape.dtype.is_float:
                return _uniform_float(a, b, words, shape.dtype)
            if shape.dtype is dt.PRED:
                return np.asarray(((words[0] & 1) == 1) & b | ~b & a)
            return _uniform_integer(a, b, words, shape.dtype)


def _unit_interval(words: Array) -> Array:
    """f64 in [0, 1) with 53 random bits each."""
    bits = words[0].astype(np.uint64) << np.uint64(21) ^ (
        words[1].astype(np.uint64) >> np.uint64(11)
    )
    return np.asarray(bits.astype(np.float64) * 2.0**-53)


def _uniform_float(a: Array, b: Array, words: Array, dtype: DType) -> Array:
    """u (b - a) + a with as many bits as the type holds; never b itself."""
    from hlo.ops.numerics.representation import rounded

    fmt = dtype.float_format
    assert fmt is not None
    low, high = a.astype(np.float64), b.astype(np.float64)
    scale = 2.0 ** (fmt.mantissa + 1)
    unit = np.floor(_unit_interval(words) * scale) / scale
    drawn = rounded(unit * (high - low) + low, dtype)
    return np.where((drawn.astype(np.float64) >= high) & (low < high), a, drawn)


def _uniform_integer(a: Array, b: Array, words: Array, dtype: DType) -> Array:
    """a + bits mod (b - a), in unsigned arithmetic; a where the range is empty."""
    from hlo.ops.numerics.representation import widen, wrapped

    bits = words[0].astype(np.uint64) | (words[1].astype(np.uint64) << np.uint64(32))
    span = (widen(b).astype(np.uint64) - widen(a).astype(np.uint64)) & np.uint64(
        (1 << dtype.bits) - 1
    )
    offset = bits % span if span else bits * np.uint64(0)
    return wrapped(widen(a).astype(np.uint64) + offset, dtype)


def _normal(mean: Array, deviation: Array, words: Array, dtype: DType) -> Array:
    """Box and Muller, "A note on the generation of random normal deviates", 1958."""
    from hlo.ops.numerics.conversion import converted

    u1 = np.maximum((words[0].astype(np.float64) + 0.5) * 2.0**-32, 1e-7)
    u2 = words[1].astype(np.float64) * 2.0**-32
    drawn = np.sqrt(-2 * np.log(u1)) * np.cos(2 * np.pi * u2)
    return converted(drawn * deviation.astype(np.float64) + mean.astype(np.float64), dtype)


class RngGetAndUpdateStateAttributes(Attributes, frozen=True):
    delta: Annotated[int, INT64, "always"]


class RngGetAndUpdateState(Op):
    """The 128-bit counter of this instruction as u64[2] = [low, high], then delta added to it.

    The counter starts at FIRST_STATE in every run. C1: the result is u64[2].
    """

    opcode = "rng-get-and-update-state"
    arity = 0
    record = RngGetAndUpdateStateAttributes
    traits = Trait.RANDOM | Trait.SIDE_EFFECT | Trait.EXPANDED
    inferable = False
    takes_context = True

    @staticmethod
    def infer(*, attrs: RngGetAndUpdateStateAttributes) -> Shape:
        return Shape.array(dt.U64, (2,))

    @staticmethod
    def evaluate(*, attrs: RngGetAndUpdateStateAttributes, context: Context) -> Array:
        counter = context.advance_state(attrs.delta)
        return np.array([counter & MASK64, counter >> 64], np.uint64)
