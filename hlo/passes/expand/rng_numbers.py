"""The numbers that an rng draws, as arithmetic on the bits of rng-bit-generator.

The arithmetic is the reference's (hlo/ops/random.py), operation by operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from hlo.attributes.slices import SliceDim
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.ops.random import RngAttributes


def drawn(rng: Instruction, state: Instruction) -> Instruction:
    """The value of an rng whose stream is at a state, u64[3] = [key, low, high]."""
    numbers = Numbers.of(rng, state)
    if is_normal(rng):
        return numbers.normal()
    dtype = rng.shape.dtype
    if dtype.is_float:
        return numbers.uniform_float()
    return numbers.coin() if dtype.is_pred else numbers.uniform_integer()


def is_normal(rng: Instruction) -> bool:
    """Whether it draws from the normal distribution."""
    return RngAttributes.of(rng.attributes).distribution == "rng_normal"


def constant(like: Instruction, value: np.ndarray, dtype: DType) -> Instruction:
    """A constant in `like`'s computation."""
    return make_constant(like, Literal.of(value, Shape.array(dtype, value.shape)))


class Numbers(Struct, frozen=True):
    """The numbers of one rng: its words of 32 bits as u64, two for each element."""

    rng: Instruction
    first: Instruction
    second: Instruction

    @staticmethod
    def of(rng: Instruction, state: Instruction) -> Numbers:
        """Drawn from a state, u64[3]."""
        dims = rng.shape.dims
        bits = Shape.array(dt.U32, (2, *dims))
        shape = Shape.tuple((state.shape, bits))
        pair = make(rng, "rng-bit-generator", state, shape=shape, algorithm="rng_philox")
        words = make(rng, "get-tuple-element", pair, index=1)
        found = []
        for k in range(2):
            parts = (SliceDim(k, k + 1), *(SliceDim(0, n) for n in dims))
            half = make(rng, "slice", words, slice=parts)
            plain = make(rng, "reshape", half, shape=Shape.array(dt.U32, dims))
            found.append(make(rng, "convert", plain, shape=Shape.array(dt.U64, dims)))
        return Numbers(rng, *found)

    # -- arithmetic ------------------------------------------------------------------------------

    def op(self, opcode: str, *operands: Instruction, **attributes: Any) -> Instruction:
        return make(self.rng, opcode, *operands, **attributes)

    def number(self, value: float, dtype: DType) -> Instruction:
        """A number at every element."""
        scalar = constant(self.rng, np.array(value, dtype.numpy), dtype)
        return self.spread(scalar)

    def spread(self, scalar: Instruction) -> Instruction:
        shape = Shape.array(scalar.shape.dtype, self.rng.shape.dims)
        return make(self.rng, "broadcast", scalar, shape=shape, dimensions=())

    def typed(self, x: Instruction, dtype: DType) -> Instruction:
        if x.shape.dtype is dtype:
            return x
        return make(self.rng, "convert", x, shape=Shape.array(dtype, x.shape.dims))

    def operands(self, dtype: DType) -> tuple[Instruction, Instruction]:
        """a and b at every element."""
        a, b = (self.spread(self.typed(o, dtype)) for o in self.rng.operands)
        return a, b

    def uniform_float(self) -> Instruction:
        """u (b - a) + a, u of as many bits as the type holds; a where that is b."""
        dtype = self.rng.shape.dtype
        assert dtype.float_format is not None, "a floating type"
        amount, less = (self.number(n, dt.U64) for n in (21, 11))
        high = self.op("shift-left", self.first, amount)
        bits = self.op("xor", high, self.op("shift-right-logical", self.second, less))
        unit = self.op("multiply", self.typed(bits, dt.F64), self.number(2.0**-53, dt.F64))
        scale = 2.0 ** (dtype.float_format.mantissa + 1)
        steps = self.op("floor", self.op("multiply", unit, self.number(scale, dt.F64)))
        unit = self.op("multiply", steps, self.number(1 / scale, dt.F64))
        a, b = self.operands(dt.F64)
        wide = self.op("add", self.op("multiply", unit, self.op("subtract", b, a)), a)
        drawn = self.typed(wide, dtype)
        is_over = self.op("compare", self.typed(drawn, dt.F64), b, direction="GE")
        is_range = self.op("compare", a, b, direction="LT")
        narrow, _ = self.operands(dtype)
        return self.op("select", self.op("and", is_over, is_range), narrow, drawn)

    def uniform_integer(self) -> Instruction:
        """a + bits mod (b - a), a where the range is empty."""
        dtype = self.rng.shape.dtype
        bits = self.op(
            "or", self.first, self.op("shift-left", self.second, self.number(32, dt.U64))
        )
        a, b = (self.unsigned(x) for x in self.operands(dt.S64 if dtype.is_signed else dt.U64))
        mask = self.number((1 << dtype.bits) - 1, dt.U64)
        span = self.op("and", self.op("subtract", b, a), mask)
        zero = self.number(0, dt.U64)
        rest = self.op("remainder", bits, span)
        is_empty = self.op("compare", span, zero, direction="EQ")
        return self.typed(self.op("add", a, self.op("select", is_empty, zero, rest)), dtype)

    def unsigned(self, x: Instruction) -> Instruction:
        shape = Shape.array(dt.U64, x.shape.dims)
        return x if x.shape.dtype is dt.U64 else make(self.rng, "bitcast-convert", x, shape=shape)

    def coin(self) -> Instruction:
        """A fair coin where b is, a where it is not."""
        a, b = (self.spread(o) for o in self.rng.operands)
        low = self.op("and", self.first, self.number(1, dt.U64))
        head = self.op("compare", low, self.number(0, dt.U64), direction="NE")
        return self.op("or", self.op("and", head, b), self.op("and", self.op("not", b), a))

    def normal(self) -> Instruction:
        """Box and Muller."""
        one, two = (self.typed(w, dt.F64) for w in (self.first, self.second))
        small = self.number(2.0**-32, dt.F64)
        shifted = self.op("add", one, self.number(0.5, dt.F64))
        u = self.op("maximum", self.op("multiply", shifted, small), self.number(1e-7, dt.F64))
        turn = self.op("multiply", two, small)
        square = self.op("multiply", self.number(-2.0, dt.F64), self.op("log", u))
        angle = self.op("multiply", self.number(2 * np.pi, dt.F64), turn)
        drawn = self.op("multiply", self.op("sqrt", square), self.op("cosine", angle))
        mean, deviation = self.operands(dt.F64)
        wide = self.op("add", self.op("multiply", drawn, deviation), mean)
        return self.typed(wide, self.rng.shape.dtype)
